// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"database/sql"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/agentplatform/agentplatform/cmd/internal/flagenv"
	"github.com/agentplatform/agentplatform/cmd/internal/open"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/testenv"
	"github.com/agentplatform/agentplatform/internal/testenv/kube"
	"github.com/agentplatform/agentplatform/internal/testenv/metrictest"
	"github.com/agentplatform/agentplatform/internal/testenv/refpage"
	"github.com/agentplatform/agentplatform/internal/testenv/sqlitetest"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlite"
)

func get(t *testing.T, url string) (body []byte, status int, err error) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		return nil, 0, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	return body, resp.StatusCode, err
}

// The environment variables of the flags set the ports of probes and metrics.
func TestGateway_ServesProbesAndMetrics(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	st, err := sqlite.Open(t.Context(), sqlite.Options{Path: path, Logger: slog.Default()})
	require.NoError(t, err)
	require.NoError(t, st.Migrate(t.Context()))
	require.NoError(t, st.Close())
	health, counted, internal := testenv.FreeAddr(t), testenv.FreeAddr(t), testenv.FreeAddr(t)
	t.Setenv("AGENTPLATFORM_HEALTH_ADDR", health)
	cmd := newCommand(&open.SchemaWatch{})
	cmd.SetArgs([]string{"--sqlite=" + path, "--public-addr=127.0.0.1:0", "--internal-addr=" + internal, "--metrics-addr=" + counted})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	require.Eventually(t, func() bool {
		_, status, err := get(t, "http://"+health+"/readyz")
		return err == nil && status == http.StatusOK
	}, time.Minute, 10*time.Millisecond)
	_, status, err := get(t, "http://"+health+"/healthz")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
	_, status, err = get(t, "http://"+internal+"/v1/nothing")
	require.NoError(t, err)
	require.Equal(t, http.StatusNotFound, status)
	text, status, err := get(t, "http://"+counted+"/metrics")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
	metrictest.Parse(t, text).Check(t, metrics.ProcessGateway)
	_, status, err = get(t, "http://"+counted+"/readyz")
	require.NoError(t, err)
	require.Equal(t, http.StatusNotFound, status, "each port has its own")
	stop()
	require.NoError(t, <-ended)
}

// A gateway without its database is alive but not ready.
func TestGateway_StartsWithoutItsDatabase(t *testing.T) {
	t.Parallel()
	dsn := filepath.Join(t.TempDir(), "dsn")
	require.NoError(t, os.WriteFile(dsn, []byte("postgres://nobody@"+testenv.FreeAddr(t)+"/none?sslmode=disable"), 0o600))
	health, public := testenv.FreeAddr(t), testenv.FreeAddr(t)
	cmd := newCommand(&open.SchemaWatch{})
	cmd.SetArgs([]string{"--store-dsn-file=" + dsn, "--public-addr=" + public, "--internal-addr=127.0.0.1:0", "--health-addr=" + health, "--drain=5s"})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	require.Eventually(t, func() bool {
		_, status, err := get(t, "http://"+health+"/readyz")
		return err == nil && status == http.StatusServiceUnavailable
	}, time.Minute, 10*time.Millisecond)
	_, status, err := get(t, "http://"+health+"/healthz")
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, status)
	body, status, err := get(t, "http://"+public+"/hooks/"+uuid.NewString()+"/"+uuid.NewString())
	require.NoError(t, err)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Contains(t, string(body), "store_unavailable")
	stop()
	require.NoError(t, <-ended)
}

// A gateway stops once a newer release excludes it, and does not start again.
func TestGateway_StopsWhenNewerReleaseExcludesIt(t *testing.T) {
	t.Parallel()
	path := sqlitetest.Migrated(t)
	health := testenv.FreeAddr(t)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute) // a gateway that does not stop by itself returns no error then
	defer stop()
	excluded := make(chan struct{})
	run := func() error {
		cmd := newCommand(&open.SchemaWatch{Tick: func(ctx context.Context) error {
			select {
			case <-excluded:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}})
		cmd.SetArgs([]string{"--sqlite=" + path, "--public-addr=127.0.0.1:0", "--internal-addr=127.0.0.1:0", "--health-addr=" + health})
		return cmd.ExecuteContext(ctx)
	}
	ended := make(chan error, 1)
	go func() { ended <- run() }()
	require.Eventually(t, func() bool {
		_, status, err := get(t, "http://"+health+"/readyz")
		return err == nil && status == http.StatusOK
	}, time.Minute, 10*time.Millisecond)
	db, err := sql.Open("sqlite", "file:"+path)
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), `UPDATE schema_compat SET oldest = 99`)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	close(excluded)
	require.ErrorIs(t, <-ended, store.ErrNewerSchema)
	require.ErrorIs(t, run(), store.ErrNewerSchema)
}

// The manifests give the pod more time to stop than open requests may take.
func TestManifests_LeaveTimeToStop(t *testing.T) {
	t.Parallel()
	checked := 0
	for _, o := range kube.Manifests(t, "config/default") {
		if o.GetName() != "agentplatform-webhookgw" || o.GetKind() != "Deployment" {
			continue
		}
		var workload appsv1.Deployment
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &workload))
		cmd, pod := newCommand(&open.SchemaWatch{}), workload.Spec.Template.Spec
		require.NoError(t, cmd.ParseFlags(pod.Containers[0].Args))
		drain, err := cmd.Flags().GetDuration("drain")
		require.NoError(t, err)
		before := time.Duration(pod.Containers[0].Lifecycle.PreStop.Sleep.Seconds) * time.Second
		require.GreaterOrEqual(t, time.Duration(*pod.TerminationGracePeriodSeconds)*time.Second, before+drain+20*time.Second)
		checked++
	}
	require.Equal(t, 1, checked)
}

// The manifests use only existing flags with valid values.
func TestManifests_UseExistingFlags(t *testing.T) {
	t.Parallel()
	started := 0
	for _, o := range kube.Manifests(t, "config/default") {
		if o.GetName() != "agentplatform-webhookgw" || o.GetKind() != "Deployment" {
			continue
		}
		var workload appsv1.Deployment
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &workload))
		require.NoError(t, newCommand(&open.SchemaWatch{}).ParseFlags(workload.Spec.Template.Spec.Containers[0].Args))
		started++
	}
	require.Equal(t, 1, started)
}

// The page docs/reference/flags-webhookgw.md lists all flags of the program.
func TestReference_ListsAllFlags(t *testing.T) {
	t.Parallel()
	refpage.Check(t, "flags-webhookgw.md", "# Flags of webhookgw\n"+refpage.Flags(newCommand(&open.SchemaWatch{}), flagenv.Name))
}
