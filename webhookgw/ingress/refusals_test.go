// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/testenv/webhooktest"
	"github.com/agentplatform/agentplatform/store"
)

// oneRoute is a store with one inbound connector whose secret is unknown to the callers.
type oneRoute struct {
	Store
	key store.Key
}

// RecordRejections does nothing.
func (oneRoute) RecordRejections(context.Context, []store.Rejected) error { return nil }

func (s oneRoute) Route(_ context.Context, key store.Key) (store.Route, error) {
	if key != s.key {
		return store.Route{}, store.ErrNotFound
	}
	return store.Route{Connector: store.Connector{
		ProjectID: key.ProjectID, ID: key.ID, Type: "webhook", Mode: "inbound", Enabled: true, Config: []byte(`{}`),
	}}, nil
}

// TestRefusals_AreCountedByAddress: the address of a trusted proxy's header counts. There is one
// log line a minute.
func TestRefusals_AreCountedByAddress(t *testing.T) {
	t.Parallel()
	proxies, err := httpserver.ParseProxies("10.0.0.0/8")
	require.NoError(t, err)
	var out bytes.Buffer
	clock, key := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), store.Key{ProjectID: uuid.New(), ID: uuid.New()}
	h := New(Options{
		Store: oneRoute{key: key}, TrustedProxies: proxies, Logger: slog.New(slog.NewTextHandler(&out, nil)),
		Now: func() time.Time { return clock },
	})
	h.Handler = webhooktest.Handler(t, h.Handler)
	post := func(path string) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader("{}"))
		r.RemoteAddr = "10.0.0.1:1"
		r.Header.Set("X-Forwarded-For", "198.51.100.7")
		r.Header.Set("X-Service-Secret", "CANARY")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code
	}
	known := "/hooks/" + key.String()
	require.Equal(t, http.StatusUnauthorized, post(known))
	require.Equal(t, http.StatusNotFound, post("/hooks/"+uuid.NewString()+"/"+key.ID.String()))
	require.Equal(t, http.StatusNotFound, post("/hooks/nonsense/"+key.ID.String()))
	require.Equal(t, http.StatusNotFound, post("/elsewhere"))
	require.Equal(t, 1, strings.Count(out.String(), "\n"), out.String())
	require.Contains(t, out.String(), "address=198.51.100.7 count=1 reasons.invalid_secret=1")
	clock = clock.Add(time.Minute)
	require.Equal(t, http.StatusUnauthorized, post(known))
	require.Equal(t, 2, strings.Count(out.String(), "\n"), out.String())
	require.Contains(t, out.String(), "address=198.51.100.7 count=3 reasons.webhook_not_found=3")
	require.NotContains(t, out.String(), "CANARY")
}
