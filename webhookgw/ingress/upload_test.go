// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/quota"
	"github.com/agentplatform/agentplatform/internal/testenv/memtest"
	"github.com/agentplatform/agentplatform/internal/testenv/webhooktest"
	"github.com/agentplatform/agentplatform/store"
)

// keeper is a store with one connector, by default without authentication, that keeps all data.
type keeper struct {
	Store
	change  func(*store.Connector) // nil for no change
	mode    string
	verdict store.Verdict
	known   bool          // whether keys are known
	keep    bool          // whether blob contents are kept
	started chan struct{} // receives a value at the first part of a blob, unless nil
	store   error         // error of storing blobs
	mutex   sync.Mutex
	events  []store.Event
	blobs   map[uuid.UUID][]byte // complete blobs
	begun   int
	dropped int          // number of dropped blobs
	files   []store.File // of earlier events
	// filesErr is the error of reading files.
	filesErr error
}

// RecordRejections does nothing.
func (*keeper) RecordRejections(context.Context, []store.Rejected) error { return nil }

func (k *keeper) Route(_ context.Context, key store.Key) (store.Route, error) {
	c := store.Connector{ProjectID: key.ProjectID, ID: key.ID, Type: "webhook", Mode: k.mode, Enabled: true, Config: []byte(`{"authentication":"none"}`)}
	if k.change != nil {
		k.change(&c)
	}
	return store.Route{Connector: c, Links: []store.Link{{ID: uuid.New(), AgentName: "hello"}}, Live: true}, nil
}

func (*keeper) ConnectorIDs(context.Context, store.Key, int) ([]store.Key, error) { return nil, nil }

func (*keeper) Subscribe(store.Topic) (<-chan store.Hint, func()) {
	hints := make(chan store.Hint)
	return hints, func() { close(hints) }
}

func (k *keeper) KnownKey(context.Context, store.Key, string) (bool, error) { return k.known, nil }

func (k *keeper) EventFiles(context.Context, store.Key) ([]store.File, error) {
	return k.files, k.filesErr
}

func (k *keeper) Accept(_ context.Context, events []store.Event) ([]store.Admission, error) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	k.events = append(k.events, events...)
	out, err := acceptAll(events)
	for i := range out {
		out[i].Verdict = k.verdict
	}
	return out, err
}

func (k *keeper) PutBlob(_ context.Context, key store.Key, r io.Reader) (int64, error) {
	k.mutex.Lock()
	k.begun++
	k.mutex.Unlock()
	if k.store != nil {
		return 0, k.store
	}
	var kept bytes.Buffer
	to := io.Discard
	if k.keep {
		to = &kept
	}
	size, err := io.CopyN(to, r, 2*store.MaxInlineInput)
	if k.started != nil {
		close(k.started)
	}
	if err == nil {
		var rest int64
		rest, err = io.Copy(to, r)
		size += rest
	}
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // as readers of blobs do
		k.mutex.Lock()
		defer k.mutex.Unlock()
		k.blobs[key.ID] = kept.Bytes()
		return size, nil
	}
	return size, err
}

// serving returns a handler with a keeper that commits until the test ends.
func serving(t *testing.T, k *keeper) *Handler {
	t.Helper()
	if k.mode == "" {
		k.mode = "inbound"
	}
	k.blobs = map[uuid.UUID][]byte{}
	return servingStore(t, k)
}

func servingStore(t *testing.T, st Store) *Handler {
	t.Helper()
	h := New(Options{Store: st, Logger: quiet()})
	h.Handler = webhooktest.Handler(t, h.Handler)
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	return h
}

// project is the project of the webhooks.
var project = uuid.New()

// post sends a body of unknown length and returns the response with its problem.
func post(t *testing.T, h http.Handler, body io.Reader, header ...string) (*httptest.ResponseRecorder, httpserver.Problem) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/hooks/"+project.String()+"/"+uuid.NewString(), io.NopCloser(body))
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	var p httpserver.Problem
	if w.Code >= http.StatusBadRequest {
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
	}
	return w, p
}

// object returns a JSON body of the given size.
func object(size int) string { return `{"a":"` + strings.Repeat("x", size-len(`{"a":""}`)) + `"}` }

// TestUpload_StoresWhileReading: the body is stored and hashed by the time of its end.
func TestUpload_StoresWhileReading(t *testing.T) {
	t.Parallel()
	k := &keeper{keep: true, started: make(chan struct{})}
	h := serving(t, k)
	text := object(300 << 10)
	r, w := io.Pipe()
	go func() {
		_, _ = io.WriteString(w, text[:200<<10])
		<-k.started
		_, _ = io.WriteString(w, text[200<<10:])
		_ = w.Close()
	}()
	answer, _ := post(t, h, r, "Idempotency-Key", "k")
	require.Equal(t, http.StatusOK, answer.Code)
	require.Len(t, k.events, 1)
	e := k.events[0]
	require.Nil(t, e.Input)
	require.Equal(t, text, string(k.blobs[*e.InputBlob]))
	sum := sha256.Sum256([]byte(text))
	require.Equal(t, sum[:], e.Idempotency.Fingerprint)
	require.Zero(t, h.bodies.Taken())
}

// TestUpload_LargeBodyUsesLittleMemory: for every outcome.
func TestUpload_LargeBodyUsesLittleMemory(t *testing.T) { // not parallel, because it measures memory
	for name, k := range map[string]*keeper{"stored": {}, "known": {known: true, verdict: store.Repeated}} {
		t.Run(name, func(t *testing.T) {
			h, body := serving(t, k), object(MaxBody)
			memtest.AtMost(t, MaxBody/16, func() {
				answer, _ := post(t, h, strings.NewReader(body), "webhook-id", "m")
				require.Equal(t, http.StatusOK, answer.Code)
			}, name)
		})
	}
}

// broken ends with an error.
type broken struct{ err error }

func (b broken) Read([]byte) (int, error) { return 0, b.err }

// TestUpload_LargeBodyErrors: the error is that of a small body, no complete blob is stored, and
// nothing is committed.
func TestUpload_LargeBodyErrors(t *testing.T) {
	t.Parallel()
	half := object(200 << 10)[:150<<10]
	for name, c := range map[string]struct {
		body   io.Reader
		header []string
		status int
		code   httpserver.Code
	}{
		"invalid at its end":        {strings.NewReader(half), nil, 400, httpserver.CodeInvalidJSON},
		"invalid at its beginning":  {strings.NewReader("x" + half), nil, 400, httpserver.CodeInvalidJSON},
		"no object":                 {strings.NewReader("[" + object(200<<10) + "]"), nil, 400, httpserver.CodeInvalidJSON},
		"too large":                 {strings.NewReader(object(MaxBody + 1)), nil, 413, httpserver.CodeRequestTooLarge},
		"invalid, but too large":    {strings.NewReader("x" + object(MaxBody)), nil, 413, httpserver.CodeRequestTooLarge},
		"incomplete":                {io.MultiReader(strings.NewReader(half), broken{io.ErrUnexpectedEOF}), nil, 400, httpserver.CodeBodyUnreadable},
		"too slow":                  {io.MultiReader(strings.NewReader(half), broken{fmt.Errorf("x: %w", os.ErrDeadlineExceeded)}), nil, 408, httpserver.CodeTimeout},
		"small and too slow":        {io.MultiReader(strings.NewReader("{"), broken{os.ErrDeadlineExceeded}), nil, 408, httpserver.CodeTimeout},
		"with a bad key":            {strings.NewReader(object(200 << 10)), []string{"Idempotency-Key", "\x01"}, 400, httpserver.CodeKeyInvalid},
		"with a bad key and broken": {strings.NewReader(half), []string{"Idempotency-Key", "\x01"}, 400, httpserver.CodeInvalidJSON},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := &keeper{}
			h := serving(t, k)
			answer, p := post(t, h, c.body, c.header...)
			require.Equal(t, c.status, answer.Code)
			require.Equal(t, c.code, p.Code)
			require.Equal(t, c.status == 408, answer.Header().Get("Connection") == "close")
			if c.status != 400 || p.Code != httpserver.CodeInvalidJSON { // an error that may only show with its last byte
				require.Empty(t, k.blobs)
			}
			require.Empty(t, k.events)
			require.Zero(t, h.bodies.Taken())
		})
	}
}

// timed records whether reads have deadlines.
type timed struct {
	*httptest.ResponseRecorder
	bounded int
	free    bool
}

func (d *timed) SetReadDeadline(at time.Time) error {
	if d.free = at.IsZero(); !d.free {
		d.bounded++
	}
	return nil
}

// TestUpload_RequiresPace: also for a small body. The rest of the connection has no limit.
func TestUpload_RequiresPace(t *testing.T) {
	t.Parallel()
	h := serving(t, &keeper{})
	for _, size := range []int{100, store.MaxInlineInput, store.MaxInlineInput + 1} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/hooks/"+project.String()+"/"+uuid.NewString(), strings.NewReader(object(size)))
		r.Header.Set("Content-Type", "application/json")
		w := &timed{ResponseRecorder: httptest.NewRecorder()}
		h.ServeHTTP(w, r)
		require.Equal(t, http.StatusOK, w.Code)
		require.Positive(t, w.bounded)
		require.True(t, w.free)
	}
}

// TestUpload_ShareOfIncomingBytes: in bytes. The smallest body counts too, before any of it
// arrives.
func TestUpload_ShareOfIncomingBytes(t *testing.T) {
	t.Parallel()
	h := serving(t, &keeper{})
	r, w := io.Pipe()
	came := make(chan struct{})
	go func() {
		defer close(came)
		answer, _ := post(t, h, r)
		require.Equal(t, http.StatusOK, answer.Code)
	}()
	_, err := io.WriteString(w, "{") // it is being read
	require.NoError(t, err)
	rest := int64(maxIncoming/projectShare - store.MaxInlineInput)
	require.Equal(t, quota.ErrProjectLimit, h.incoming.Take(project, rest+1))
	require.NoError(t, h.incoming.Take(project, rest))
	_, p := post(t, h, strings.NewReader(`{}`))
	refused(t, withRetry(p), http.StatusTooManyRequests, httpserver.CodeTooManyWaiting)
	require.NoError(t, h.incoming.Take(uuid.New(), rest), "other projects have their share")
	_, err = io.WriteString(w, "}")
	require.NoError(t, err)
	require.NoError(t, w.Close())
	<-came
	answer, _ := post(t, h, strings.NewReader(`{}`))
	require.Equal(t, http.StatusOK, answer.Code)
	h.incoming.Give(project, rest)
	fill(h.incoming, maxIncoming)
	_, p = post(t, h, strings.NewReader(`{}`))
	refused(t, withRetry(p), http.StatusServiceUnavailable, httpserver.CodeBusy)

	for length, want := range map[int64]int64{-1: 64 << 10, 0: 8 << 10, 10_000: 10_000, 1 << 30: 64 << 10} {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			require.Equal(t, want, incomingBytes(&http.Request{ContentLength: length}))
		})
	}
}

// TestUpload_StoreError: the request is not committed.
func TestUpload_StoreError(t *testing.T) {
	t.Parallel()
	k := &keeper{store: errors.New("away")}
	h := serving(t, k)
	answer, p := post(t, h, strings.NewReader(object(200<<10)))
	require.Equal(t, http.StatusServiceUnavailable, answer.Code)
	require.Equal(t, httpserver.CodeStoreUnavailable, p.Code)
	require.Empty(t, k.events)
	require.Zero(t, h.bodies.Taken())
}

// TestUpload_KnownKeyStoresNothing: the body is only hashed. If the key expires at this moment, the
// caller sends the body again.
func TestUpload_KnownKeyStoresNothing(t *testing.T) {
	t.Parallel()
	for verdict, status := range map[store.Verdict]int{
		store.Repeated: http.StatusOK, store.KeyReused: http.StatusUnprocessableEntity, store.Expired: http.StatusServiceUnavailable,
	} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			k := &keeper{known: true, verdict: verdict}
			h := serving(t, k)
			text := object(200 << 10)
			answer, _ := post(t, h, strings.NewReader(text), "Idempotency-Key", "k")
			require.Equal(t, status, answer.Code)
			require.Equal(t, status == http.StatusServiceUnavailable, answer.Header().Get("Retry-After") != "")
			require.Zero(t, k.begun)
			require.Len(t, k.events, 1)
			sum := sha256.Sum256([]byte(text))
			require.Equal(t, sum[:], k.events[0].Idempotency.Fingerprint)
			require.True(t, k.events[0].Repeat)
			require.Nil(t, k.events[0].Input)
			require.Nil(t, k.events[0].InputBlob)
		})
	}
	k := &keeper{known: true}
	answer, _ := post(t, serving(t, k), strings.NewReader(`{}`), "Idempotency-Key", "k")
	require.Equal(t, http.StatusOK, answer.Code)
	require.False(t, k.events[0].Repeat, "a small body is stored and compared in the store")
	require.Equal(t, `{}`, string(k.events[0].Input))
}

// TestUpload_ShareOfLargeBodies: small bodies are not affected.
func TestUpload_ShareOfLargeBodies(t *testing.T) {
	t.Parallel()
	k := &keeper{}
	h := serving(t, k)
	for range maxLargeBodies / projectShare {
		require.NoError(t, h.bodies.Take(project, 1))
	}
	_, p := post(t, h, strings.NewReader(object(200<<10)))
	refused(t, withRetry(p), http.StatusTooManyRequests, httpserver.CodeTooManyLargeBodies)
	h.bodies.Give(project, 1)
	fill(h.bodies, 1)
	_, p = post(t, h, strings.NewReader(object(200<<10)))
	refused(t, withRetry(p), http.StatusServiceUnavailable, httpserver.CodeBusy)
	answer, _ := post(t, h, strings.NewReader(`{}`))
	require.Equal(t, http.StatusOK, answer.Code)
	require.Zero(t, k.begun)
}

// withRetry returns a problem before it is written, when its time is not yet a header.
func withRetry(p httpserver.Problem) httpserver.Problem {
	p.RetryAfter = retryAfter
	return p
}

// DropBlob implements Store.
func (k *keeper) DropBlob(_ context.Context, key store.Key) error {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	k.dropped++
	return nil
}

// TestUpload_DropsUnusedBodies: of requests that are rejected, not stored completely, not
// committed, or duplicates.
func TestUpload_DropsUnusedBodies(t *testing.T) {
	t.Parallel()
	whole := object(200 << 10)
	for name, c := range map[string]struct {
		keeper  *keeper
		body    string
		dropped int
	}{
		"an event":  {&keeper{}, whole, 0},
		"no JSON":   {&keeper{}, whole[:len(whole)-1] + "!", 1},
		"too large": {&keeper{}, object(MaxBody + 1), 1},
		"store":     {&keeper{store: errors.New("away")}, whole, 1},
		"duplicate": {&keeper{verdict: store.Repeated}, whole, 1},
	} {
		t.Run(name, func(t *testing.T) {
			k := c.keeper
			answer, _ := post(t, serving(t, k), strings.NewReader(c.body), "Idempotency-Key", "k")
			require.Equal(t, c.dropped == 0 || name == "duplicate", answer.Code == http.StatusOK)
			require.Equal(t, 1, k.begun)
			require.Equal(t, c.dropped, k.dropped)
		})
	}
}
