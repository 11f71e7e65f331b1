// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// hinted is a history with connectors whose hints are lost.
type hinted struct {
	*history
	*connectors
}

func (h hinted) ConnectorIDs(ctx context.Context, after store.Key, limit int) ([]store.Key, error) {
	return h.connectors.ConnectorIDs(ctx, after, limit)
}

func (h hinted) Route(ctx context.Context, key store.Key) (store.Route, error) {
	return h.connectors.Route(ctx, key)
}

func (hinted) Subscribe(store.Topic) (<-chan store.Hint, func()) {
	hints := make(chan store.Hint)
	return hints, func() { close(hints) }
}

// TestHandler_Run: it learns the connector IDs and finds ended runs, and ends all its work when it
// stops.
func TestHandler_Run(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		st := hinted{&history{over: map[store.Key]bool{}}, newConnectors(3)}
		h := New(Options{Store: st, Logger: quiet()})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- h.Run(ctx) }()
		synctest.Wait()
		require.Len(t, h.routes.ids, 3)
		made, kept := stamped()
		answered := h.await(ctx, made, kept)
		st.end(kept, nil)
		begin := time.Now()
		require.NoError(t, soon(t, answered))
		require.LessOrEqual(t, time.Since(begin), endedPollInterval, "bubble time")
		stop()
		require.NoError(t, soon(t, ended))
	})
}

// TestHandler_ConnectorDisabledDuringLargeBody: the caller gets the reason, and the blob of the body is dropped.
func TestHandler_ConnectorDisabledDuringLargeBody(t *testing.T) {
	t.Parallel()
	g := newGitHub(t)
	gitHub, reads := g.keeper.change, 0
	g.keeper.verdict = store.Outdated
	g.keeper.change = func(c *store.Connector) {
		gitHub(c)
		reads++
		c.Enabled = reads == 1
	}
	status, code := g.post(t, "one", `{"a":"`+strings.Repeat("x", store.MaxInlineInput)+`"}`, nil)
	require.Equal(t, http.StatusConflict, status)
	require.Equal(t, httpserver.CodeConnectorDisabled, code)
	require.Equal(t, 1, g.keeper.dropped)
}

// TestHandler_CommitsDespiteRouteChanges: a request is recorded although deployments keep changing
// the route, for as long as a transaction can take.
func TestHandler_CommitsDespiteRouteChanges(t *testing.T) {
	t.Parallel()
	g := newGitHub(t)
	gitHub, reads := g.keeper.change, 0
	g.keeper.change = func(c *store.Connector) {
		g.keeper.verdict = store.Outdated
		if reads++; reads > 50 {
			g.keeper.verdict = store.Accepted
		}
		gitHub(c)
	}
	status, _ := g.post(t, "one", "{}", nil)
	require.Equal(t, http.StatusOK, status)
	require.Len(t, g.keeper.events, 51)

	g.keeper.verdict = store.Outdated
	g.keeper.change = func(c *store.Connector) {
		g.clock.Add(1)
		gitHub(c)
	}
	status, code := g.post(t, "one", "{}", nil)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, httpserver.CodeStoreUnavailable, code)
	require.EqualValues(t, routeRetryTime/time.Second, g.clock.Load())
}
