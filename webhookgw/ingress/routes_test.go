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

// connectors is a store of routes whose reads wait until they are let go, and are
// counted.
type connectors struct {
	store.Routes
	mutex sync.Mutex
	ids   []store.Key
	hold  chan struct{} // nil holds nothing
	away  error
	reads map[store.Key]int
	most  int // reads at once
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
	return store.Route{Connector: store.Connector{ProjectID: key.ProjectID, ID: key.ID}}, err
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

// someKeys are n keys in their order.
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

// TestKnownIDsDoNotWaitForUnknownOnes: of which few are read at once, and few wait.
func TestKnownIDsDoNotWaitForUnknownOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newConnectors(2)
		st.hold = make(chan struct{})
		r := newRoutes(st, quiet())
		require.NoError(t, r.runOnce(t.Context()))
		strangers, ended := someKeys(maxStrangers), make(chan error, maxStrangers+1)
		for _, key := range strangers {
			go func() {
				_, err := r.load(t.Context(), key)
				ended <- err
			}()
		}
		synctest.Wait()
		require.Equal(t, maxStrangerReads, st.most)
		before := len(st.reads)
		_, err := r.load(t.Context(), someKeys(1)[0])
		refused(t, err, http.StatusServiceUnavailable, httpserver.CodeTooManyUnknown)
		require.Len(t, st.reads, before, "which costs nothing")
		go func() { // the same one again waits for a read of its own
			_, err := r.load(t.Context(), strangers[0])
			ended <- err
		}()
		for _, key := range st.ids {
			route, err := r.load(t.Context(), key)
			require.NoError(t, err)
			require.Equal(t, key, route.Connector.Key())
		}
		synctest.Wait()
		close(st.hold)
		for range maxStrangers + 1 {
			require.ErrorIs(t, <-ended, store.ErrNotFound)
		}
		synctest.Wait()
		require.Equal(t, 2, st.reads[strangers[0]], "one read after the second came")
		require.Empty(t, r.reading)
		require.Zero(t, r.strangers)
		_, err = r.load(t.Context(), someKeys(1)[0])
		require.ErrorIs(t, err, store.ErrNotFound)
	})
}

// TestTheIDsOfAllConnectorsAreKnown: from the start, as soon as the store answers,
// and again when connectors may have come unseen; and those that were read or that
// a hint names, until one is found to be gone.
func TestTheIDsOfAllConnectorsAreKnown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := newConnectors(2*maxIDs + 1)
		st.set(errors.New("away"))
		r := newRoutes(st, quiet())
		hints, ctx := make(chan store.Hint), t.Context()
		go r.run(ctx)
		go r.follow(hints)
		synctest.Wait()
		require.Equal(t, 1, st.pages)
		require.Empty(t, r.ids)
		st.set(nil)
		time.Sleep(learnAgain)
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
		_, err := r.load(ctx, seen)
		require.ErrorIs(t, err, store.ErrNotFound)
		require.NotContains(t, r.ids, seen)
		st.set(nil, read)
		_, err = r.load(ctx, read)
		require.NoError(t, err)
		require.Contains(t, r.ids, read)
		close(hints)
	})
}

// TestLostHintsLeaveTheRoutes: what changed is found at its next commit; a hint that
// names one forgets that one.
func TestLostHintsLeaveTheRoutes(t *testing.T) {
	t.Parallel()
	st := newConnectors(2)
	r := newRoutes(st, quiet())
	for _, key := range st.ids {
		_, err := r.load(t.Context(), key)
		require.NoError(t, err)
	}
	hints := make(chan store.Hint, 2)
	hints <- store.Hint{}
	hints <- store.Hint{Topic: store.TopicRoute, Key: st.ids[0]}
	close(hints)
	r.follow(hints)
	_, cached := r.peek(st.ids[0])
	require.False(t, cached)
	_, cached = r.peek(st.ids[1])
	require.True(t, cached)
	require.Len(t, r.lost, 1)
}

// TestAFullCacheForgetsOneRoute: not all of them.
func TestAFullCacheForgetsOneRoute(t *testing.T) {
	t.Parallel()
	r := newRoutes(nil, quiet())
	for _, key := range someKeys(maxRoutes + 1) {
		r.remember(key, &read{})
	}
	require.Equal(t, maxRoutes, r.cached.Len())
}
