// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/internal/testenv/memtest"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/webhookgw/signature"
)

// plain has keys that seal nothing.
type plain struct{ Keys }

func (plain) Open(_ secrets.Field, sealed []byte) ([]byte, error) { return sealed, nil }

// gitHub is a handler with a GitHub connector, its current secret, and a clock.
type gitHub struct {
	*Handler
	keeper *keeper
	key    store.Key
	secret atomic.Value
	clock  atomic.Int64
}

func newGitHub(t *testing.T) *gitHub {
	t.Helper()
	g := &gitHub{keeper: &keeper{mode: "inbound", keep: true, blobs: map[uuid.UUID][]byte{}}, key: store.Key{ProjectID: project, ID: uuid.New()}}
	g.secret.Store("one")
	g.keeper.change = func(c *store.Connector) {
		secret := g.secret.Load().(string)
		raw, err := secrets.Credentials{Secrets: []string{secret}}.JSON()
		if err == nil {
			c.Sealed, c.Secrets = raw, []store.AcceptedSecret{{SHA256: secrets.Digest(secret)}}
		}
		c.Config = []byte(`{"authentication":"github"}`)
	}
	h := New(Options{Store: g.keeper, Keys: plain{}, Logger: quiet(), Now: func() time.Time { return time.Unix(g.clock.Load(), 0) }})
	g.Handler = h
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	return g
}

// request returns a signed request with a JSON body.
func (g *gitHub) request(t *testing.T, secret, text string, body io.Reader) *http.Request {
	t.Helper()
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(text))
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/hooks/"+g.key.String(), body)
	r.ContentLength = int64(len(text))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
	return r
}

// post sends a signed body and returns the status and the error code.
func (g *gitHub) post(t *testing.T, secret, text string, edit func(*http.Request)) (int, httpserver.Code) {
	t.Helper()
	r := g.request(t, secret, text, io.NopCloser(strings.NewReader(text)))
	if edit != nil {
		edit(r)
	}
	w := httptest.NewRecorder()
	g.ServeHTTP(w, r)
	var p struct{ Code httpserver.Code }
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &p))
	require.Zero(t, g.incoming.Taken())
	require.Zero(t, g.bodies.Taken())
	require.Zero(t, g.spooled.Taken())
	require.Empty(t, g.wrongs.reading)
	return w.Code, p.Code
}

// TestSigned_OutdatedCacheRejectsNothing: the current secret decides, even if a lost hint left an
// old one in the cache.
func TestSigned_OutdatedCacheRejectsNothing(t *testing.T) {
	t.Parallel()
	g := newGitHub(t)
	small, large := `{"a":1}`, object(100<<10)
	status, _ := g.post(t, "one", small, nil)
	require.Equal(t, http.StatusOK, status)
	g.secret.Store("two")
	status, _ = g.post(t, "two", small, nil)
	require.Equal(t, http.StatusOK, status, "a body in memory is verified again")
	g.secret.Store("three")
	status, _ = g.post(t, "three", large, nil)
	require.Equal(t, http.StatusOK, status, "a body in a file is verified again")
	status, code := g.post(t, "four", large, nil)
	require.Equal(t, http.StatusUnauthorized, status)
	require.Equal(t, httpserver.CodeInvalidSignature, code)
}

// TestSigned_NewSignatureRequirement: unsigned requests are rejected from then on, including one
// that arrived before and claims to be signed.
func TestSigned_NewSignatureRequirement(t *testing.T) {
	t.Parallel()
	g := newGitHub(t)
	gitHub, reads := g.keeper.change, 0
	g.keeper.verdict = store.Outdated
	g.keeper.change = func(c *store.Connector) {
		if reads++; reads > 1 {
			g.keeper.verdict = store.Accepted
			gitHub(c)
		}
	}
	status, code := g.post(t, "made up", "{}", nil)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, httpserver.CodeSecretChanged, code)
	require.Len(t, g.keeper.events, 1, "the outdated secret")
	status, _ = g.post(t, "one", "{}", nil)
	require.Equal(t, http.StatusOK, status)
}

// TestSigned_StoresNothingUnverified: neither a large body nor its files, at any time.
func TestSigned_StoresNothingUnverified(t *testing.T) {
	t.Parallel()
	g := newGitHub(t)
	multipart, boundary := multipartBody(t, part{field: "a", file: "a.txt", kind: "text/plain", text: "hello"}, part{field: "b", text: "text"})
	kind := "multipart/form-data; boundary=" + boundary
	for name, c := range map[string]struct {
		body, kind string
	}{
		"a large body": {object(100 << 10), "application/json"},
		"inline files": {`{"files":[{"name":"a.txt","data":"aGVsbG8="}]}`, "application/json"},
		"multipart":    {multipart, kind},
		"an epilogue":  {multipart + "what nobody reads, and is signed too", kind},
	} {
		t.Run(name, func(t *testing.T) {
			edit := func(r *http.Request) { r.Header.Set("Content-Type", c.kind) }
			g.keeper.begun, g.keeper.dropped, g.keeper.events = 0, 0, nil
			status, code := g.post(t, "wrong", c.body, edit)
			require.Equal(t, http.StatusUnauthorized, status)
			require.Equal(t, httpserver.CodeInvalidSignature, code)
			require.Zero(t, g.keeper.begun)
			require.Empty(t, g.keeper.events)
			status, _ = g.post(t, "one", c.body, edit)
			require.Equal(t, http.StatusOK, status)
			require.Len(t, g.keeper.events, 1)
			require.NotZero(t, g.keeper.begun)
			require.Zero(t, g.keeper.dropped)
		})
	}
}

// TestSigned_LimitsUnverifiedBytes: bytes in transfer and wrong bytes are limited. Verified bodies
// do not count.
func TestSigned_LimitsUnverifiedBytes(t *testing.T) {
	t.Parallel()
	g := newGitHub(t)
	large := object(MaxBody)
	for range 4 {
		status, _ := g.post(t, "one", large, nil)
		require.Equal(t, http.StatusOK, status)
	}
	for range 3 { // the last one exceeds the budget
		status, _ := g.post(t, "wrong", large, nil)
		require.Equal(t, http.StatusUnauthorized, status)
	}
	for secret, want := range map[string]int{"one": http.StatusOK, "wrong": http.StatusUnauthorized} {
		t.Run(secret, func(t *testing.T) {
			status, code := g.post(t, secret, object(store.MaxInlineInput+1), nil)
			require.Equal(t, http.StatusTooManyRequests, status, "large bodies are rejected, right or wrong")
			require.Equal(t, httpserver.CodeTooManyUnverified, code)
			status, code = g.post(t, secret, "{}", func(r *http.Request) { r.ContentLength = -1 })
			require.Equal(t, http.StatusTooManyRequests, status, "bodies of unknown length are rejected")
			require.Equal(t, httpserver.CodeTooManyUnverified, code)
			status, _ = g.post(t, secret, object(store.MaxInlineInput), nil)
			require.Equal(t, want, status, "small bodies are always verified")
		})
	}
	g.clock.Add(MaxBody / wrongBytes)
	status, _ := g.post(t, "one", large, nil)
	require.Equal(t, http.StatusOK, status, "small bodies block no large one")

	var writers []*io.PipeWriter
	answers := make(chan int)
	for range maxUnverified / 2 / largeUnverified { // the whole share of the connector
		in, out := io.Pipe()
		writers = append(writers, out)
		r := g.request(t, "one", large, in)
		go func() {
			w := httptest.NewRecorder()
			g.ServeHTTP(w, r)
			answers <- w.Code
		}()
		_, err := out.Write([]byte("{")) // the body is being read
		require.NoError(t, err)
	}
	w := httptest.NewRecorder()
	g.ServeHTTP(w, g.request(t, "one", "{}", strings.NewReader("{}")))
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	require.Equal(t, "2", w.Header().Get("Retry-After"))
	for _, out := range writers {
		require.NoError(t, out.CloseWithError(io.ErrUnexpectedEOF))
		require.Equal(t, http.StatusBadRequest, <-answers)
	}
	g.clock.Add(1) // those few bytes were wrong too
	status, _ = g.post(t, "one", "{}", nil)
	require.Equal(t, http.StatusOK, status)
}

// TestSigned_UnverifiedShareOfProject: unverified bodies use at most half of a project's capacity,
// for any number of its connectors.
func TestSigned_UnverifiedShareOfProject(t *testing.T) {
	t.Parallel()
	w := newWrongSecrets(func() time.Time { return time.Unix(0, 0) })
	project, other := uuid.New(), uuid.New()
	taken, refused := int64(0), 0
	for range 5 {
		connector := store.Key{ProjectID: project, ID: uuid.New()}
		for range maxUnverified / largeUnverified {
			if w.reserveBody(connector, largeUnverified, true) {
				taken += largeUnverified
			} else {
				refused++
			}
		}
		require.LessOrEqual(t, w.reading[connector], int64(maxUnverified/2), "a connector gets half of it")
	}
	require.LessOrEqual(t, taken, int64(maxUnverified))
	require.Greater(t, taken, int64(maxUnverified)*3/4)
	require.Positive(t, refused)
	require.LessOrEqual(t, 2*int64(maxUnverified), int64(maxIncoming/projectShare), "other connectors get as much")
	require.True(t, w.reserveBody(store.Key{ProjectID: other, ID: uuid.New()}, largeUnverified, true))
	all := int64(0)
	for range 100 {
		w.reserveBody(store.Key{ProjectID: uuid.New(), ID: uuid.New()}, largeUnverified, true)
	}
	for _, holds := range w.reading {
		all += holds
	}
	require.EqualValues(t, maxIncoming/2-reservedForSmall, all, "all projects together")
	for range 20 {
		project := uuid.New()
		for w.reserveBody(store.Key{ProjectID: project, ID: uuid.New()}, 64<<10, false) {
		}
	}
	require.True(t, w.reserveBody(store.Key{ProjectID: uuid.New(), ID: uuid.New()}, 1<<10, false), "another project finds free capacity")
	for connector := range w.reading {
		for w.reading[connector] > 0 {
			w.settleBody(connector, min(largeUnverified, w.reading[connector]), 0, true)
		}
	}
	require.Empty(t, w.reading)
	require.Empty(t, w.byProject)
	require.Zero(t, w.allNow)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("{"))
	require.EqualValues(t, 2*incomingBytes(r), unverified(r), "the memory of incoming bodies")
}

// TestWrong_LimitsBytes: per project and for all. Large bodies wait until the debt is lower, and
// small ones do not. Verified bodies do not count.
func TestWrong_LimitsBytes(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	w := newWrongSecrets(func() time.Time { return now })
	read := func(project uuid.UUID, n int64, large bool) bool {
		connector := store.Key{ProjectID: project, ID: uuid.New()} // a different one each time
		began := w.reserveBody(connector, largeUnverified, large)
		if began {
			w.settleBody(connector, largeUnverified, n, large)
		}
		return began
	}
	guessed, quiet := uuid.New(), uuid.New()
	for range wrongBurstOfProject/MaxBody + 1 {
		require.True(t, read(guessed, MaxBody, true))
	}
	require.False(t, read(guessed, MaxBody, true), "the limit of a project")
	require.True(t, read(guessed, 1, false), "a small body")
	require.True(t, read(quiet, 0, true))
	for w.all.TokensAt(now) >= 0 {
		require.True(t, read(uuid.New(), MaxBody, true))
	}
	require.True(t, read(quiet, MaxBody, true), "other projects used the total limit")
	require.True(t, read(quiet, 1, true))
	require.False(t, read(quiet, 0, true), "and now this project too")
	for range 1000 {
		require.True(t, read(quiet, store.MaxInlineInput, false), "small ones")
	}
	now = now.Add(time.Second)
	require.True(t, read(quiet, 0, true), "small bodies block large ones only briefly")
	require.False(t, read(guessed, 0, true))
	now = now.Add(MaxBody / wrongBytesOfProject * time.Second)
	require.True(t, read(guessed, 0, true))
}

// TestWrong_DebtIsPaidInASecond: however many projects caused it.
func TestWrong_DebtIsPaidInASecond(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	w := newWrongSecrets(func() time.Time { return now })
	read := func(project uuid.UUID, n int64) bool {
		connector := store.Key{ProjectID: project, ID: uuid.New()}
		began := w.reserveBody(connector, largeUnverified, true)
		if began {
			w.settleBody(connector, largeUnverified, n, true)
		}
		return began
	}
	guessed := uuid.New()
	for range 3 {
		require.True(t, read(guessed, MaxBody))
	}
	for range 1000 {
		require.True(t, read(uuid.New(), MaxBody))
	}
	require.False(t, read(guessed, 0))
	now = now.Add(time.Second)
	require.True(t, read(guessed, 0))
}

// TestSigned_LargeBodiesHaveOwnSlots: they use no slots of callers with a verified secret, and
// leave no file.
func TestSigned_LargeBodiesHaveOwnSlots(t *testing.T) { // not parallel, because the folder belongs to the process
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	g := newGitHub(t)
	large := object(MaxBody)
	in, out := io.Pipe()
	ended := make(chan int)
	r := g.request(t, "one", large, in)
	go func() {
		w := httptest.NewRecorder()
		g.ServeHTTP(w, r)
		ended <- w.Code
	}()
	_, err := io.WriteString(out, large[:2*store.MaxInlineInput])
	require.NoError(t, err)
	require.EqualValues(t, 1, g.spooled.Taken())
	require.Zero(t, g.bodies.Taken())
	names, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Empty(t, names, "the file has no name")
	require.NoError(t, out.CloseWithError(io.ErrUnexpectedEOF))
	require.Equal(t, http.StatusBadRequest, <-ended)

	for range maxSpooled / projectShare {
		require.NoError(t, g.spooled.Take(project, 1))
	}
	for _, length := range []int64{MaxBody, -1} {
		w := httptest.NewRecorder()
		r := g.request(t, "one", large, io.NopCloser(strings.NewReader(large)))
		r.ContentLength = length
		g.ServeHTTP(w, r)
		require.Equal(t, http.StatusTooManyRequests, w.Code)
		require.Contains(t, w.Body.String(), httpserver.CodeTooManyUnverified)
	}
	g.spooled.Give(project, maxSpooled/projectShare)
	require.Less(t, wrongBytesBurst-g.wrongs.entryOf(g.key).bytes.TokensAt(g.opts.Now()), float64(4*store.MaxInlineInput), "no more than was read")
	status, _ := g.post(t, "one", large, nil)
	require.Equal(t, http.StatusOK, status)
}

// TestSigned_LargeBodyUsesLittleMemory: even if it is verified twice.
func TestSigned_LargeBodyUsesLittleMemory(t *testing.T) { // not parallel, because it measures memory
	g := newGitHub(t)
	g.keeper.keep = false
	large := object(MaxBody)
	for _, secret := range []string{"one", "two"} {
		g.secret.Store(secret)
		signed := g.request(t, secret, large, nil)
		memtest.AtMost(t, MaxBody/16, func() {
			w, r := httptest.NewRecorder(), signed.Clone(t.Context())
			r.Body = io.NopCloser(strings.NewReader(large))
			g.ServeHTTP(w, r)
			require.Equal(t, http.StatusOK, w.Code)
		}, secret)
	}
}

// TestHandshake_WithoutCapacity: a handshake gets its response, and a body that cannot be one is
// not read.
func TestHandshake_WithoutCapacity(t *testing.T) {
	t.Parallel()
	g := newGitHub(t)
	gitHub := g.keeper.change
	g.keeper.mode = "sync"
	g.keeper.change = func(c *store.Connector) {
		gitHub(c)
		c.Config = []byte(`{"authentication":"slack"}`)
	}
	g.loads.projects[project] = &measuredLoad{at: time.Now(), load: store.ProjectLoad{Limits: store.ProjectLimits{Storage: 1}, Stored: 1}}
	require.NoError(t, g.callers.Take(project, maxCallers/projectShare))
	ask := func(secret, text string, body io.Reader, edit func(*http.Request)) *httptest.ResponseRecorder {
		r := g.request(t, secret, "v0:0:"+text, body)
		r.ContentLength = int64(len(text))
		r.Header.Set("X-Slack-Request-Timestamp", "0")
		r.Header.Set("X-Slack-Signature", "v0="+strings.TrimPrefix(r.Header.Get("X-Hub-Signature-256"), "sha256="))
		if edit != nil {
			edit(r)
		}
		w := httptest.NewRecorder()
		g.ServeHTTP(w, r)
		return w
	}
	const shake, event = `{"type":"url_verification","challenge":"c"}`, `{"type":"event_callback","event_id":"Ev1"}`
	w := ask("one", shake, strings.NewReader(shake), nil)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.JSONEq(t, `{"challenge":"c"}`, w.Body.String())
	require.Equal(t, http.StatusUnauthorized, ask("wrong", shake, strings.NewReader(shake), nil).Code)
	w = ask("one", event, strings.NewReader(event), nil)
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	require.Contains(t, w.Body.String(), httpserver.CodeStorageFull)
	for _, edit := range []func(*http.Request){
		func(r *http.Request) { r.ContentLength = -1 },
		func(r *http.Request) { r.ContentLength = maxHandshake + 1 },
		func(r *http.Request) { r.Header.Set("Content-Type", typeForm) },
	} {
		require.Contains(t, ask("one", shake, unreadable{t}, edit).Body.String(), httpserver.CodeStorageFull)
	}
	require.Empty(t, g.keeper.events)
	require.Empty(t, g.wrongs.reading)
	require.Zero(t, g.incoming.Taken())
}

// TestSigned_StoreErrorIsTemporary: the sender gets a temporary error, with a right or a wrong
// signature.
func TestSigned_StoreErrorIsTemporary(t *testing.T) {
	t.Parallel()
	g := newGitHub(t)
	g.keeper.store = errors.New("away")
	status, code := g.post(t, "one", object(MaxBody), nil)
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, httpserver.CodeStoreUnavailable, code)
	left := g.wrongs.entryOf(g.key).bytes.TokensAt(g.opts.Now())
	require.InDelta(t, wrongBytesBurst, left, 0.5)
}

// FuzzProviders: keys and headers from any request are limited and valid text.
func FuzzProviders(f *testing.F) {
	f.Add("slack", []byte(`{"type":"url_verification","challenge":"3eZbrw1a"}`), "push")
	f.Add("slack", []byte(`{"event_id":"Ev1"}`), strings.Repeat("é", store.MaxHeaderValue))
	f.Add("stripe", []byte(`{"id":"evt_1","ID":7}`), "a\xffb")
	f.Add("github", []byte(`[["id","1"]]`), "")
	f.Fuzz(func(t *testing.T, scheme string, body []byte, value string) {
		c := &webhook{authenticates: true, scheme: signature.Scheme(scheme), contextHeaders: []string{"x-a", "host"}}
		if asked, shakes := handshake(c, body); shakes {
			require.Equal(t, "slack", scheme)
			require.LessOrEqual(t, len(asked), maxChallenge)
		}
		r := &http.Request{Host: value, Header: http.Header{"X-A": {value, value}, "X-B": {value}}}
		if scheme == "slack" || scheme == "stripe" {
			key, err := requestKeyOf(c, r, &signedBody{begun: body})
			require.NoError(t, err)
			require.NotEmpty(t, key.name, "each has one")
			require.LessOrEqual(t, len(key.name), len("stripe:")+maxIdempotencyKey)
			require.True(t, utf8.ValidString(key.name))
			require.False(t, key.compares)
		}
		headers := contextHeaders(c, r)
		require.Len(t, headers, 2)
		for _, seen := range headers {
			require.LessOrEqual(t, len(seen), store.MaxHeaderValue)
			require.True(t, utf8.ValidString(seen))
		}
		_, _ = requestKeyOf(c, r, nil)
	})
}
