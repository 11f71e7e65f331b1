// SPDX-License-Identifier: Apache-2.0

package webhookgw

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// awayStore is a store that can be unavailable.
type awayStore struct {
	store.Store
	away atomic.Bool
	ids  chan struct{} // blocks the connector IDs until it is closed, unless nil
}

func (a *awayStore) Ping(ctx context.Context) error {
	if a.away.Load() {
		return errAway
	}
	return a.Store.Ping(ctx)
}

func (a *awayStore) Route(ctx context.Context, key store.Key) (store.Route, error) {
	if a.away.Load() {
		return store.Route{}, errAway
	}
	return a.Store.Route(ctx, key)
}

func (a *awayStore) ConnectorIDs(ctx context.Context, after store.Key, limit int) ([]store.Key, error) {
	if a.ids != nil {
		select {
		case <-a.ids:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return a.Store.ConnectorIDs(ctx, after, limit)
}

func (a *awayStore) Accept(ctx context.Context, events []store.Event) ([]store.Admission, error) {
	if a.away.Load() {
		return nil, errAway
	}
	return a.Store.Accept(ctx, events)
}

// status returns the status of a GET, and whether the response closes the connection.
func status(t *testing.T, url string) (int, bool) {
	t.Helper()
	resp, err := http.Get(url)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode, resp.Close
}

// TestGateway_StartsWithoutStore: it returns 503 until the store answers, and then accepts
// webhooks. It is ready when it knows the connectors, and stays ready.
func TestGateway_StartsWithoutStore(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.connector("inbound", nil, "hello")
	st := &awayStore{Store: b.store, ids: make(chan struct{})}
	st.away.Store(true)
	gateway := b.serve(st)
	ready := func() int {
		code, _ := status(t, "http://"+gateway.PublicAddr()+"/readyz")
		return code
	}
	got := b.post(gateway, c.ID.String(), `{}`, nil)
	require.Equal(t, http.StatusServiceUnavailable, got.status)
	require.NotEmpty(t, got.header.Get("Retry-After"))
	require.Equal(t, http.StatusServiceUnavailable, ready())
	st.away.Store(false)
	require.Equal(t, http.StatusServiceUnavailable, ready(), "it answers, but has not returned all IDs")
	require.Equal(t, http.StatusOK, b.post(gateway, c.ID.String(), `{}`, nil).status)
	close(st.ids)
	require.Eventually(t, func() bool { return ready() == http.StatusOK }, 30*time.Second, time.Millisecond)
	st.away.Store(true)
	require.Equal(t, http.StatusOK, ready())
	require.Equal(t, "store_unavailable", b.post(gateway, c.ID.String(), `{}`, nil).body["code"], "the gateway's own response")
}

// TestGateway_DispatchNotReadyWithoutStore: the internal port is not ready, and the public port
// still responds.
func TestGateway_DispatchNotReadyWithoutStore(t *testing.T) {
	t.Parallel()
	b := setup(t)
	st, now := &awayStore{Store: b.store}, atomic.Int64{}
	gateway := b.serveWith(st, func(o *Options) { o.Now = func() time.Time { return time.Unix(now.Load(), 0) } })
	public, internal := "http://"+gateway.PublicAddr()+"/readyz", "http://"+gateway.InternalAddr()+"/readyz"
	for _, url := range []string{public, internal} {
		require.Eventually(t, func() bool {
			code, _ := status(t, url)
			return code == http.StatusOK
		}, 30*time.Second, time.Millisecond)
	}
	st.away.Store(true)
	now.Add(int64(storeCheckTTL / time.Second))
	code, closed := status(t, internal)
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.True(t, closed, "a runner must open another connection")
	code, _ = status(t, public)
	require.Equal(t, http.StatusOK, code)
	st.away.Store(false)
	code, _ = status(t, internal)
	require.Equal(t, http.StatusServiceUnavailable, code, "the store answers, and is checked rarely")
	now.Add(int64(storeCheckTTL / time.Second))
	code, _ = status(t, internal)
	require.Equal(t, http.StatusOK, code)
}
