// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// slowClaim is a store that completes a claim when allowed, and returns its result only while the
// context is valid.
type slowClaim struct {
	fake
	may      chan struct{}
	leased   store.Lease
	released []store.Lease
}

func (s *slowClaim) Claim(ctx context.Context, claim store.Claim) (store.ClaimResult, error) {
	s.count("Claim")
	select {
	case <-s.may:
	case <-ctx.Done():
		return store.ClaimResult{}, context.Cause(ctx)
	}
	return store.ClaimResult{Runs: []store.Claimed{{Run: store.Run{ID: s.leased.Run.ID, ProjectID: s.leased.Run.ProjectID}, Token: s.leased.Token}}}, nil
}

func (s *slowClaim) Release(_ context.Context, l store.Lease, _ time.Duration) error {
	s.released = append(s.released, l)
	return nil
}

// TestClaim_ReleasesRunsOfDisconnectedRunner: a draining runner can disconnect during its claim. It
// does not get the claimed runs, and otherwise no runner would before the lease expires.
func TestClaim_ReleasesRunsOfDisconnectedRunner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slowClaim{may: make(chan struct{}), leased: store.Lease{Run: store.Key{ProjectID: named("a"), ID: uuid.New()}, Token: 7}}
		h := New(Options{Store: s, Logger: slog.New(slog.DiscardHandler)})
		ctx, leave := context.WithCancel(t.Context())
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/claim", strings.NewReader(`{"runner_id":"r","places":1,"limit":1,"wait_seconds":20}`))
			r.Header.Set("Authorization", "Bearer a")
			h.ServeHTTP(httptest.NewRecorder(), r)
		}()
		synctest.Wait()
		require.Equal(t, 1, s.calls("Claim"))
		leave()
		synctest.Wait()
		close(s.may)
		<-answered
		require.Equal(t, []store.Lease{s.leased}, s.released)
	})
}
