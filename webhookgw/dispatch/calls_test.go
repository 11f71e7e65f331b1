// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// hanging is a store that answers no call before its context ends.
type hanging struct {
	fake
	under chan struct{} // one for each call under way
}

func (s *hanging) hang(ctx context.Context) error {
	s.under <- struct{}{}
	<-ctx.Done()
	<-s.under
	return context.Cause(ctx)
}

func (s *hanging) Run(ctx context.Context, _ store.Key) (store.Run, error) {
	return store.Run{}, s.hang(ctx)
}

func (s *hanging) Claim(ctx context.Context, _ store.Claim) (store.ClaimResult, error) {
	return store.ClaimResult{}, s.hang(ctx)
}

func (s *hanging) Heartbeat(ctx context.Context, _ []store.Lease, _ time.Duration) ([]store.Lease, error) {
	return nil, s.hang(ctx)
}

func (s *hanging) AppendJournal(ctx context.Context, _ store.Lease, _ []store.JournalEntry) error {
	return s.hang(ctx)
}

func (s *hanging) Release(ctx context.Context, _ store.Lease, _ time.Duration) error {
	return s.hang(ctx)
}

// TestCallsTakeAPartOfTheStore: whichever they are, a project's take a part of those that
// may ask it, all together leave connections for others, and none waits for ever.
func TestCallsTakeAPartOfTheStore(t *testing.T) {
	t.Parallel()
	lease := func() string { return fmt.Sprintf(`{"leases":[{"run_id":%q,"token":1}]}`, uuid.New()) }
	for name, call := range map[string]struct{ path, body func() string }{
		"claim":        {func() string { return "/v1/claim" }, func() string { return `{"limit":1,"runner_id":"r"}` }},
		"heartbeat":    {func() string { return "/v1/heartbeat" }, func() string { return `{"leases":[]}` }},
		"unknown runs": {func() string { return "/v1/heartbeat" }, lease},
		"journal":      {func() string { return "/v1/runs/" + known.String() + "/journal" }, func() string { return `{"token":1,"entries":[]}` }},
		"release":      {func() string { return "/v1/runs/" + known.String() + "/release" }, func() string { return `{"token":1}` }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				st := &hanging{under: make(chan struct{}, 1000)}
				h := New(Options{Store: st, Logger: slog.New(slog.DiscardHandler)})
				codes := make(chan int, 1000)
				ask := func(project string, n int) {
					h.owners.Put(store.Key{ProjectID: named(project), ID: known}, named(project))
					for range n {
						go func() { codes <- ask(t, h, project, http.MethodPost, call.path(), call.body()).Code }()
					}
					synctest.Wait()
				}
				ask("greedy", 40)
				require.Len(t, st.under, maxCalls/callShare)
				ask("modest", 40)
				require.Len(t, st.under, maxCalls)
				ask("a", 1)
				time.Sleep(patience) // of the bubble
				synctest.Wait()
				require.Len(t, codes, 81-maxCalls)
				time.Sleep(claimTime)
				synctest.Wait()
				require.Len(t, codes, 81, "nobody waits any more")
				require.True(t, h.calls.Free())
			})
		})
	}
}

// known is a run that the gateway knows.
var known = uuid.New()
