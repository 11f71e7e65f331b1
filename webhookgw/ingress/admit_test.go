// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/connector"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/webhookapi"
	"github.com/agentplatform/agentplatform/store"
)

// TestAccepted_LatestExpiryWins: the commit asserts that the secret is still valid, so it must get
// the one that expires last.
func TestAccepted_LatestExpiryWins(t *testing.T) {
	t.Parallel()
	entry := func(secret string, notAfter time.Time) store.AcceptedSecret {
		digest := sha256.Sum256([]byte(secret))
		s := store.AcceptedSecret{SHA256: digest[:]}
		if !notAfter.IsZero() {
			s.NotAfter = &notAfter
		}
		return s
	}
	known := []store.AcceptedSecret{
		entry("old", time.Unix(1, 0)), entry("current", time.Time{}), entry("older", time.Unix(0, 0)), entry("", time.Time{}),
	}
	for sent, want := range map[string]int{
		"current": 1, "old": 0, "older": 2, "x,current,x": 1, "old,current": 1, "current,old": 1,
		"older,old": 0, "old,older": 0, "x,older": 2, "x,y,z": -1,
	} {
		t.Run(sent, func(t *testing.T) {
			got := matchingSecret(known, strings.Split(sent, ","))
			if want < 0 {
				require.Nil(t, got)
			} else {
				require.Same(t, &known[want], got, sent)
			}
		})
	}
	require.Nil(t, matchingSecret(known, nil))
}

// counted counts the reads of a route.
type counted struct {
	oneRoute
	reads *atomic.Int64
}

func (s counted) Route(ctx context.Context, key store.Key) (store.Route, error) {
	s.reads.Add(1)
	return s.oneRoute.Route(ctx, key)
}

func TestAdmit_WrongSecretsReadRouteOnce(t *testing.T) {
	t.Parallel()
	key := store.Key{ProjectID: uuid.New(), ID: uuid.New()}
	s := counted{oneRoute{key: key}, new(atomic.Int64)}
	h := New(Options{Store: s, Logger: slog.New(slog.DiscardHandler)})
	for n := range int64(3) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/hooks/"+key.String()+"?secret=c", strings.NewReader("{}"))
		r.Header.Set("X-Service-Secret", "a")
		r.Header.Set("Authorization", "Bearer b")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		require.Equal(t, http.StatusUnauthorized, w.Code)
		require.Equal(t, n+1, s.reads.Load())
	}
}

// TestAdmit_DetectsLoops: a delivery that triggers a delivery, and so on, is rejected at the limit.
// The number of hops is stored with the event.
func TestAdmit_DetectsLoops(t *testing.T) {
	t.Parallel()
	route := &webhook{Route: store.Route{Connector: store.Connector{Enabled: true}}, kind: connector.Inbound}
	for hops, code := range map[string]httpserver.Code{"": "", "8": "", "x": "", "1001": "", "9": httpserver.CodeTooManyHops, "1000": httpserver.CodeTooManyHops} {
		t.Run(hops, func(t *testing.T) {
			f := requestFacts{header: http.Header{}}
			f.header.Set(webhookapi.HopsHeader, hops)
			problem := admitRequest(route, f)
			if code == "" {
				require.Nil(t, problem)
				return
			}
			require.Equal(t, code, problem.Code)
			require.Equal(t, http.StatusUnprocessableEntity, problem.Status)
		})
	}
	route.Connector.Enabled = false
	require.Equal(t, httpserver.CodeConnectorDisabled, admitRequest(route, requestFacts{header: http.Header{webhookapi.HopsHeader: {"9"}}}).Code)
	event, err := newEvent(route, request{facts: requestFacts{header: http.Header{webhookapi.HopsHeader: {"7"}}}})
	require.NoError(t, err)
	require.Equal(t, 7, event.Hops)
}
