// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/pause"
)

// screen collects what is written, and tells when some text came.
type screen struct {
	mutex sync.Mutex
	text  strings.Builder
	more  chan struct{}
}

func newScreen() *screen { return &screen{more: make(chan struct{}, 1)} }

func (h *screen) Write(p []byte) (int, error) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	select {
	case h.more <- struct{}{}:
	default:
	}
	return h.text.Write(p)
}

func (h *screen) all() string {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.text.String()
}

// until waits for text.
func (h *screen) until(t *testing.T, text string) {
	t.Helper()
	for !strings.Contains(h.all(), text) {
		select {
		case <-h.more:
		case <-t.Context().Done():
			t.Fatalf("it never says %q: %s", text, h.all())
		}
	}
}

// dev runs the command on a folder until stop is called, which returns its error.
func (p *project) dev(dir string, change func(*devOptions)) (says *screen, changed chan<- struct{}, stop func() error) {
	p.t.Helper()
	changes, says := make(chan struct{}), newScreen()
	o := &devOptions{dir: dir, changes: func(context.Context, string) (<-chan struct{}, error) { return changes, nil }}
	o.wanted, o.out, o.messages = "staging", io.Discard, says
	o.server, o.project, o.key = p.url, p.id, p.key
	var err error
	o.api, err = o.client()
	require.NoError(p.t, err)
	change(o)
	ctx, cancel := context.WithCancel(p.t.Context())
	done := make(chan error, 1)
	go func() { done <- o.dev(ctx) }()
	return says, changes, func() error { cancel(); return <-done }
}

func plainly(*devOptions) {}

func TestDevDeploysEachGoodChange(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.kind = "test"
	p.has(`"status":"deployed","is_live":true`)
	p.streams = []func(http.ResponseWriter, string){endedAtOnce}
	dir := folderWith(t, map[string]string{"agents/hello.yaml": helloAgent})
	says, changed, stop := p.dev(dir, plainly)
	says.until(t, "live in staging\n  orders (inbound) https://hooks/1\n")
	require.NotContains(t, says.all(), "hooks/2", "it is retired")

	changed <- struct{}{} // and nothing is another
	writeFile(t, filepath.Join(dir, "agents/hello.yaml"), "name: hello\nmodle: openai/gpt-5\n")
	changed <- struct{}{}
	says.until(t, `agents/hello.yaml:2:1: unknown key "modle"`)
	says.until(t, "nothing is uploaded until this is mended")
	changed <- struct{}{}
	require.Len(t, p.uploads, 1)
	writeFile(t, filepath.Join(dir, "agents/hello.yaml"), helloAgent+"description: Better\n")
	changed <- struct{}{}
	for strings.Count(says.all(), "live in staging") < 2 {
		<-says.more
	}
	require.NoError(t, stop(), "Ctrl-C is no failure")
	require.Equal(t, 1, strings.Count(says.all(), "unknown key"), "it is said once")
	require.Len(t, p.uploads, 2)
	first, last := p.called[0], p.called[len(p.called)-1]
	require.Regexp(t, `^/environments/.*/session +\{"holder":".+@.+","ttl_seconds":120\}$`, first)
	require.Regexp(t, `^/environments/.*/session holder=.+$`, last, "the session is released")
}

// TestDevTakesTheNextChangeWhileItBuilds: the log of the build before is not waited for.
func TestDevTakesTheNextChangeWhileItBuilds(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.kind = "test"
	p.has(`"status":"deployed","is_live":true`)
	building := make(chan struct{})
	p.streams = []func(http.ResponseWriter, string){func(w http.ResponseWriter, _ string) {
		event(w, 1, "building for long\n")
		_ = http.NewResponseController(w).Flush()
		p.mu.Unlock() // for the calls that come meanwhile
		<-building
		p.mu.Lock()
	}, endedAtOnce}
	p.streams = append(p.streams, endedAtOnce)
	dir := folderWith(t, map[string]string{"agents/hello.yaml": helloAgent})
	says, changed, stop := p.dev(dir, plainly)
	says.until(t, "building for long")
	p.mu.Lock()
	p.streams = p.streams[1:]
	p.mu.Unlock()
	writeFile(t, filepath.Join(dir, "agents/hello.yaml"), helloAgent+"description: Better\n")
	changed <- struct{}{}
	says.until(t, "live in staging")
	close(building)
	require.NoError(t, stop())
	require.Len(t, p.uploads, 2)
}

func TestDevIsForTests(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.kind = "standard"
	p.has(`"status":"deployed","is_live":true`)
	p.streams = []func(http.ResponseWriter, string){endedAtOnce}
	dir := folderWith(t, map[string]string{"agents/hello.yaml": helloAgent})
	_, _, err := p.agentctl("dev", dir, "--environment", "staging")
	require.ErrorContains(t, err, "would go live where real events come in")
	require.Empty(t, p.called)
	says, _, stop := p.dev(dir, func(o *devOptions) { o.force = true })
	says.until(t, "live in staging")
	require.NoError(t, stop())
	require.NotContains(t, strings.Join(p.called, " "), "session", "there is none in such an environment")
}

// TestDevEndsWhereItsSessionIsLost: somebody else tests there now.
func TestDevEndsWhereItsSessionIsLost(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.kind = "test"
	p.has(`"status":"deployed","is_live":true`)
	p.streams = []func(http.ResponseWriter, string){endedAtOnce}
	renew := make(chan struct{})
	lost := make(chan struct{})
	says, _, stop := p.dev(folderWith(t, map[string]string{"agents/hello.yaml": helloAgent}), func(o *devOptions) {
		o.api.wait = func(ctx context.Context, _ time.Duration) error {
			select {
			case <-renew:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		o.api.http.Transport = refusing{lost}
	})
	says.until(t, "live in staging")
	close(lost)
	renew <- struct{}{}
	says.until(t, "ending it failed") // it is no longer ours
	require.ErrorContains(t, stop(), "the test session in staging is lost: 409")
}

// refusing answers 409 for the session once it is lost.
type refusing struct{ lost chan struct{} }

func (r refusing) RoundTrip(request *http.Request) (*http.Response, error) {
	select {
	case <-r.lost:
		if strings.HasSuffix(request.URL.Path, "/session") {
			return &http.Response{StatusCode: http.StatusConflict, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(`{"detail":"somebody else tests","code":"test_session_active"}`))}, nil
		}
	default:
	}
	return http.DefaultTransport.RoundTrip(request)
}

// TestDevUploadsAgainWhatFailedOnItsWay: after pauses that grow, nobody edits anything, and
// each time under the same key; what is refused is not sent again.
func TestDevUploadsAgainWhatFailedOnItsWay(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.kind = "test"
	p.has(`"status":"deployed","is_live":true`)
	p.streams = []func(http.ResponseWriter, string){endedAtOnce}
	network := &broken{left: 3*restTries + 1}
	var pauses []time.Duration
	says, _, stop := p.dev(folderWith(t, map[string]string{"agents/hello.yaml": helloAgent}), func(o *devOptions) {
		o.api.http.Transport = network
		o.api.wait = func(ctx context.Context, d time.Duration) error {
			if d == sessionEvery {
				<-ctx.Done()
			} else if d != restPause && d != lookEvery {
				pauses = append(pauses, d)
			}
			return ctx.Err()
		}
	})
	says.until(t, "live in staging")
	require.NoError(t, stop())
	require.Equal(t, []time.Duration{devPause, 2 * devPause, 4 * devPause}, pauses)
	require.Contains(t, says.all(), "the cable is out\nuploading again in 2s\n")
	require.Len(t, p.uploads, 1)
	require.Len(t, network.keys, 1, "so that what came through is not deployed twice")

	for err, again := range map[error]bool{
		errCable: true, &restError{Status: http.StatusBadGateway}: true, &restError{Status: http.StatusServiceUnavailable}: true,
		&restError{Status: http.StatusNotImplemented}: false, &restError{Status: http.StatusUnprocessableEntity}: false,
		&restError{Status: http.StatusTooManyRequests, Code: httpserver.CodeStorageFull}: false,
	} {
		t.Run(fmt.Sprint(err), func(t *testing.T) {
			require.Equal(t, again, passes(err), "%v", err)
		})
	}
}

var errCable = errors.New("the cable is out")

// broken lets no upload through, so often.
type broken struct {
	left int
	keys map[string]bool
}

func (b *broken) RoundTrip(request *http.Request) (*http.Response, error) {
	if strings.HasSuffix(request.URL.Path, "/upload") {
		if b.keys == nil {
			b.keys = map[string]bool{}
		}
		b.keys[request.Header.Get("Idempotency-Key")] = true
		if b.left--; b.left >= 0 {
			return nil, errCable
		}
	}
	return http.DefaultTransport.RoundTrip(request)
}

// TestChangesAreToldOnceTheySettle: of an editor's steps, and of a checkout's files, once.
func TestChangesAreToldOnceTheySettle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		seen := make(chan struct{})
		out := settled(ctx, seen)
		for range 10 {
			seen <- struct{}{}
			require.NoError(t, pause.For(ctx, quiet/2))
			require.Empty(t, out)
		}
		synctest.Wait()
		require.NoError(t, pause.For(ctx, quiet))
		synctest.Wait()
		<-out
		require.NoError(t, pause.For(ctx, time.Hour))
		require.Empty(t, out)
		close(seen)
		_, open := <-out
		require.False(t, open)
	})
}

// TestWatchSeesWhatAgentsAreMadeOf: also in folders that come later, and nothing else.
func TestWatchSeesWhatAgentsAreMadeOf(t *testing.T) {
	t.Parallel()
	dir := folderWith(t, map[string]string{"agents/hello.yaml": helloAgent, "node_modules/x/y": "z"})
	changes, err := watch(t.Context(), dir)
	require.NoError(t, err)
	for _, name := range []string{"agents/hello.yaml", "tools/deep/down/new.star", "tools/deep/down/newer.star"} {
		writeFile(t, filepath.Join(dir, name), "changed")
		<-changes
	}
	require.NoError(t, os.Remove(filepath.Join(dir, "agents/hello.yaml")))
	<-changes
	_, err = watch(t.Context(), filepath.Join(dir, "nowhere"))
	require.Error(t, err)
}
