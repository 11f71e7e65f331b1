// SPDX-License-Identifier: Apache-2.0

package push

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/webhookapi"
)

// projects is a store that counts its calls.
type projects struct {
	mutex sync.Mutex
	there map[uuid.UUID]bool // existing projects, and whether a poll is requested
	// listed has the IDs that ProjectIDs returns, sorted.
	listed []uuid.UUID
	away   error
	hold   chan struct{} // blocks reads until it is closed, unless nil
	reads  int
	asked  [][]uuid.UUID
}

func (p *projects) HavePollRequests(_ context.Context, of []uuid.UUID) (map[uuid.UUID]bool, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if hold := p.hold; hold != nil {
		p.mutex.Unlock()
		<-hold
		p.mutex.Lock()
	}
	p.reads++
	out := map[uuid.UUID]bool{}
	for _, id := range of {
		if asked, there := p.there[id]; there {
			out[id] = asked
		}
	}
	return out, p.away
}

// ProjectIDs returns the listed IDs.
func (p *projects) ProjectIDs(_ context.Context, after uuid.UUID, limit int) ([]uuid.UUID, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	i, found := slices.BinarySearchFunc(p.listed, after, func(a, b uuid.UUID) int { return slices.Compare(a[:], b[:]) })
	if found {
		i++
	}
	return p.listed[i:min(i+limit, len(p.listed))], p.away
}

func (p *projects) RequestPolls(_ context.Context, of []uuid.UUID) error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.asked = append(p.asked, of)
	for _, id := range of {
		p.there[id] = true
	}
	return p.away
}

// change changes the store while a handler may read it.
func (p *projects) change(do func()) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	do()
}

// looks returns the requested polls and the number of reads.
func (p *projects) looks() (asked [][]uuid.UUID, reads int) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return slices.Clone(p.asked), p.reads
}

// held blocks all reads until release is called.
func (p *projects) held() (release func()) {
	hold := make(chan struct{})
	p.change(func() { p.hold = hold })
	return func() {
		p.change(func() { p.hold = nil })
		close(hold)
	}
}

// serve runs a handler with a store in a synctest bubble while check runs.
func serve(t *testing.T, p *projects, check func(t *testing.T, h *Handler)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := New(Options{Store: p, Logger: slog.New(slog.DiscardHandler)})
		ctx, stop := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() { _ = h.Run(ctx) })
		check(t, h)
		stop()
		group.Wait()
	})
}

// call returns the response to a POST for a project.
func call(h http.Handler, project string, header ...string) *httptest.ResponseRecorder {
	return send(h, http.MethodPost, "/git/"+project, strings.NewReader(`{"ref":"refs/heads/main"}`), header...)
}

func send(h http.Handler, method, path string, body io.Reader, header ...string) *httptest.ResponseRecorder {
	r, w := httptest.NewRequest(method, path, body), httptest.NewRecorder()
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	h.ServeHTTP(w, r)
	return w
}

func TestPush_OnlyPushesRequestPolls(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		header []string
		push   bool
	}{
		{"GitHub, push", []string{"X-GitHub-Event", "push"}, true},
		{"GitHub, ping", []string{"X-GitHub-Event", "ping"}, false},
		{"GitHub, pull request", []string{"X-GitHub-Event", "pull_request"}, false},
		{"GitLab, push", []string{"X-Gitlab-Event", "Push Hook"}, true},
		{"GitLab, tag", []string{"X-Gitlab-Event", "Tag Push Hook"}, false},
		{"GitLab, of the whole server", []string{"X-Gitlab-Event", "System Hook"}, false},
		{"Gitea, push", []string{"X-Gitea-Event", "push", "X-GitHub-Event", "push"}, true},
		{"Gitea, release", []string{"X-Gitea-Event", "release", "X-GitHub-Event", "release"}, false},
		{"Forgejo, push", []string{"X-Forgejo-Event", "push", "X-Gitea-Event", "push", "X-GitHub-Event", "push"}, true},
		{"Forgejo, issue", []string{"X-Forgejo-Event", "issues", "X-Gitea-Event", "issues"}, false},
		{"an empty event", []string{"X-GitHub-Event", ""}, false},
		{"a hook of a Git server", nil, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			project := uuid.New()
			p := &projects{there: map[uuid.UUID]bool{project: false}}
			serve(t, p, func(t *testing.T, h *Handler) {
				w := call(h, project.String(), c.header...)
				var got webhookapi.Pushed
				require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
				asked, _ := p.looks()
				if c.push {
					require.Equal(t, http.StatusAccepted, w.Code)
					require.Equal(t, webhookapi.PushAccepted, got.Status)
					require.Equal(t, [][]uuid.UUID{{project}}, asked)
					return
				}
				require.Equal(t, http.StatusOK, w.Code)
				require.Equal(t, webhookapi.PushIgnored, got.Status)
				require.Empty(t, asked)
			})
		})
	}
}

func TestPush_Errors(t *testing.T) {
	t.Parallel()
	project := uuid.New()
	path := "/git/" + project.String()
	for _, c := range []struct {
		name, method, path string
		body               io.Reader
		away               error
		header             []string
		status             int
		code               httpserver.Code
		retry, allow       string
	}{
		{name: "GET", method: http.MethodGet, path: path, status: 405, code: "method_not_allowed", allow: "POST"},
		{name: "HEAD", method: http.MethodHead, path: path, status: 405, code: "method_not_allowed", allow: "POST"},
		{name: "no method", method: "BREW", path: path, status: 405, code: "method_not_allowed", allow: "POST"},
		{name: "no id", method: http.MethodPost, path: "/git/shop", status: 404, code: "webhook_not_found"},
		{name: "no project", method: http.MethodPost, path: "/git/" + uuid.NewString(), status: 404, code: "webhook_not_found"},
		{
			name: "ping of no project", method: http.MethodPost, path: "/git/" + uuid.NewString(), header: []string{"X-GitHub-Event", "ping"},
			status: 404, code: "webhook_not_found",
		},
		{name: "another path", method: http.MethodPost, path: path + "/more", status: 404, code: "webhook_not_found"},
		{name: "store unavailable", method: http.MethodPost, path: path, away: errors.New("away"), status: 503, code: "store_unavailable", retry: "2"},
		{name: "large", method: http.MethodPost, path: path, body: io.LimitReader(zeros{}, maxBody+1), status: 413, code: "request_too_large"},
		{name: "incomplete", method: http.MethodPost, path: path, body: iotest.ErrReader(io.ErrUnexpectedEOF), status: 400, code: "body_unreadable"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := &projects{there: map[uuid.UUID]bool{project: false}, away: c.away}
			serve(t, p, func(t *testing.T, h *Handler) {
				w := send(h, c.method, c.path, c.body, c.header...)
				require.Equal(t, c.status, w.Code)
				require.Equal(t, httpserver.ProblemType, w.Header().Get("Content-Type"))
				var problem httpserver.Problem
				require.NoError(t, json.Unmarshal(w.Body.Bytes(), &problem))
				require.Equal(t, c.code, problem.Code)
				require.NotRegexp(t, `kubectl|spec\.|status\.|namespace|\bpods?\b|store|SQL`, problem.Detail, "error texts are for outsiders")
				require.Contains(t, webhookapi.PushProblems[c.status], c.code)
				require.Equal(t, c.retry, w.Header().Get("Retry-After"))
				require.Equal(t, c.allow, w.Header().Get("Allow"))
			})
		})
	}
}

// zeros never ends.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

func TestPush_ReadsBodyOfMaximumSize(t *testing.T) {
	t.Parallel()
	project := uuid.New()
	serve(t, &projects{there: map[uuid.UUID]bool{project: false}}, func(t *testing.T, h *Handler) {
		body := &io.LimitedReader{R: zeros{}, N: maxBody}
		require.Equal(t, http.StatusAccepted, send(h, http.MethodPost, "/git/"+project.String(), body).Code)
		require.Zero(t, body.N, "the sender expects that its body is read")
	})
}

// slowBody arrives at 64 KiB a second, until the read deadline.
type slowBody struct{ until time.Time }

func (b *slowBody) Read(p []byte) (int, error) {
	takes := time.Duration(len(p)) * time.Second / (64 << 10)
	if left := time.Until(b.until); left < takes {
		time.Sleep(left)
		return 0, os.ErrDeadlineExceeded
	}
	time.Sleep(takes)
	return len(p), nil
}

// slowCall is the response to a slowBody.
type slowCall struct {
	*httptest.ResponseRecorder
	body *slowBody
}

// SetReadDeadline implements the interface for http.ResponseController.
func (c slowCall) SetReadDeadline(at time.Time) error {
	c.body.until = at
	return nil
}

// TestPush_LimitsSlotTime: a body holds its slot for a limited time, whatever its length and pace.
func TestPush_LimitsSlotTime(t *testing.T) {
	t.Parallel()
	project := uuid.New()
	serve(t, &projects{there: map[uuid.UUID]bool{project: false}}, func(t *testing.T, h *Handler) {
		begin := time.Now()
		w := slowCall{httptest.NewRecorder(), &slowBody{}}
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/git/"+project.String(), w.body))
		require.Equal(t, http.StatusRequestTimeout, w.Code)
		require.Less(t, time.Since(begin), 30*time.Second)
		require.Zero(t, h.bodies.Taken())
	})
}

// TestPush_ManyCallsAreOneRow: the load on the store depends on time only.
func TestPush_ManyCallsAreOneRow(t *testing.T) {
	t.Parallel()
	project := uuid.New()
	p := &projects{there: map[uuid.UUID]bool{project: false}}
	serve(t, p, func(t *testing.T, h *Handler) {
		for range 20 {
			var group sync.WaitGroup
			for range 50 {
				group.Go(func() {
					if code := call(h, project.String()).Code; code != http.StatusAccepted && code != http.StatusTooManyRequests {
						t.Errorf("status %d", code)
					}
				})
			}
			group.Wait()
		}
		asked, reads := p.looks()
		require.Len(t, asked, 1, "the poll is already requested")
		require.LessOrEqual(t, reads, 40)
	})
}

// TestPush_UnknownProjectsHaveOwnLimit: calls for unknown projects are rejected without the store
// beyond a limit, and do not block known projects.
func TestPush_UnknownProjectsHaveOwnLimit(t *testing.T) {
	t.Parallel()
	project := uuid.New()
	p := &projects{there: map[uuid.UUID]bool{project: false}}
	serve(t, p, func(t *testing.T, h *Handler) {
		require.Equal(t, http.StatusAccepted, call(h, project.String()).Code) // the project is known from now on
		var group sync.WaitGroup                                              // calls that wait for the next batch
		codes := make(chan int, maxStrangers)
		for range maxStrangers {
			group.Go(func() { codes <- call(h, uuid.NewString()).Code })
		}
		synctest.Wait()
		w := call(h, uuid.NewString())
		require.Equal(t, http.StatusServiceUnavailable, w.Code)
		require.Contains(t, w.Body.String(), httpserver.CodeTooManyUnknown)
		require.Equal(t, "2", w.Header().Get("Retry-After"))
		group.Go(func() {
			if code := call(h, project.String()).Code; code != http.StatusAccepted {
				t.Errorf("status %d for a project that is known", code)
			}
		})
		group.Wait()
		for range maxStrangers {
			require.Equal(t, http.StatusNotFound, <-codes)
		}
		_, reads := p.looks()
		require.Equal(t, 2, reads, "one read for all")
	})
}

// TestPush_LearnsNewProjects: the first push of a project succeeds while unknown projects use all
// of their slots. The ID is read soon after the project was created, also after the store was
// unavailable.
func TestPush_LearnsNewProjects(t *testing.T) {
	t.Parallel()
	old, fresh := uuid.UUID{1}, uuid.UUID{0xff}
	p := &projects{there: map[uuid.UUID]bool{old: false}, away: errors.New("away")}
	for i := range 2*maxIDs - 1 {
		p.listed = append(p.listed, uuid.UUID{2, byte(i >> 8), byte(i)})
	}
	p.listed = append(p.listed, uuid.UUID{3})
	p.listed = slices.Insert(p.listed, 0, old)
	serve(t, p, func(t *testing.T, h *Handler) {
		flooded := func(project uuid.UUID) (code int) {
			release := p.held()
			var group sync.WaitGroup
			for range 2 * maxStrangers {
				group.Go(func() { call(h, uuid.NewString()) })
			}
			synctest.Wait()
			group.Go(func() { code = call(h, project.String()).Code })
			synctest.Wait()
			release()
			group.Wait()
			return code
		}
		synctest.Wait()
		require.Zero(t, h.lookup.known.Len())
		p.change(func() { p.away = nil })
		time.Sleep(idInterval)
		synctest.Wait()
		require.Equal(t, 2*maxIDs+1, h.lookup.known.Len())
		require.Equal(t, http.StatusAccepted, flooded(old))
		require.Equal(t, http.StatusServiceUnavailable, flooded(fresh))
		p.change(func() { p.there[fresh], p.listed = false, append(p.listed, fresh) })
		time.Sleep(idInterval)
		synctest.Wait()
		require.Equal(t, http.StatusAccepted, flooded(fresh))
	})
}

// TestPush_ForgetsDeletedProjects: a deleted project counts as unknown.
func TestPush_ForgetsDeletedProjects(t *testing.T) {
	t.Parallel()
	project := uuid.New()
	p := &projects{there: map[uuid.UUID]bool{project: false}}
	serve(t, p, func(t *testing.T, h *Handler) {
		require.Equal(t, http.StatusAccepted, call(h, project.String()).Code)
		require.True(t, h.lookup.known.Contains(project))
		p.change(func() { delete(p.there, project) })
		require.Equal(t, http.StatusNotFound, call(h, project.String()).Code)
		require.False(t, h.lookup.known.Contains(project))
	})
}

// TestPush_BodiesOfAProject: a project has a share of the slots for bodies. A call beyond its share
// gets its response without a body, and so does each call that waits for the store.
func TestPush_BodiesOfAProject(t *testing.T) {
	t.Parallel()
	one, other := uuid.New(), uuid.New()
	p := &projects{there: map[uuid.UUID]bool{one: false, other: false}}
	serve(t, p, func(t *testing.T, h *Handler) {
		var group sync.WaitGroup
		send := func(project uuid.UUID, body io.Reader) {
			group.Go(func() {
				if code := send(h, http.MethodPost, "/git/"+project.String(), body).Code; code != http.StatusAccepted {
					t.Errorf("status %d", code)
				}
			})
		}
		hold, end := io.Pipe()
		for range maxBodies {
			send(one, hold)
		}
		synctest.Wait()
		time.Sleep(batchInterval)
		synctest.Wait()
		require.EqualValues(t, maxBodies/projectShare, h.bodies.Taken())
		unread := strings.NewReader("unread")
		send(one, unread)
		send(other, strings.NewReader("read"))
		time.Sleep(batchInterval)
		synctest.Wait()
		require.Positive(t, unread.Len())
		require.NoError(t, end.Close())
		group.Wait()
		require.Zero(t, h.bodies.Taken())
	})
}

// TestPush_EndedCallReturns: a call that ends does not wait for a slow store.
func TestPush_EndedCallReturns(t *testing.T) {
	t.Parallel()
	project := uuid.New()
	p := &projects{there: map[uuid.UUID]bool{project: false}}
	serve(t, p, func(t *testing.T, h *Handler) {
		release := p.held()
		ctx, end := context.WithCancel(t.Context())
		ended := make(chan int)
		go func() {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/git/"+project.String(), nil))
			ended <- w.Code
		}()
		synctest.Wait()
		end()
		require.Equal(t, http.StatusServiceUnavailable, <-ended)
		release()
	})
}
