// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlite"
)

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
