// SPDX-License-Identifier: Apache-2.0

package auditlog

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/store"
)

// The list includes entries without a call of this API and entries without an outcome.
func TestAuditLog_ShowsEntriesOfOtherSources(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	bare := showAuditEntry(store.AuditEntry{ID: uuid.New(), At: at, Operation: "keys rotate", Actor: store.AuditActor{Kind: store.AuditCommand, Name: "root"}})
	require.Equal(t, AuditActorKind("command"), bare.Actor.Kind)
	require.Nil(t, bare.Method)
	require.Nil(t, bare.Status)
	require.Nil(t, bare.EndedAt)
	require.Nil(t, bare.Actor.KeyID)
	require.Equal(t, time.UTC, bare.At.Location())

	whole := showAuditEntry(store.AuditEntry{
		Object: store.AuditObject{Kind: "connector", ID: "1"},
		Outcome: &store.AuditOutcome{
			At: at, Status: 201, Object: store.AuditObject{Kind: "link", ID: "2", Name: "hello"},
			Before: json.RawMessage(`{"a":1}`), After: nil,
		},
	})
	require.Equal(t, AuditObject{Kind: rest.Optional("link"), ID: rest.Optional("2"), Name: rest.Optional("hello")}, whole.Object, "the outcome knows more")
	require.Equal(t, 201, *whole.Status)
	require.JSONEq(t, `{"a":1}`, string(whole.Before))
	require.Nil(t, whole.After)
	refused := showAuditEntry(store.AuditEntry{Object: store.AuditObject{Kind: "connector", ID: "1"}, Outcome: &store.AuditOutcome{Status: 404, Code: "not_found"}})
	require.Equal(t, AuditObject{Kind: rest.Optional("connector"), ID: rest.Optional("1")}, refused.Object)
	require.Equal(t, "not_found", *refused.Code)
}
