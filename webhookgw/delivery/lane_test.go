// SPDX-License-Identifier: Apache-2.0

package delivery_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/webhookgw/delivery"
)

// TestSender_LimitsConcurrencyPerConnector: further deliveries of a connector wait in the process
// and start when a request ends.
func TestSender_LimitsConcurrencyPerConnector(t *testing.T) {
	t.Parallel()
	const all, atOnce = 200, 128
	var (
		mutex     sync.Mutex
		now, most int
	)
	at := func(change int) {
		mutex.Lock()
		defer mutex.Unlock()
		now += change
		most = max(most, now)
	}
	release := make(chan struct{})
	to := newSink(t, func(http.ResponseWriter, *http.Request, int) {
		<-release
	})
	s := newScene(t, to.URL, "")
	s.opts.WithTimeout = func(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
		at(1)
		ctx, cancel := context.WithCancel(ctx)
		return ctx, sync.OnceFunc(func() { at(-1); cancel() })
	}
	claims := make(chan int, 1000)
	s.opts.Store = claiming{s.opts.Store, claims}
	for range all {
		s.Trip(t.Context(), t)
	}
	s.run()
	for range atOnce {
		<-to.came
	}
	for claimed := 0; claimed < all; {
		claimed += <-claims
	}
	for range all - atOnce {
		release <- struct{}{}
		<-to.came
	}
	close(release)
	s.recorded(all)
	require.LessOrEqual(t, most, atOnce)
	require.Len(t, to.requests(), all)
}

// claiming counts the claimed deliveries.
type claiming struct {
	delivery.Store
	claims chan int
}

func (c claiming) ClaimDeliveries(ctx context.Context, claim store.DeliveryClaim) ([]store.ClaimedDelivery, error) {
	claimed, err := c.Store.ClaimDeliveries(ctx, claim)
	c.claims <- len(claimed)
	return claimed, err
}

// TestSender_SlowProjectsLeaveSlots: other projects find slots, however many projects have
// destinations that do not answer.
func TestSender_SlowProjectsLeaveSlots(t *testing.T) {
	t.Parallel()
	to, hung := newSink(t, answers(http.StatusOK)), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // otherwise the server does not notice that the client disconnects
		select {
		case <-hung:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(slow.Close)
	defer close(hung)
	s := newScene(t, to.URL, "")
	hogs := &hogs{Store: s.opts.Store, projects: make([]uuid.UUID, 8), url: slow.URL, served: make(chan struct{}, 1)}
	for i := range hogs.projects {
		hogs.projects[i] = uuid.New()
	}
	s.opts.Store = hogs
	s.opts.WithTimeout = withoutTimeout
	s.run()
	<-hogs.served
	s.Trip(t.Context(), t)
	require.Equal(t, store.DeliveryDone, s.recorded(1)[0].Outcome)
}

// hogs has projects with as many deliveries to a slow destination as can start. The deliveries of
// the store come after them.
type hogs struct {
	delivery.Store
	projects []uuid.UUID
	url      string
	served   chan struct{} // closed when they have all their slots
}

func (h *hogs) ClaimDeliveries(ctx context.Context, claim store.DeliveryClaim) (claimed []store.ClaimedDelivery, err error) {
	for _, project := range h.projects {
		for range min(claim.PerProject-claim.UnderWay[project], claim.Limit-len(claimed)) {
			claimed = append(claimed, store.ClaimedDelivery{
				Delivery: store.Delivery{ID: uuid.New(), ProjectID: project, ConnectorID: project, Kind: store.DeliverPayload}, Payload: []byte(`{}`),
				Connector: store.Connector{ID: project, ProjectID: project, Config: fmt.Appendf(nil, `{"url":%q}`, h.url)},
			})
		}
	}
	if len(claimed) > 0 {
		return claimed, nil
	}
	select {
	case h.served <- struct{}{}:
	default:
	}
	return h.Store.ClaimDeliveries(ctx, claim)
}

func (h *hogs) RecordAttempts(ctx context.Context, attempts []store.Attempt) error {
	attempts = slices.DeleteFunc(slices.Clone(attempts), func(a store.Attempt) bool { return slices.Contains(h.projects, a.Delivery.ProjectID) })
	if len(attempts) == 0 {
		return nil
	}
	return h.Store.RecordAttempts(ctx, attempts)
}

// newHangingServer returns a destination that reports each request to came and responds when hung is closed.
func newHangingServer(t *testing.T, came chan<- struct{}, hung <-chan struct{}) *httptest.Server {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // otherwise the server does not notice that the client disconnects
		came <- struct{}{}
		select {
		case <-hung:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	return server
}

func withoutTimeout(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

// TestSender_SlowConnectorsLeaveSlots: each connector gets half of what the others leave.
func TestSender_SlowConnectorsLeaveSlots(t *testing.T) {
	t.Parallel()
	const all, atOnce = 300, 128 // more than a process holds for a connector
	to, hung, came := newSink(t, answers(http.StatusOK)), make(chan struct{}), make(chan struct{}, 2*all)
	slow := newHangingServer(t, came, hung)
	defer close(hung)
	s := newScene(t, slow.URL, "")
	another := func(name, url string) {
		other := s.connector
		other.Ref, other.ID, other.Name = s.ref(store.KindConnector, name), uuid.New(), name
		other.Config, other.Sealed = fmt.Appendf(nil, `{"url":%q}`, url), nil
		require.NoError(t, s.Store.PutConnector(t.Context(), other))
		require.NoError(t, s.Store.PutLink(t.Context(), store.Link{
			Ref: s.ref(store.KindConnectorLink, name), ID: uuid.New(), ProjectID: s.Project, ConnectorID: other.ID,
			AgentName: s.Links[0].AgentName, Outbound: &store.OutboundPolicy{Mode: store.LinkAutomatic}, ObjectCreatedAt: time.UnixMicro(0),
		}))
	}
	another("slow too", slow.URL)
	for range all {
		s.Trip(t.Context(), t)
	}
	s.opts.WithTimeout = withoutTimeout
	s.run()
	for range 2 * atOnce {
		<-came
	}
	another("quick", to.URL)
	s.Trip(t.Context(), t)
	require.Equal(t, store.DeliveryDone, s.recorded(1)[0].Outcome)
	require.Len(t, to.requests(), 1)
}

// sluggish is a store with slow claims.
type sluggish struct {
	delivery.Store
	takes func()
}

func (s sluggish) ClaimDeliveries(ctx context.Context, claim store.DeliveryClaim) ([]store.ClaimedDelivery, error) {
	claimed, err := s.Store.ClaimDeliveries(ctx, claim)
	if len(claimed) > 0 {
		s.takes()
	}
	return claimed, err
}

// TestSender_DropsSlowClaims: after a slow claim another process could send the delivery before the
// attempt is recorded.
func TestSender_DropsSlowClaims(t *testing.T) {
	t.Parallel()
	to := newSink(t, answers(http.StatusOK))
	s := newScene(t, to.URL, "")
	var clock atomic.Int64
	s.opts.Now = func() time.Time { return time.Unix(clock.Load(), 0) }
	s.opts.Store = sluggish{s.opts.Store, func() { clock.Add(120) }}
	s.Trip(t.Context(), t)
	stop := s.run()
	a := s.recorded(1)[0]
	stop()
	require.True(t, a.Free)
	require.Equal(t, store.DeliveryRetry, a.Outcome)
	require.Equal(t, "platform", a.ErrorClass)
	require.Empty(t, to.requests())
}
