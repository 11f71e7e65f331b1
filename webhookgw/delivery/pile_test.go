// SPDX-License-Identifier: Apache-2.0

package delivery_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/webhookgw/delivery"
)

// pile is a project with a backlog of large payloads, which are claimed before what the store has.
type pile struct {
	delivery.Store
	project uuid.UUID
	url     string

	mutex     sync.Mutex
	left      int
	open      int // blobs that were opened
	came      []store.Attempt
	recording chan struct{} // one for each attempt
}

func (p *pile) ClaimDeliveries(ctx context.Context, claim store.DeliveryClaim) (claimed []store.ClaimedDelivery, err error) {
	p.mutex.Lock()
	for ; p.left > 0 && len(claimed) < claim.Limit; p.left-- {
		blob := uuid.New()
		claimed = append(claimed, store.ClaimedDelivery{
			Delivery: store.Delivery{ID: uuid.New(), ProjectID: p.project, ConnectorID: p.project, Kind: store.DeliverPayload}, PayloadBlob: &blob,
			Connector: store.Connector{ID: p.project, ProjectID: p.project, Config: fmt.Appendf(nil, `{"url":%q}`, p.url)},
		})
	}
	p.mutex.Unlock()
	if len(claimed) > 0 {
		return claimed, nil
	}
	return p.Store.ClaimDeliveries(ctx, claim)
}

func (p *pile) OpenBlob(context.Context, store.Key) (io.ReadCloser, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.open++
	return io.NopCloser(strings.NewReader(`{}`)), nil
}

func (p *pile) RecordAttempts(ctx context.Context, attempts []store.Attempt) error {
	var others []store.Attempt
	for _, a := range attempts {
		if a.Delivery.ProjectID != p.project {
			others = append(others, a)
			continue
		}
		p.mutex.Lock()
		p.came = append(p.came, a)
		p.mutex.Unlock()
		p.recording <- struct{}{}
	}
	if len(others) == 0 {
		return nil
	}
	return p.Store.RecordAttempts(ctx, others)
}

// TestLargeOnesWaitInALaneOfTheirOwn: so many are in memory, nothing is recorded of the others,
// and what is not large goes on.
func TestLargeOnesWaitInALaneOfTheirOwn(t *testing.T) {
	t.Parallel()
	const all, atOnce = 200, 4
	to, hung, came := newSink(t, answers(http.StatusOK)), make(chan struct{}), make(chan struct{}, all)
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or it would not be seen that the client goes
		came <- struct{}{}
		select {
		case <-hung:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(slow.Close)
	s := newScene(t, to.URL, "")
	p := &pile{Store: s.opts.Store, project: uuid.New(), url: slow.URL, left: all, recording: make(chan struct{}, all)}
	s.opts.Store = p
	s.opts.WithTimeout = func(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
		return context.WithCancel(ctx)
	}
	s.run()
	for range atOnce {
		<-came
	}
	s.Trip(t.Context(), t)
	require.Equal(t, store.DeliveryDone, s.recorded(1)[0].Outcome)
	p.mutex.Lock()
	require.Equal(t, atOnce, p.open)
	require.Empty(t, p.came, "nothing is said of those that wait")
	p.mutex.Unlock()
	close(hung)
	for range all {
		<-p.recording
	}
	p.mutex.Lock()
	defer p.mutex.Unlock()
	for _, a := range p.came {
		require.Equal(t, store.DeliveryDone, a.Outcome, a.Error)
	}
}

// TestAStopEndsWhatIsLarge: what waits for a place keeps no process from ending.
func TestAStopEndsWhatIsLarge(t *testing.T) {
	t.Parallel()
	const all, atOnce = 20, 4
	release, came := make(chan struct{}), make(chan struct{}, all)
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		came <- struct{}{}
		<-release
	}))
	t.Cleanup(slow.Close)
	s := newScene(t, slow.URL, "")
	p := &pile{Store: s.opts.Store, project: uuid.New(), url: slow.URL, left: all, recording: make(chan struct{}, all)}
	s.opts.Store = p
	stop := s.run()
	for range atOnce {
		<-came
	}
	go close(release)
	stop()
	require.Len(t, p.came, all, "each was recorded before the sender ended")
}
