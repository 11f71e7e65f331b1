// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// hanging is a store that blocks each call until its context ends.
type hanging struct {
	fake
	kind  store.TokenKind
	under chan struct{} // one value for each running call
}

func (s *hanging) Token(ctx context.Context, digest []byte) (store.Token, error) {
	token, err := s.fake.Token(ctx, digest)
	token.Kind = s.kind
	if s.kind == store.TokenBuild {
		token.DeploymentID = &known
	}
	return token, err
}

func (s *hanging) hang(ctx context.Context) error {
	s.under <- struct{}{}
	<-ctx.Done()
	<-s.under
	return context.Cause(ctx)
}

func (s *hanging) RunEnvironments(ctx context.Context, _ uuid.UUID, _ []uuid.UUID) (map[uuid.UUID]uuid.UUID, error) {
	return nil, s.hang(ctx)
}

func (s *hanging) Claim(ctx context.Context, _ store.Claim) (store.ClaimResult, error) {
	return store.ClaimResult{}, s.hang(ctx)
}

func (s *hanging) Heartbeat(ctx context.Context, _ store.Key, _ []store.Held, _ time.Duration) ([]store.Lease, error) {
	return nil, s.hang(ctx)
}

func (s *hanging) CheckClaim(ctx context.Context, _ store.Lease) error { return s.hang(ctx) }

func (s *hanging) AppendJournal(ctx context.Context, _ store.Lease, _ []store.JournalEntry) error {
	return s.hang(ctx)
}

func (s *hanging) AppendJournals(ctx context.Context, appends []store.JournalAppend) []error {
	return slices.Repeat([]error{s.hang(ctx)}, len(appends))
}

func (s *hanging) Send(ctx context.Context, _ store.Send) (store.Sent, error) {
	return store.Sent{}, s.hang(ctx)
}

func (s *hanging) Release(ctx context.Context, _ store.Lease, _ time.Duration) error {
	return s.hang(ctx)
}

func (s *hanging) Reclaim(ctx context.Context, _ store.Key, _ string, _ []store.Lease) (int, error) {
	return 0, s.hang(ctx)
}

func (s *hanging) RunInput(ctx context.Context, _ store.Key) (string, io.ReadCloser, error) {
	return "", nil, s.hang(ctx)
}

func (s *hanging) RunFiles(ctx context.Context, _ store.Key) ([]store.File, error) {
	return nil, s.hang(ctx)
}

func (s *hanging) OpenRunFile(ctx context.Context, _ store.Key, _ int) (store.File, io.ReadCloser, error) {
	return store.File{}, nil, s.hang(ctx)
}

func (s *hanging) OpenSavedFile(ctx context.Context, _ store.Key, _ string, _ int64) (store.SavedFile, io.ReadCloser, error) {
	return store.SavedFile{}, nil, s.hang(ctx)
}

func (s *hanging) NamesBundle(ctx context.Context, _ store.Key, _ string) error { return s.hang(ctx) }

func (s *hanging) OpenUpload(ctx context.Context, _ store.Key) (io.ReadCloser, error) {
	return nil, s.hang(ctx)
}

func (s *hanging) ReportBuild(ctx context.Context, _ store.Key, _ store.BuildReport) error {
	return s.hang(ctx)
}

func (s *hanging) AppendBuildLog(ctx context.Context, _ store.Key, _ int64, _ string) error {
	return s.hang(ctx)
}

func (s *hanging) FinishBuild(ctx context.Context, _ store.Key, _ store.BuildResult) error {
	return s.hang(ctx)
}

// known is a run that the gateway knows.
var known = uuid.New()

// asking has the requests that query the store, at least one per route.
var asking = map[string][]struct{ path, body string }{
	"POST /v1/claim":                   {{"/v1/claim", `{"limit":1,"runner_id":"r"}`}, {"/v1/claim", `{"runner_id":"r","draining":true}`}},
	"POST /v1/heartbeat":               {{"/v1/heartbeat", `{"leases":[]}`}, {"/v1/heartbeat", fmt.Sprintf(`{"leases":[{"run_id":%q,"token":1}]}`, uuid.New())}},
	"POST /v1/journals":                {{"/v1/journals", fmt.Sprintf(`{"appends":[{"run_id":%q,"token":1,"entries":[]}]}`, known)}},
	"POST /v1/runs/{id}/journal":       {{"/v1/runs/" + known.String() + "/journal", `{"token":1,"entries":[]}`}},
	"GET /v1/runs/{id}/journal":        {{"/v1/runs/" + known.String() + "/journal?token=1", ""}},
	"POST /v1/runs/{id}/sends":         {{"/v1/runs/" + known.String() + "/sends", `{"token":1,"mode":"agent_tool","name":"tell","position":1,"payload":1}`}},
	"POST /v1/runs/{id}/release":       {{"/v1/runs/" + known.String() + "/release", `{"token":1}`}},
	"GET /v1/runs/{id}/input":          {{"/v1/runs/" + known.String() + "/input", ""}},
	"GET /v1/runs/{id}/files":          {{"/v1/runs/" + known.String() + "/files", ""}},
	"GET /v1/runs/{id}/files/{number}": {{"/v1/runs/" + known.String() + "/files/0", ""}},
	"PUT /v1/runs/{id}/saved":          nil, // see TestSaveFile_WaitsForTurn
	"GET /v1/runs/{id}/saved/{file}":   {{"/v1/runs/" + known.String() + "/saved/s1?token=1&offset=0&length=1", ""}},
	"GET /v1/bundles/{digest}":         {{"/v1/bundles/sha256:" + strings.Repeat("0", 64), ""}},
	"POST /v1/build/report":            {{"/v1/build/report", `{}`}},
	"POST /v1/build/log":               {{"/v1/build/log", `{}`}},
	"POST /v1/build/result":            {{"/v1/build/result", `{}`}},
	"GET /v1/build/upload":             {{"/v1/build/upload", ""}},
	"POST /v1/runs/{id}/complete":      nil, // completions share one transaction at a time
	"PUT /v1/build/bundle/{digest}":    nil, // stored while it arrives, with the limits of streams
}

// TestCalls_UsePartOfConnections: the calls of a project use a part of the connections for calls.
// All calls together leave connections for other work, and no call waits forever.
func TestCalls_UsePartOfConnections(t *testing.T) {
	t.Parallel()
	router, ok := New(Options{Store: &fake{}}).Handler.(chi.Routes)
	require.True(t, ok)
	require.NoError(t, chi.Walk(router, func(method, route string, _ http.Handler, _ ...func(http.Handler) http.Handler) error {
		requests, listed := asking[method+" "+route]
		require.True(t, listed, "%s %s is not in the table", method, route)
		for _, r := range requests {
			t.Run(fmt.Sprintf("%s %s %s", method, route, r.body), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { takesItsPart(t, method, r.path, r.body) })
			})
		}
		return nil
	}))
}

// takesItsPart sends many requests for two projects to a hanging store.
func takesItsPart(t *testing.T, method, path, body string) {
	t.Helper()
	st := &hanging{kind: store.TokenRunner, under: make(chan struct{}, 1000)}
	if strings.HasPrefix(path, "/v1/build") {
		st.kind = store.TokenBuild
	}
	h := New(Options{Store: st, Logger: slog.New(slog.DiscardHandler)})
	all := int(connectionShare(fakeConnections, callParts))
	if path == "/v1/heartbeat" {
		all = int(connectionShare(fakeConnections, heartbeatParts))
	}
	codes := make(chan int, 1000)
	asks := func(project string, n int) {
		h.owners.Put(store.Key{ProjectID: named(project), ID: known}, named(project))
		for range n {
			go func() { codes <- ask(t, h, project, method, path, body).Code }()
		}
		synctest.Wait()
	}
	asks("greedy", 40)
	require.NotEmpty(t, st.under)
	require.LessOrEqual(t, len(st.under), all/callShare)
	asks("modest", 40)
	require.LessOrEqual(t, len(st.under), all)
	asks("a", 1)
	time.Sleep(2 * queueTimeout) // bubble time, for memory and for a turn
	synctest.Wait()
	time.Sleep(callTimeout)
	synctest.Wait()
	require.Len(t, codes, 81, "no call waits any more")
	require.True(t, h.calls.Free())
	require.True(t, h.beats.Free())
}
