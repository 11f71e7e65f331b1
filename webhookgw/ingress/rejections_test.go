// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/testenv/metrictest"
	"github.com/agentplatform/agentplatform/internal/testenv/webhooktest"
	"github.com/agentplatform/agentplatform/store"
)

// rejectionBook is a store for rejections that fails if fail is set.
type rejectionBook struct {
	oneRoute
	mutex sync.Mutex
	fail  error
	taken []store.Rejected
	calls int
}

func (b *rejectionBook) RecordRejections(_ context.Context, rejected []store.Rejected) error {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	b.calls++
	if b.fail == nil {
		b.taken = append(b.taken, rejected...)
	}
	return b.fail
}

const lostName = "agentplatform_webhook_rejections_lost_total"

// TestRejections_AreRecorded: with the error, and without secrets. Requests for unknown connectors
// are not recorded.
func TestRejections_AreRecorded(t *testing.T) {
	t.Parallel()
	proxies, err := httpserver.ParseProxies("10.0.0.0/8")
	require.NoError(t, err)
	clock, key := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), store.Key{ProjectID: uuid.New(), ID: uuid.New()}
	book := &rejectionBook{oneRoute: oneRoute{key: key}}
	h := New(Options{Store: book, TrustedProxies: proxies, Logger: quiet(), Now: func() time.Time { return clock }})
	h.Handler = webhooktest.Handler(t, h.Handler)
	ask := func(method, path, agent string) int {
		r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(`{"CANARY":"body"}`))
		r.RemoteAddr = "10.0.0.1:1"
		r.Header.Set("X-Forwarded-For", "198.51.100.7")
		r.Header.Set("X-Service-Secret", "CANARY")
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("User-Agent", agent)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	known := "/hooks/" + key.String()
	require.Equal(t, http.StatusNotFound, ask(http.MethodPost, "/hooks/"+uuid.NewString()+"/"+key.ID.String(), ""))
	require.Equal(t, http.StatusNotFound, ask(http.MethodPost, "/hooks/nonsense/"+key.ID.String(), ""))
	require.Equal(t, http.StatusUnauthorized, ask(http.MethodPost, known+"?secret=CANARY", "curl/8"))
	clock = clock.Add(time.Second)
	require.Equal(t, http.StatusMethodNotAllowed, ask(http.MethodPut, known, strings.Repeat("a", 1000)))
	clock = clock.Add(time.Second)
	h.rejections.recordBatch(t.Context())
	h.rejections.recordBatch(t.Context())
	require.Equal(t, 1, book.calls, "nothing is recorded without rejections")
	sample := store.RejectionSample{
		Ago: time.Second, Code: "method_not_allowed", Detail: "A webhook accepts GET and POST.", Method: http.MethodPut, ContentType: "application/json",
		UserAgent: strings.Repeat("a", store.MaxRejectionText), Size: 17, RemoteAddr: "198.51.100.7",
	}
	before := sample
	before.Ago, before.Code, before.Method, before.UserAgent = 2*time.Second, "invalid_secret", http.MethodPost, "curl/8"
	before.Detail = "The secret is missing or wrong. Send the connector's secret in the header X-Service-Secret."
	require.Equal(t, []store.Rejected{{
		Connector: key, Counts: map[string]int64{"invalid_secret": 1, "method_not_allowed": 1}, Samples: []store.RejectionSample{sample, before},
	}}, book.taken)
}

// TestRejections_Limits: the numbers of connectors, of samples and of one record are limited. The
// longest-waiting connector is first, and omitted rejections are counted.
func TestRejections_Limits(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	book := &rejectionBook{}
	r := newRejectionLog(book, metrics.NewGateway(registry, nil), quiet(), time.Now)
	keys := make([]store.Key, maxRejecting+3)
	for i := range keys {
		keys[i] = store.Key{ProjectID: uuid.New(), ID: uuid.New()}
		for range store.MaxRejectionSamples + 5 {
			r.addRejection(keys[i], store.RejectionSample{Code: "c"})
		}
	}
	lost := float64(3 * (store.MaxRejectionSamples + 5))
	require.InEpsilon(t, lost, metrictest.Of(t, registry).Value(t, lostName), 0)
	r.recordBatch(t.Context())
	require.Len(t, book.taken, store.MaxRejected)
	for i, of := range book.taken {
		require.Equal(t, keys[i], of.Connector)
		require.Len(t, of.Samples, store.MaxRejectionSamples)
		require.EqualValues(t, store.MaxRejectionSamples+5, of.Counts["c"])
	}
	book.fail = errors.New("away")
	r.recordBatch(t.Context())
	require.Len(t, book.taken, store.MaxRejected)
	lost += store.MaxRejected * (store.MaxRejectionSamples + 5)
	require.InEpsilon(t, lost, metrictest.Of(t, registry).Value(t, lostName), 0, "rejections that the store did not accept")
	require.Len(t, r.of, maxRejecting-2*store.MaxRejected)
}

// TestRejections_ShareOfProject: a project has a share of the waiting connectors, and projects are
// recorded round-robin.
func TestRejections_ShareOfProject(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	book := &rejectionBook{}
	r := newRejectionLog(book, metrics.NewGateway(registry, nil), quiet(), time.Now)
	flooded, other := uuid.New(), store.Key{ProjectID: uuid.New(), ID: uuid.New()}
	for range maxRejecting + 1 {
		r.addRejection(store.Key{ProjectID: flooded, ID: uuid.New()}, store.RejectionSample{Code: "c"})
	}
	require.Len(t, r.of, maxRejecting/projectShare)
	require.InEpsilon(t, maxRejecting+1-maxRejecting/projectShare, metrictest.Of(t, registry).Value(t, lostName), 0)
	r.addRejection(other, store.RejectionSample{Code: "c"})
	r.recordBatch(t.Context())
	require.Len(t, book.taken, store.MaxRejected)
	require.Equal(t, other, book.taken[1].Connector, "round-robin over projects")
	for len(r.of) > 0 {
		r.addRejection(other, store.RejectionSample{Code: "c"})
		book.taken = nil
		r.recordBatch(t.Context())
		require.Contains(t, []store.Key{book.taken[0].Connector, book.taken[min(1, len(book.taken)-1)].Connector}, other)
	}
	require.Empty(t, r.waiting)
	require.Empty(t, r.turns)
	r.addRejection(store.Key{ProjectID: flooded, ID: uuid.New()}, store.RejectionSample{Code: "c"})
	require.Len(t, r.of, 1, "there is free capacity again")
}

// TestRejections_RecordInterval: and once more when the gateway stops.
func TestRejections_RecordInterval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		book := &rejectionBook{}
		r := newRejectionLog(book, metrics.NewGateway(nil, nil), quiet(), time.Now)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { r.runLoop(ctx); close(ended) }()
		key := store.Key{ProjectID: uuid.New(), ID: uuid.New()}
		for want := 1; want < 3; want++ {
			r.addRejection(key, store.RejectionSample{Code: "c"})
			time.Sleep(recordInterval) // bubble time
			synctest.Wait()
			require.Len(t, book.taken, want)
		}
		r.addRejection(key, store.RejectionSample{Code: "c"})
		stop()
		<-ended
		require.Len(t, book.taken, 3)
	})
}
