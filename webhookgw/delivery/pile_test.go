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

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/webhookgw/delivery"
)

// pile has a project with a backlog of large payloads. They are claimed before the deliveries of
// the store. Returned deliveries are due again at once.
type pile struct {
	delivery.Store
	project uuid.UUID
	url     string

	mutex     sync.Mutex
	left      int
	open      int // opened blobs
	came      []store.Attempt
	recording chan struct{} // one value for each attempt
}

func (p *pile) ClaimDeliveries(ctx context.Context, claim store.DeliveryClaim) (claimed []store.ClaimedDelivery, err error) {
	p.mutex.Lock()
	most := min(claim.Limit, claim.Left(store.Key{ProjectID: p.project, ID: p.project}, claim.UnderWay[p.project]))
	for ; p.left > 0 && len(claimed) < most; p.left-- {
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
		if a.Delivery.ConnectorID != p.project {
			others = append(others, a)
			continue
		}
		p.mutex.Lock()
		p.came = append(p.came, a)
		if a.Outcome == store.DeliveryRetry {
			p.left++
		}
		p.mutex.Unlock()
		p.recording <- struct{}{}
	}
	if len(others) == 0 {
		return nil
	}
	return p.Store.RecordAttempts(ctx, others)
}

// TestSender_LargeDeliveriesHaveOwnQueue: a limited number is in memory, some wait, and the others
// return to the store once and are claimed when there is capacity. Small deliveries continue.
func TestSender_LargeDeliveriesHaveOwnQueue(t *testing.T) {
	t.Parallel()
	const all, atOnce, waiting = 200, 3, 8
	to, hung, came := newSink(t, answers(http.StatusOK)), make(chan struct{}), make(chan struct{}, all)
	slow := newHangingServer(t, came, hung)
	s := newScene(t, to.URL, "")
	p := &pile{Store: s.opts.Store, project: uuid.New(), url: slow.URL, left: all, recording: make(chan struct{}, 10*all)}
	s.opts.Store = p
	s.opts.WithTimeout = withoutTimeout
	stop := s.run()
	for range atOnce {
		<-came
	}
	for range all - atOnce - waiting {
		<-p.recording
	}
	s.Trip(t.Context(), t)
	require.Equal(t, store.DeliveryDone, s.recorded(1)[0].Outcome)
	p.mutex.Lock()
	open := p.open
	p.mutex.Unlock()
	require.Equal(t, atOnce, open)
	close(hung)
	for range all {
		<-p.recording
	}
	stop()
	became := map[store.DeliveryOutcome]int{}
	for _, a := range p.came {
		became[a.Outcome]++
		require.Equal(t, a.Outcome == store.DeliveryRetry, a.Free)
	}
	require.Equal(t, map[store.DeliveryOutcome]int{store.DeliveryDone: all, store.DeliveryRetry: all - atOnce - waiting}, became)
}

// TestSender_HangingConnectorDelaysNoOtherLarge: later large deliveries of another connector of the
// project are sent.
func TestSender_HangingConnectorDelaysNoOtherLarge(t *testing.T) {
	t.Parallel()
	const atOnce = 3
	to, hung, came := newSink(t, answers(http.StatusOK)), make(chan struct{}), make(chan struct{}, 1000)
	slow := newHangingServer(t, came, hung)
	s := newScene(t, to.URL, "")
	p := &pile{Store: largeStore{s.opts.Store}, project: s.Project, url: slow.URL, left: 100, recording: make(chan struct{}, 1000)}
	s.opts.Store = p
	s.opts.WithTimeout = withoutTimeout
	stop := s.run()
	for range atOnce {
		<-came
	}
	for range 3 {
		s.Trip(t.Context(), t)
		<-to.came
		require.Equal(t, store.DeliveryDone, s.recorded(1)[0].Outcome)
	}
	close(hung)
	stop()
}

// largeStore is a store with large results only, whose blobs do not exist.
type largeStore struct{ delivery.Store }

func (l largeStore) ClaimDeliveries(ctx context.Context, claim store.DeliveryClaim) ([]store.ClaimedDelivery, error) {
	claimed, err := l.Store.ClaimDeliveries(ctx, claim)
	for i := range claimed {
		blob := uuid.New()
		claimed[i].OutputBlob = &blob
	}
	return claimed, err
}

// TestSender_StopEndsLarge: deliveries that wait for a slot do not delay a stop.
func TestSender_StopEndsLarge(t *testing.T) {
	t.Parallel()
	const all, atOnce = 11, 3
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
