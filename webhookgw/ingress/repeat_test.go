// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// TestCommitter_MergesDuplicates: of concurrent requests with one key, one is sent to the store,
// and the others get its result.
func TestCommitter_MergesDuplicates(t *testing.T) {
	t.Parallel()
	project, connector := uuid.New(), uuid.New()
	keyed := func(key, fingerprint string) store.Event {
		e := event(project)
		e.ConnectorID, e.ConnectorVersion = connector, 7
		e.Idempotency = &store.Idempotency{Key: key}
		if fingerprint != "" {
			e.Idempotency.Fingerprint = []byte(fingerprint)
		}
		return e
	}
	k, st, _ := waiting(acceptAll)
	first := k.put(t, t.Context(), keyed("a", "one"))
	same := k.put(t, t.Context(), keyed("a", "one"))
	other := k.put(t, t.Context(), keyed("a", "two"))
	hook := k.put(t, t.Context(), keyed("b", ""))
	hookAgain := k.put(t, t.Context(), keyed("b", ""))
	elsewhere := keyed("a", "three")
	elsewhere.ConnectorID = uuid.New()
	away := k.put(t, t.Context(), elsewhere)
	require.True(t, k.runOnce(t.Context()))
	require.Len(t, st.batches, 1)
	require.Len(t, st.batches[0], 3, "a key belongs to its connector")
	for name, c := range map[string]struct {
		sent *pendingEvent
		want store.Admission
	}{
		"first":                {first, store.Admission{Verdict: store.Accepted, ConnectorRunID: first.event.ConnectorRunID}},
		"same":                 {same, store.Admission{Verdict: store.Repeated, ConnectorRunID: first.event.ConnectorRunID}},
		"other":                {other, store.Admission{Verdict: store.KeyReused}},
		"webhook":              {hook, store.Admission{Verdict: store.Accepted, ConnectorRunID: hook.event.ConnectorRunID}},
		"webhook again":        {hookAgain, store.Admission{Verdict: store.Repeated, ConnectorRunID: hook.event.ConnectorRunID}},
		"of another connector": {away, store.Admission{Verdict: store.Accepted, ConnectorRunID: away.event.ConnectorRunID}},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, commitAnswer{admission: c.want}, <-c.sent.answer)
		})
	}
	k.idle(t)
}

// TestCommitter_TriesNextDuplicate: in the next batch, in order, but not after an error of the
// store.
func TestCommitter_TriesNextDuplicate(t *testing.T) {
	t.Parallel()
	bad := errors.New("bad")
	for name, c := range map[string]struct {
		told  store.Admission
		edit  func(second *store.Event)
		tried bool
	}{
		"it failed":              {store.Admission{Err: bad}, nil, true},
		"it was outdated":        {store.Admission{Verdict: store.Outdated}, nil, true},
		"it reused the key":      {store.Admission{Verdict: store.KeyReused}, nil, true},
		"its key expired":        {store.Admission{Verdict: store.Expired}, nil, true},
		"it was accepted":        {store.Admission{}, nil, false},
		"it was repeated":        {store.Admission{Verdict: store.Repeated}, nil, false},
		"another version":        {store.Admission{}, func(e *store.Event) { e.ConnectorVersion++ }, true},
		"a secret that will end": {store.Admission{}, func(e *store.Event) { e.SecretNotAfter = &time.Time{} }, true},
	} {
		t.Run(name, func(t *testing.T) {
			k, st, _ := waiting(func([]store.Event) ([]store.Admission, error) { return []store.Admission{c.told}, nil })
			of := func(edit func(*store.Event)) store.Event {
				e := event(uuid.UUID{})
				e.Idempotency = &store.Idempotency{Key: "key"}
				if edit != nil {
					edit(&e)
				}
				return e
			}
			first := k.put(t, t.Context(), of(nil))
			second, third := k.put(t, t.Context(), of(c.edit)), k.put(t, t.Context(), of(c.edit))
			require.True(t, k.runOnce(t.Context()))
			require.Equal(t, c.told, (<-first.answer).admission)
			if !c.tried {
				require.Equal(t, store.Repeated, (<-second.answer).admission.Verdict)
				require.Equal(t, store.Repeated, (<-third.answer).admission.Verdict)
				k.idle(t)
				return
			}
			st.accept = acceptAll
			require.True(t, k.runOnce(t.Context()))
			require.Equal(t, second.event.ConnectorRunID, st.batches[1][0].ConnectorRunID, "in order")
			require.Equal(t, store.Accepted, (<-second.answer).admission.Verdict)
			for k.runOnce(t.Context()) {
			}
			require.NoError(t, (<-third.answer).err)
			k.idle(t)
		})
	}

	away := errors.New("away")
	k, st, _ := waiting(func([]store.Event) ([]store.Admission, error) { return nil, away })
	e := event(uuid.UUID{})
	e.Idempotency = &store.Idempotency{Key: "key"}
	k.put(t, t.Context(), e)
	second := k.put(t, t.Context(), e)
	require.True(t, k.runOnce(t.Context()))
	require.ErrorIs(t, (<-second.answer).err, away)
	require.Len(t, st.batches, 1, "an unavailable store gets one call for all")
	k.idle(t)
}
