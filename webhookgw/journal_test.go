// SPDX-License-Identifier: Apache-2.0

package webhookgw

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/store"
)

// TestJournal_RequiresCurrentClaim: the journal has the entries of the claim's runner. Other claims
// cannot read it, including a lost one.
func TestJournal_RequiresCurrentClaim(t *testing.T) {
	t.Parallel()
	b := setup(t)
	claimed := b.claim()
	client, err := dispatchapi.NewClient(dispatchapi.Options{URL: "http://" + b.gateway.InternalAddr(), Token: runnerToken})
	require.NoError(t, err)
	var want []dispatchapi.JournalEntry
	for i := range int64(10) {
		want = append(want, dispatchapi.JournalEntry{Sequence: i + 1, Kind: dispatchapi.JournalModelAnswer, Data: json.RawMessage(fmt.Sprintf(`{"a":%d}`, i))})
	}
	for range 6 { // more than a page
		data := json.RawMessage(`"` + strings.Repeat("x", store.MaxModelAnswer-2) + `"`)
		want = append(want, dispatchapi.JournalEntry{Sequence: int64(len(want)) + 1, Kind: dispatchapi.JournalModelAnswer, Data: data})
	}
	require.NoError(t, client.Journal(t.Context(), claimed.Run.ID, dispatchapi.JournalRequest{Token: claimed.Token, Entries: want}))
	got, err := client.ReadJournal(t.Context(), claimed.Run.ID, claimed.Token)
	require.NoError(t, err)
	require.Len(t, got, len(want))
	for i := range want {
		require.Equal(t, want[i].Sequence, got[i].Sequence)
		require.JSONEq(t, string(want[i].Data), string(got[i].Data))
	}
	_, err = client.ReadJournal(t.Context(), claimed.Run.ID, claimed.Token+1)
	require.ErrorIs(t, err, dispatchapi.ErrFenced)
	require.NoError(t, client.Complete(t.Context(), claimed.Run.ID, dispatchapi.CompleteRequest{Token: claimed.Token, Status: dispatchapi.StatusCompleted}))
	_, err = client.ReadJournal(t.Context(), claimed.Run.ID, claimed.Token)
	require.ErrorIs(t, err, dispatchapi.ErrFenced)
	status, code := b.tell(runnerToken, "/v1/runs/"+claimed.Run.ID.String()+"/complete", dispatchapi.CompleteRequest{
		Token: claimed.Token, Status: dispatchapi.StatusCompleted,
		Journal: []dispatchapi.JournalEntry{{Sequence: 11, Kind: "resumed", Data: json.RawMessage(`{}`)}},
	})
	require.Equal(t, http.StatusUnprocessableEntity, status)
	require.Equal(t, "reserved_kind", code)
}
