// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/internal/testenv/kube"
	"github.com/agentplatform/agentplatform/internal/testenv/sqlitetest"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlite"
)

// The cluster of the kubeconfig adopts the store, unless the manager of another cluster renews its lease. The audit log has the
// user.
func TestStoreAdopt_MovesTheStore(t *testing.T) {
	t.Parallel()
	control := kube.Start(t)
	kubeconfig, path := filepath.Join(t.TempDir(), "kubeconfig"), filepath.Join(t.TempDir(), "store.db")
	require.NoError(t, os.WriteFile(kubeconfig, control.Kubeconfig(), 0o600))
	system := &corev1.Namespace{}
	require.NoError(t, control.Client.Get(t.Context(), client.ObjectKey{Name: metav1.NamespaceSystem}, system))
	db, err := sqlite.Open(t.Context(), sqlite.Options{Path: path, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.NoError(t, db.Migrate(t.Context()))
	adopt := func(more ...string) (string, error) {
		out, _, err := run(t, append([]string{"store", "adopt", "--kubeconfig", kubeconfig, "--sqlite", path}, more...)...)
		return out, err
	}

	require.NoError(t, db.HoldCluster(t.Context(), "another cluster", uuid.New()))
	_, err = adopt()
	require.ErrorContains(t, err, "stop it and retry")
	_, err = adopt("--finish")
	require.Error(t, err, "a store that was not adopted")
	lease, err := db.Cluster(t.Context())
	require.NoError(t, err)
	require.Equal(t, "another cluster", lease.ClusterUID)

	log, err := db.ListAudit(t.Context(), store.AuditQuery{Limit: 10})
	require.NoError(t, err)
	require.Len(t, log, 2)
	require.Equal(t, "store adopt --finish", log[0].Operation)
	require.Equal(t, "failed", log[0].Outcome.Code)
	require.Equal(t, string(system.UID), log[1].Object.ID)
}

// Wrong statistics are recounted. The command prints each day, and the audit log has its user.
func TestStoreRebuildRollups_RecountsRuns(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	db, err := sqlite.Open(t.Context(), sqlite.Options{Path: path, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.NoError(t, db.Migrate(t.Context()))
	raw, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, raw.Close()) })
	project, connector := uuid.New(), uuid.New()
	at := time.Now().UTC()
	_, err = raw.ExecContext(t.Context(), `INSERT INTO stored_bytes (project_id, bytes) VALUES ($1, 1)`, project.String())
	require.NoError(t, err)
	_, err = raw.ExecContext(t.Context(), `INSERT INTO ended_connector_runs (project_id, id, environment_id, connector_id, status, trigger_type, content_type, run_ids,
		error, started_at, ended_at) VALUES ($1, $2, $1, $3, 'completed', 'webhook', '', '[]', '', 0, 0)`,
		project.String(), store.Stamp(uuid.New(), at.UnixMicro(), 0).String(), connector.String())
	require.NoError(t, err)

	out, _, err := run(t, "store", "rebuild-rollups", "--sqlite", path)
	require.NoError(t, err)
	require.Contains(t, out, "project "+project.String()+": "+at.Format(time.DateOnly))
	require.Contains(t, out, "\n1 runs of agents and connectors were counted\n")
	got, err := db.ConnectorStatistics(t.Context(), store.ConnectorStatisticsQuery{Connector: store.Key{ProjectID: project, ID: connector}})
	require.NoError(t, err)
	require.EqualValues(t, 1, got.Total())
	log, err := db.ListAudit(t.Context(), store.AuditQuery{Limit: 10})
	require.NoError(t, err)
	require.Equal(t, "store rebuild-rollups", log[0].Operation)
	_, _, err = run(t, "store", "rebuild-rollups")
	require.ErrorContains(t, err, "name one store")
}

// A backup is written to a file or to standard output, with its progress on standard error. Restore restores it.
func TestStoreBackup_RestoresFromFileAndStream(t *testing.T) {
	t.Parallel()
	path, folder := sqlitetest.Migrated(t), t.TempDir()
	streamed, messages, err := run(t, "store", "backup", "--sqlite", path, "--to", "-")
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(streamed, "SQLite format 3\x00"))
	require.Contains(t, messages, "100% of ")

	file := filepath.Join(folder, "copy.db")
	out, _, err := run(t, "store", "backup", "--sqlite", path, "--to", file)
	require.NoError(t, err)
	require.Empty(t, out)
	_, _, err = run(t, "store", "backup", "--sqlite", path, "--to", file)
	require.ErrorContains(t, err, "exists already")

	_, messages, err = run(t, "store", "restore", "--sqlite", filepath.Join(folder, "a.db"), "--from", file)
	require.NoError(t, err)
	require.Contains(t, messages, "restored ")
	root := newRootCommand("agentctl")
	root.SetArgs([]string{"store", "restore", "--sqlite", filepath.Join(folder, "b.db"), "--from", "-"})
	root.SetIn(strings.NewReader(streamed))
	root.SetErr(&bytes.Buffer{})
	require.NoError(t, root.ExecuteContext(t.Context()))
	_, _, err = run(t, "store", "restore", "--sqlite", path, "--from", file)
	require.ErrorContains(t, err, "--replace")
}

// Errors name the missing flag. A backup is never written to a terminal.
func TestStoreBackup_ChecksItsFlags(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"store backup --to -":            "--sqlite: must be the file of the store",
		"store backup --sqlite a.db":     "--to: must be a file",
		"store restore --sqlite a.db":    "--from: must be a file",
		"store restore --from a.db":      "--sqlite: must be the file of the store",
		"store backup --sqlite a --to -": "--to: standard output is a terminal",
	} {
		t.Run(line, func(t *testing.T) {
			root := newRootCommand("agentctl")
			root.SetArgs(strings.Fields(line))
			root.SetOut(&terminal{&bytes.Buffer{}})
			root.SetErr(&bytes.Buffer{})
			require.ErrorContains(t, root.ExecuteContext(t.Context()), want)
		})
	}
}

func openAuditLog(t *testing.T) store.Store {
	t.Helper()
	s, err := sqlite.Open(t.Context(), sqlite.Options{Path: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Migrate(t.Context()))
	return s
}

func TestAuditCommand_RecordsBeforeAndAfter(t *testing.T) {
	t.Parallel()
	s, broken := openAuditLog(t), errors.New("broken: CANARY")
	list := func() []store.AuditEntry {
		entries, err := s.ListAudit(t.Context(), store.AuditQuery{Limit: 10})
		require.NoError(t, err)
		return entries
	}
	object := store.AuditObject{Kind: "key", ID: "2"}
	require.NoError(t, auditCommand(t.Context(), s, "keys rotate", object, func(context.Context) error {
		entries := list()
		require.Len(t, entries, 1)
		require.Nil(t, entries[0].Outcome, "not yet")
		require.Equal(t, store.AuditCommand, entries[0].Actor.Kind)
		require.Regexp(t, `.@.`, entries[0].Actor.Name)
		require.Equal(t, object, entries[0].Object)
		return nil
	}))
	require.Empty(t, list()[0].Outcome.Code)
	ctx, stop := context.WithCancel(t.Context())
	require.ErrorIs(t, auditCommand(ctx, s, "keys rotate", object, func(context.Context) error {
		stop()
		return broken
	}), broken)
	require.Equal(t, "failed", list()[0].Outcome.Code, "also when it was interrupted")
}

// away is an audit log that rejects writes.
type away struct{ store.Audit }

func (away) RecordAudit(context.Context, store.AuditEntry) (uuid.UUID, error) {
	return uuid.Nil, errors.New("away")
}

func TestAuditCommand_RejectsUnrecordedCommands(t *testing.T) {
	t.Parallel()
	err := auditCommand(t.Context(), away{}, "store adopt", store.AuditObject{}, func(context.Context) error {
		t.Error("it was run")
		return nil
	})
	require.ErrorContains(t, err, "not run")
}
