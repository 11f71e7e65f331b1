// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// connectors is a store of routes that blocks and counts its reads.
type connectors struct {
	store.Routes
	mutex sync.Mutex
	ids   []store.Key
	hold  chan struct{} // blocks reads until it is closed, unless nil
	away  error
	reads map[store.Key]int
	most  int // maximum of concurrent reads
	now   int
	pages int
}

func (c *connectors) Route(_ context.Context, key store.Key) (store.Route, error) {
	c.mutex.Lock()
	c.reads[key]++
	c.now++
	c.most = max(c.most, c.now)
	hold, known, err := c.hold, slices.Contains(c.ids, key), c.away
	c.mutex.Unlock()
	if hold != nil && !known {
		<-hold
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.now--
	if err == nil && !known {
		err = store.ErrNotFound
	}
	return store.Route{Connector: store.Connector{ProjectID: key.ProjectID, ID: key.ID, Config: []byte(`{}`)}}, err
}

func (c *connectors) ConnectorIDs(_ context.Context, after store.Key, limit int) ([]store.Key, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.pages++
	if c.away != nil {
		return nil, c.away
	}
	begin := 0
	if after != (store.Key{}) {
		begin = slices.Index(c.ids, after) + 1
	}
	return c.ids[begin:min(begin+limit, len(c.ids))], nil
}

func (c *connectors) set(away error, ids ...store.Key) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.away, c.ids = away, append(c.ids, ids...)
}

// someKeys returns n sorted keys.
func someKeys(n int) (out []store.Key) {
	for range n {
		out = append(out, store.Key{ProjectID: uuid.New(), ID: uuid.New()})
	}
	slices.SortFunc(out, func(a, b store.Key) int { return bytes.Compare(a.ProjectID[:], b.ProjectID[:]) })
	return out
}

func newConnectors(n int) *connectors {
	return &connectors{ids: someKeys(n), reads: map[store.Key]int{}}
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// TestRoutes_KnownIDsDoNotWait: few unknown IDs are read or wait at the same time.
func TestRoutes_KnownIDsDoNotWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newConnectors(2)
		st.hold = make(chan struct{})
		r := newRouteCache(st, quiet())
		require.NoError(t, r.runOnce(t.Context()))
		strangers, ended := someKeys(maxStrangers), make(chan error, maxStrangers+1)
		for _, key := range strangers {
			go func() {
				_, err := r.loadRoute(t.Context(), key)
				ended <- err
			}()
		}
		synctest.Wait()
		require.Equal(t, maxStrangerReads, st.most)
		before := len(st.reads)
		_, err := r.loadRoute(t.Context(), someKeys(1)[0])
		refused(t, err, http.StatusServiceUnavailable, httpserver.CodeTooManyUnknown)
		require.Len(t, st.reads, before, "it costs nothing")
		go func() { // the same ID again waits for its own read
			_, err := r.loadRoute(t.Context(), strangers[0])
			ended <- err
		}()
		for _, key := range st.ids {
			route, err := r.loadRoute(t.Context(), key)
			require.NoError(t, err)
			require.Equal(t, key, route.Connector.Key())
		}
		synctest.Wait()
		close(st.hold)
		for range maxStrangers + 1 {
			require.ErrorIs(t, <-ended, store.ErrNotFound)
		}
		synctest.Wait()
		require.Equal(t, 2, st.reads[strangers[0]], "one read for both after the second arrived")
		require.Empty(t, r.reading)
		require.Zero(t, r.strangers)
		_, err = r.loadRoute(t.Context(), someKeys(1)[0])
		require.ErrorIs(t, err, store.ErrNotFound)
	})
}

// TestRoutes_LearnAllIDs: at the start, as soon as the store answers, and when hints about new
// connectors may be lost. Read or hinted IDs are known until one is found to be deleted.
func TestRoutes_LearnAllIDs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newConnectors(2*maxIDs + 1)
		st.set(errors.New("away"))
		r := newRouteCache(st, quiet())
		hints, ctx := make(chan store.Hint), t.Context()
		go r.refreshKnown(ctx)
		go r.followHints(hints)
		synctest.Wait()
		require.Equal(t, 1, st.pages)
		require.Empty(t, r.ids)
		st.set(nil)
		time.Sleep(idRetryPause)
		synctest.Wait()
		require.Equal(t, 1+3, st.pages)
		require.Len(t, r.ids, 2*maxIDs+1)

		unseen, seen, read := someKeys(1)[0], someKeys(1)[0], someKeys(1)[0]
		st.set(nil, unseen)
		hints <- store.Hint{}
		hints <- store.Hint{Topic: store.TopicRoute, Key: seen}
		synctest.Wait()
		require.Contains(t, r.ids, unseen)
		require.Contains(t, r.ids, seen)
		_, err := r.loadRoute(ctx, seen)
		require.ErrorIs(t, err, store.ErrNotFound)
		require.NotContains(t, r.ids, seen)
		st.set(nil, read)
		_, err = r.loadRoute(ctx, read)
		require.NoError(t, err)
		require.Contains(t, r.ids, read)
		close(hints)
	})
}

// TestRoutes_LostHintsKeepCache: the next commit detects a change. A hint drops its route only.
func TestRoutes_LostHintsKeepCache(t *testing.T) {
	t.Parallel()
	st := newConnectors(2)
	r := newRouteCache(st, quiet())
	for _, key := range st.ids {
		_, err := r.loadRoute(t.Context(), key)
		require.NoError(t, err)
	}
	hints := make(chan store.Hint, 2)
	hints <- store.Hint{}
	hints <- store.Hint{Topic: store.TopicRoute, Key: st.ids[0]}
	close(hints)
	r.followHints(hints)
	_, cached := r.cachedRoute(st.ids[0])
	require.False(t, cached)
	_, cached = r.cachedRoute(st.ids[1])
	require.True(t, cached)
	require.Len(t, r.lost, 1)
}

// TestRoutes_FullCacheEvictsOne: not all of them.
func TestRoutes_FullCacheEvictsOne(t *testing.T) {
	t.Parallel()
	r := newRouteCache(nil, quiet())
	for _, key := range someKeys(maxRoutes + 1) {
		r.remember(key, &routeRead{})
	}
	require.Equal(t, maxRoutes, r.cached.Len())
}
