// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
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

	"github.com/agentplatform/agentplatform/internal/pause"
	"github.com/agentplatform/agentplatform/internal/restclient"
)

// screen collects output, and signals new output.
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

func (h *screen) content() string {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.text.String()
}

// waitFor waits until a text has been written.
func (h *screen) waitFor(t *testing.T, text string) {
	t.Helper()
	for !strings.Contains(h.content(), text) {
		select {
		case <-h.more:
		case <-t.Context().Done():
			t.Fatalf("it never says %q: %s", text, h.content())
		}
	}
}

// runDev runs the command on a folder until stop is called, which returns its error.
func (p *project) runDev(dir string, change func(*devOptions)) (says *screen, changed chan<- struct{}, stop func() error) {
	p.t.Helper()
	changes, says := make(chan struct{}), newScreen()
	o := &devOptions{dir: dir, watch: func(context.Context, string) (<-chan struct{}, error) { return changes, nil }}
	o.environment, o.out, o.messages = "staging", io.Discard, says
	o.server, o.project, o.key = p.url, p.id, p.key
	var err error
	o.api, err = o.newClient()
	require.NoError(p.t, err)
	change(o)
	ctx, cancel := context.WithCancel(p.t.Context())
	done := make(chan error, 1)
	go func() { done <- o.watchFolder(ctx) }()
	return says, changes, func() error { cancel(); return <-done }
}

func unchanged(*devOptions) {}

// Dev deploys each change that is valid, and shows problems once.
func TestDev_DeploysValidChanges(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.kind = "test"
	p.addDeployment(`"status":"deployed","is_live":true`)
	p.streams = []func(http.ResponseWriter, string){endedAtOnce}
	dir := folderWith(t, map[string]string{"agents/hello.yaml": helloAgent})
	says, changed, stop := p.runDev(dir, unchanged)
	says.waitFor(t, "live in staging\n  orders (inbound) https://hooks/1\n")
	require.NotContains(t, says.content(), "hooks/2", "it is retired")

	changed <- struct{}{} // and nothing is another
	writeTestFile(t, filepath.Join(dir, "agents/hello.yaml"), "name: hello\nmodle: openai/gpt-5\n")
	changed <- struct{}{}
	says.waitFor(t, `agents/hello.yaml:2:1: unknown key "modle"`)
	says.waitFor(t, "nothing is uploaded until this is fixed")
	changed <- struct{}{}
	require.Len(t, p.uploads, 1)
	writeTestFile(t, filepath.Join(dir, "agents/hello.yaml"), helloAgent+"description: Better\n")
	changed <- struct{}{}
	for strings.Count(says.content(), "live in staging") < 2 {
		<-says.more
	}
	require.NoError(t, stop(), "Ctrl-C is no failure")
	require.Equal(t, 1, strings.Count(says.content(), "unknown key"), "the problem is printed once")
	require.Len(t, p.uploads, 2)
	first, last := p.called[0], p.called[len(p.called)-1]
	require.Regexp(t, `^/environments/.*/session +\{"holder":".+@.+","ttl_seconds":120\}$`, first)
	require.Regexp(t, `^/environments/.*/session holder=.+$`, last, "the session is released")
}

// A change during a build starts the next one at once.
func TestDev_ReplacesARunningBuild(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.kind = "test"
	p.addDeployment(`"status":"deployed","is_live":true`)
	building := make(chan struct{})
	p.streams = []func(http.ResponseWriter, string){func(w http.ResponseWriter, _ string) {
		writeEvent(w, 1, "building for long\n")
		_ = http.NewResponseController(w).Flush()
		p.mu.Unlock() // for the calls that come meanwhile
		<-building
		p.mu.Lock()
	}, endedAtOnce}
	p.streams = append(p.streams, endedAtOnce)
	dir := folderWith(t, map[string]string{"agents/hello.yaml": helloAgent})
	says, changed, stop := p.runDev(dir, unchanged)
	says.waitFor(t, "building for long")
	p.mu.Lock()
	p.streams = p.streams[1:]
	p.mu.Unlock()
	writeTestFile(t, filepath.Join(dir, "agents/hello.yaml"), helloAgent+"description: Better\n")
	changed <- struct{}{}
	says.waitFor(t, "live in staging")
	close(building)
	require.NoError(t, stop())
	require.Len(t, p.uploads, 2)
}

// Dev deploys only to test environments, unless --force is given.
func TestDev_NeedsForceOutsideOfTests(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.kind = "standard"
	p.addDeployment(`"status":"deployed","is_live":true`)
	p.streams = []func(http.ResponseWriter, string){endedAtOnce}
	dir := folderWith(t, map[string]string{"agents/hello.yaml": helloAgent})
	_, _, err := p.agentctl("dev", dir, "--environment", "staging")
	require.ErrorContains(t, err, "would go live where real events arrive")
	require.Empty(t, p.called)
	says, _, stop := p.runDev(dir, func(o *devOptions) { o.force = true })
	says.waitFor(t, "live in staging")
	require.NoError(t, stop())
	require.NotContains(t, strings.Join(p.called, " "), "session", "there is none in such an environment")
}

// Dev ends when another holder has the test session.
func TestDev_EndsWithoutItsSession(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.kind = "test"
	p.addDeployment(`"status":"deployed","is_live":true`)
	p.streams = []func(http.ResponseWriter, string){endedAtOnce}
	renew := make(chan struct{})
	lost := make(chan struct{})
	says, _, stop := p.runDev(folderWith(t, map[string]string{"agents/hello.yaml": helloAgent}), func(o *devOptions) {
		o.api.Wait = func(ctx context.Context, _ time.Duration) error {
			select {
			case <-renew:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		o.api.HTTP.Transport = refusing{lost}
	})
	says.waitFor(t, "live in staging")
	close(lost)
	renew <- struct{}{}
	says.waitFor(t, "ending the test session in staging failed") // it is no longer ours
	require.ErrorContains(t, stop(), "the test session in staging is lost: 409")
}

// refusing responds with 409 for the session once it is lost.
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

// Dev repeats a transient failure with growing pauses, under the same idempotency key.
func TestDev_RepeatsFailedUploads(t *testing.T) {
	t.Parallel()
	p := newProject(t)
	p.kind = "test"
	p.addDeployment(`"status":"deployed","is_live":true`)
	p.streams = []func(http.ResponseWriter, string){endedAtOnce}
	network := &broken{left: 3*restclient.MaxAttempts + 1}
	var pauses []time.Duration
	says, _, stop := p.runDev(folderWith(t, map[string]string{"agents/hello.yaml": helloAgent}), func(o *devOptions) {
		o.api.HTTP.Transport = network
		o.api.Wait = func(ctx context.Context, d time.Duration) error {
			if d == sessionRenewal {
				<-ctx.Done()
			} else if d != restclient.MinPause && d != statusPoll {
				pauses = append(pauses, d)
			}
			return ctx.Err()
		}
	})
	says.waitFor(t, "live in staging")
	require.NoError(t, stop())
	require.Equal(t, []time.Duration{minUploadPause, 2 * minUploadPause, 4 * minUploadPause}, pauses)
	require.Contains(t, says.content(), "the cable is out\nuploading again in 2s\n")
	require.Len(t, p.uploads, 1)
	require.Len(t, network.keys, 1, "so that what came through is not deployed twice")
}

// problem is the error of a response.
func problem(status int64, code string) error {
	return &restclient.ProblemError{Problem: restclient.Problem{Status: status, Code: code}}
}

var errCable = errors.New("the cable is out")

// broken fails a number of uploads.
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

// Several changes within settleTime are one.
func TestSettleChanges_ReportsChangesOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		seen := make(chan struct{})
		out := settleChanges(ctx, seen)
		for range 10 {
			seen <- struct{}{}
			require.NoError(t, pause.For(ctx, settleTime/2))
			require.Empty(t, out)
		}
		synctest.Wait()
		require.NoError(t, pause.For(ctx, settleTime))
		synctest.Wait()
		<-out
		require.NoError(t, pause.For(ctx, time.Hour))
		require.Empty(t, out)
		close(seen)
		_, open := <-out
		require.False(t, open)
	})
}

// Watching covers the folders of the layout, also new ones, and no others.
func TestWatchFolder_WatchesTheLayout(t *testing.T) {
	t.Parallel()
	dir := folderWith(t, map[string]string{"agents/hello.yaml": helloAgent, "node_modules/x/y": "z"})
	changes, err := watchFolder(t.Context(), dir)
	require.NoError(t, err)
	for _, name := range []string{"agents/hello.yaml", "tools/deep/down/new.star", "tools/deep/down/newer.star"} {
		writeTestFile(t, filepath.Join(dir, name), "changed")
		<-changes
	}
	require.NoError(t, os.Remove(filepath.Join(dir, "agents/hello.yaml")))
	<-changes
	_, err = watchFolder(t.Context(), filepath.Join(dir, "nowhere"))
	require.Error(t, err)
}
