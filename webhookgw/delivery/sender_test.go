// SPDX-License-Identifier: Apache-2.0

package delivery_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/internal/testenv/sqlitetest"
	"github.com/agentplatform/agentplatform/internal/testenv/webhooktest"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlite"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
	"github.com/agentplatform/agentplatform/webhookgw/delivery"
)

// keys is a test implementation that seals nothing.
type keys struct{ err error }

func (k keys) SigningSecret(keyID string, of secrets.Generated) (string, error) {
	return fmt.Sprintf("%s of %s, version %d", keyID, of.ConnectorID, of.Version), k.err
}

func (k keys) Open(field secrets.Field, sealed []byte) ([]byte, error) {
	plain, ok := strings.CutPrefix(string(sealed), field.ProjectID.String()+field.ObjectID.String()+field.Name)
	if !ok {
		return nil, secrets.ErrUnsealable
	}
	return []byte(plain), k.err
}

func (keys) SealingKey() string { return "key" }

// request is a request that the destination received.
type request struct {
	headers http.Header
	body    []byte
}

// sink is a destination.
type sink struct {
	*httptest.Server
	// answer handles the n-th request, from 1.
	answer func(w http.ResponseWriter, r *http.Request, n int)
	mutex  sync.Mutex
	got    []request
	came   chan struct{}
}

func newSink(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, n int)) *sink {
	t.Helper()
	s := &sink{answer: answer, came: make(chan struct{}, 1000)}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client has disconnected
		}
		webhooktest.Delivery(t, webhooktest.Result, r.Header, body)
		s.mutex.Lock()
		s.got = append(s.got, request{r.Header.Clone(), body})
		n := len(s.got)
		s.mutex.Unlock()
		s.came <- struct{}{}
		s.answer(w, r, n)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *sink) requests() []request {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return slices.Clone(s.got)
}

func answers(status int) func(http.ResponseWriter, *http.Request, int) {
	return func(w http.ResponseWriter, _ *http.Request, _ int) { w.WriteHeader(status) }
}

// scene has a project with an outbound connector, and a sender.
type scene struct {
	*storebench.Scene
	t         *testing.T
	connector store.Connector
	opts      delivery.Options
	// settled receives recorded attempts.
	settled chan []store.Attempt
}

// watched reports recorded attempts.
type watched struct {
	store.Store
	settled chan []store.Attempt
	failing *atomic.Int64 // number of records that fail
}

func (w watched) RecordAttempts(ctx context.Context, attempts []store.Attempt) error {
	if w.failing.Add(-1) >= 0 {
		return errors.New("the store is away")
	}
	err := w.Store.RecordAttempts(ctx, attempts)
	w.settled <- attempts
	return err
}

func newScene(t *testing.T, url, more string) *scene {
	t.Helper()
	st, err := sqlite.Open(t.Context(), sqlite.Options{Path: sqlitetest.Migrated(t), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, st.Close()) })
	s := &scene{Scene: storebench.NewScene(t, st, 1), t: t, settled: make(chan []store.Attempt, 1000)}
	id := uuid.New()
	s.connector = store.Connector{
		Ref: s.ref(store.KindConnector, "results"), ID: id, ProjectID: s.Project, EnvironmentID: s.Environment, Name: "results",
		Type: "webhook", Mode: "outbound", Enabled: true, Config: json.RawMessage(fmt.Sprintf(`{"url":%q%s}`, url, more)),
		Sealed:    []byte(s.Project.String() + id.String() + `credentials{"headers":{"Authorization":"Bearer theirs","user-agent":"theirs"}}`),
		SecretKey: "key", SecretVersion: 3,
	}
	require.NoError(t, st.PutConnector(t.Context(), s.connector))
	require.NoError(t, st.PutLink(t.Context(), store.Link{
		Ref: s.ref(store.KindConnectorLink, "results"), ID: uuid.New(), ProjectID: s.Project, ConnectorID: id,
		AgentName: s.Links[0].AgentName, Outbound: &store.OutboundPolicy{Mode: store.LinkAutomatic}, ObjectCreatedAt: time.UnixMicro(0),
	}))
	now := time.Now() // constant during a test, however slow the machine is
	s.opts = delivery.Options{
		Now:   func() time.Time { return now },
		Store: watched{st, s.settled, &atomic.Int64{}}, Keys: keys{}, Logger: slog.New(slog.DiscardHandler), Random: func() float64 { return 0.5 },
		Guard: egress.New(egress.Rules{Allowed: map[egress.Purpose][]netip.Prefix{egress.Webhook: {netip.MustParsePrefix("127.0.0.0/8")}}}),
	}
	return s
}

func (s *scene) ref(kind, name string) store.ObjectRef {
	return store.ObjectRef{Namespace: "project", Kind: kind, Name: name, ObjectUID: uuid.NewString(), Generation: 1}
}

// run sends until the test ends or the returned function is called.
func (s *scene) run() (stop func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	done := make(chan error, 1)
	go func() { done <- delivery.New(s.opts).Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(s.t, <-done)
	})
	s.t.Cleanup(stop)
	return stop
}

// recorded returns the next n recorded attempts.
func (s *scene) recorded(n int) (attempts []store.Attempt) {
	s.t.Helper()
	for len(attempts) < n {
		select {
		case more := <-s.settled:
			attempts = append(attempts, more...)
		case <-s.t.Context().Done():
			require.FailNow(s.t, "the test has ended")
		}
	}
	return attempts
}

func (s *scene) connectorRun(id uuid.UUID) store.ConnectorRun {
	s.t.Helper()
	run, err := s.Store.ConnectorRun(s.t.Context(), store.Key{ProjectID: s.Project, ID: id})
	require.NoError(s.t, err)
	return run
}

func TestSender_DeliversResult(t *testing.T) {
	t.Parallel()
	to := newSink(t, func(w http.ResponseWriter, _ *http.Request, _ int) { _, _ = w.Write([]byte("thanks")) })
	s := newScene(t, to.URL+"/results?a=b", "")
	s.run()
	s.Trip(t.Context(), t)
	a := s.recorded(1)[0]
	require.Equal(t, store.DeliveryDone, a.Outcome)
	got := to.requests()
	require.Len(t, got, 1)
	var body map[string]any
	require.NoError(t, json.Unmarshal(got[0].body, &body))
	run, err := s.Store.Run(t.Context(), store.Key{ProjectID: s.Project, ID: a.Delivery.RunID})
	require.NoError(t, err)
	require.Equal(t, map[string]any{
		"run_id": run.ID.String(), "agent_name": "hello-0", "status": "completed", "output": "hello", "finish_reason": nil, "error": nil,
		"started_at": run.StartedAt.Format(time.RFC3339Nano), "ended_at": run.EndedAt.Format(time.RFC3339Nano),
		"token_usage": map[string]any{"input_tokens": 0.0, "output_tokens": 0.0, "thinking_tokens": 0.0, "cached_input_tokens": 0.0, "total_tokens": 0.0},
	}, body)
	require.Equal(t, "Bearer theirs", got[0].headers.Get("Authorization"))
	require.Equal(t, "theirs", got[0].headers.Get("User-Agent"))
	require.Equal(t, "application/json", got[0].headers.Get("Content-Type"))
	require.Equal(t, a.Delivery.ID.String(), got[0].headers.Get("X-Service-Delivery"))
	require.NotEmpty(t, got[0].headers.Get("X-Service-Signature"))
	require.Equal(t, store.ConnectorRunCompleted, s.connectorRun(a.Delivery.ID).Status)
	past, _, err := s.Store.Attempts(t.Context(), a.Delivery.Key())
	require.NoError(t, err)
	require.Len(t, past, 1)
	require.Equal(t, "thanks", past[0].Response)
	require.Equal(t, 200, past[0].StatusCode)
}

func TestSender_RetriesUntilAccepted(t *testing.T) {
	t.Parallel()
	to := newSink(t, func(w http.ResponseWriter, _ *http.Request, n int) {
		if n < 3 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	s := newScene(t, to.URL, `,"retry":{"schedule_seconds":[0,0,0,0]}`)
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	var clock atomic.Int64
	s.opts.Now = func() time.Time { return now.Add(time.Duration(clock.Add(1)) * time.Second) }
	s.run()
	s.Trip(t.Context(), t)
	attempts := s.recorded(3)
	got, signed := to.requests(), map[string]bool{}
	require.Len(t, got, 3)
	for i, r := range got {
		require.Equal(t, attempts[0].Delivery.ID.String(), r.headers.Get("X-Service-Delivery"))
		require.Equal(t, got[0].body, r.body)
		signed[r.headers.Get("X-Service-Signature")] = true
		require.Equal(t, i+1, attempts[i].Delivery.Attempt)
	}
	require.Len(t, signed, 3, "each attempt has a new signature")
	require.Equal(t, store.ConnectorRunCompleted, s.connectorRun(attempts[0].Delivery.ID).Status)
}

func TestSender_MisbehavingDestinations(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer  func(w http.ResponseWriter, r *http.Request, n int)
		outcome store.DeliveryOutcome
		class   string
		status  int
	}{
		"refuses":     {answers(http.StatusBadRequest), store.DeliveryFailed, "http_status", 400},
		"returns 410": {answers(http.StatusGone), store.DeliveryGone, "http_status", 410},
		"redirects": {func(w http.ResponseWriter, r *http.Request, _ int) {
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		}, store.DeliveryFailed, "redirect", 302},
		"hangs":    {func(_ http.ResponseWriter, r *http.Request, _ int) { <-r.Context().Done() }, store.DeliveryFailed, "timeout", 0},
		"hangs up": {func(http.ResponseWriter, *http.Request, int) { panic(http.ErrAbortHandler) }, store.DeliveryFailed, "reset", 0},
		"endless response": {func(w http.ResponseWriter, r *http.Request, _ int) {
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		}, store.DeliveryDone, "", 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := newSink(t, c.answer)
			s := newScene(t, to.URL, `,"retry":{"max_attempts":1}`)
			if c.class == "timeout" {
				s.opts.WithTimeout = func(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
					return context.WithTimeout(ctx, 100*time.Millisecond)
				}
			}
			s.run()
			s.Trip(t.Context(), t)
			a := s.recorded(1)[0]
			require.Equal(t, c.outcome, a.Outcome, a.Error)
			require.Equal(t, c.class, a.ErrorClass)
			require.Equal(t, c.status, a.StatusCode)
			require.LessOrEqual(t, len(a.Response), store.MaxExcerpt)
			require.LessOrEqual(t, len(to.requests()), 1)
			require.NotContains(t, a.Error, "127.0.0.1", "the error contains no address")
		})
	}
}

func TestSender_UnsendableDeliveries(t *testing.T) {
	t.Parallel()
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	open := newSink(t, answers(http.StatusOK))
	for name, c := range map[string]struct {
		url   string
		spoil func(s *scene)
		class string
	}{
		"connection refused":  {closed.URL, func(*scene) {}, "refused"},
		"no such name":        {"https://no-such-name.invalid/", func(*scene) {}, "dns"},
		"a forbidden address": {open.URL, func(s *scene) { s.opts.Guard = egress.New(egress.Rules{}) }, "forbidden_address"},
		"plain text for TLS":  {strings.Replace(open.URL, "http:", "https:", 1), func(*scene) {}, "tls"},
		"no url":              {"nowhere", func(*scene) {}, "connector"},
		"invalid header": {open.URL, func(s *scene) {
			s.connector.Sealed = []byte(s.Project.String() + s.connector.ID.String() + `credentials{"headers":{"Authorization":"Bearer theirs\n"}}`)
			require.NoError(s.t, s.Store.PutConnector(s.t.Context(), s.connector))
		}, "connector"},
		"sealed for another connector": {open.URL, func(s *scene) {
			s.connector.Sealed = []byte("whatever")
			require.NoError(s.t, s.Store.PutConnector(s.t.Context(), s.connector))
		}, "connector"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, c.url, `,"retry":{"max_attempts":1}`)
			c.spoil(s)
			s.run()
			s.Trip(t.Context(), t)
			a := s.recorded(1)[0]
			require.Equal(t, c.class, a.ErrorClass, a.Error)
			if c.class == "forbidden_address" {
				require.Equal(t, "the destination's address is not allowed; the platform operator can open it for the egress purpose webhook", a.Error)
			}
			require.NotEqual(t, store.DeliveryDone, a.Outcome)
			if a.Outcome == store.DeliveryFailed {
				require.Equal(t, store.ConnectorRunFailed, s.connectorRun(a.Delivery.ID).Status)
			}
		})
	}
}

func TestSender_RetriesRecord(t *testing.T) {
	t.Parallel()
	to := newSink(t, answers(http.StatusOK))
	s := newScene(t, to.URL, "")
	s.opts.Store.(watched).failing.Store(1)
	s.run()
	s.Trip(t.Context(), t)
	require.Equal(t, store.DeliveryDone, s.recorded(1)[0].Outcome)
	require.Len(t, to.requests(), 1, "and not sent again")
}

// spoilt is a store where each batch sets one row aside and processes the others.
type spoilt struct{ delivery.Store }

func (s spoilt) PostDeliveries(ctx context.Context, limit int) (int, error) {
	n, err := s.Store.PostDeliveries(ctx, limit)
	if err == nil && n > 0 {
		err = fmt.Errorf("creating deliveries: %w", &store.SetAsideError{Rows: []error{errors.New("the failing row")}})
	}
	return n, err
}

// TestSender_SkipsRowsSetAside: a row that is set aside is logged, and causes no backoff.
func TestSender_SkipsRowsSetAside(t *testing.T) {
	t.Parallel()
	to := newSink(t, answers(http.StatusOK))
	s := newScene(t, to.URL, "")
	s.opts.Store = spoilt{s.opts.Store}
	var said bytes.Buffer
	s.opts.Logger = slog.New(slog.NewTextHandler(&said, nil))
	stop := s.run()
	s.Trip(t.Context(), t)
	s.recorded(1)
	stop()
	require.Contains(t, said.String(), "some are set aside")
	require.NotContains(t, said.String(), `msg="creating deliveries of results"`)
}

func TestSender_StopEndsAttempts(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	to := newSink(t, func(http.ResponseWriter, *http.Request, int) { <-release })
	s := newScene(t, to.URL, "")
	stop := s.run()
	s.Trip(t.Context(), t)
	<-to.came
	go func() { close(release) }()
	stop()
	require.Equal(t, store.DeliveryDone, s.recorded(1)[0].Outcome, "it was recorded before the sender ended")
}

// TestSender_MissingOutputFails: a missing output is not retried, because it does not come back.
func TestSender_MissingOutputFails(t *testing.T) {
	t.Parallel()
	s := newScene(t, "https://a.example", "")
	s.opts.Store = largeStore{s.opts.Store}
	s.run()
	s.Trip(t.Context(), t)
	a := s.recorded(1)[0]
	require.Equal(t, store.DeliveryCancelled, a.Outcome)
	require.Equal(t, "erased", a.ErrorClass)
	require.Equal(t, store.ConnectorRunCancelled, s.connectorRun(a.Delivery.ID).Status)
}
