// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bufio"
	"context"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// follower reads a stream of events over a connection.
type follower struct {
	*http.Response
	lines *bufio.Scanner
	leave context.CancelFunc
}

// follow opens the stream of a deployment's log.
func (w *world) follow(t testing.TB, key, id string, from int) *follower {
	t.Helper()
	server := httptest.NewServer(w.server.Handler())
	t.Cleanup(server.Close)
	ctx, leave := context.WithCancel(t.Context())
	t.Cleanup(leave)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/v1/projects/"+w.projectID.String()+"/deployments/"+id+"/logs", nil)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+key)
	if from > 0 {
		request.Header.Set("Last-Event-ID", strconv.Itoa(from))
	}
	answer, err := server.Client().Do(request)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, answer.StatusCode)
	require.Equal(t, "text/event-stream", answer.Header.Get("Content-Type"))
	return &follower{Response: answer, lines: bufio.NewScanner(answer.Body), leave: leave}
}

// next is the next event; "" at the end of the stream.
func (f *follower) next() string {
	var event []string
	for f.lines.Scan() {
		switch line := f.lines.Text(); {
		case line == "" && len(event) > 0:
			return strings.Join(event, " ")
		case line != "" && line != ":":
			event = append(event, line)
		}
	}
	return ""
}

func TestALogIsFollowedWhileItIsWritten(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key, id := w.key(t, nil), w.building(t)
	d := store.Key{ProjectID: w.projectID, ID: id}
	write := func(number int64, text string) { require.NoError(t, w.db.AppendBuildLog(t.Context(), d, number, text)) }
	write(0, "fetching\n")
	f := w.follow(t, key, id.String(), 0)
	require.Equal(t, `id: 1 event: log data: {"text":"fetching\n"}`, f.next())
	write(1, "pack")
	require.Equal(t, `id: 2 event: log data: {"text":"pack"}`, f.next())
	write(2, "ing\n")
	require.Equal(t, `id: 3 event: log data: {"text":"ing\n"}`, f.next())
	require.NoError(t, w.db.EndDeployment(t.Context(), d, store.DeploymentFailed, store.FailureBuild, "no"))
	require.Regexp(t, `^id: 4 event: log data: {"text":"\d\d:\d\d:\d\d the deployment failed: build_failed: no\\n"}$`, f.next())
	require.Equal(t, `id: 4 event: end data: {"status":"failed"}`, f.next())
	require.Empty(t, f.next(), "it ends with the deployment")
	require.Zero(t, w.server.streams.Taken())

	f = w.follow(t, key, id.String(), 2)
	require.Regexp(t, `^id: 4 event: log data: {"text":"ing\\n.* build_failed: no\\n"}$`, f.next(), "from where its reader was")
	require.Equal(t, `id: 4 event: end data: {"status":"failed"}`, f.next())
	f = w.follow(t, key, w.ids["deployment"], 0)
	require.Equal(t, `id: 1 event: log data: {"text":"packed 1 agent\n"}`, f.next())
	require.Equal(t, `id: 1 event: end data: {"status":"deployed"}`, f.next())
}

// TestTheLogOfADeploymentThatWaitsBeginsWithIt: also of one that only Kubernetes knows.
func TestTheLogOfADeploymentThatWaitsBeginsWithIt(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	made := w.deployed(t, key, "/deployments?environment_id="+w.ids["environment"], "", http.StatusCreated)
	f := w.follow(t, key, made.ID, 0)
	d, err := w.begin(t.Context(), w.deploymentObject(t, made.ID))
	require.NoError(t, err)
	require.NoError(t, w.db.StartBuild(t.Context(), d, ""))
	require.NoError(t, w.db.AppendBuildLog(t.Context(), d, 0, "fetching\n"))
	require.Equal(t, `id: 1 event: log data: {"text":"fetching\n"}`, f.next())
}

// TestAStreamEnds: when its reader goes, may read no more, or the facade stops.
func TestAStreamEnds(t *testing.T) {
	t.Parallel()
	stop := make(chan struct{})
	for name, end := range map[string]func(*past, *follower){
		"its reader goes":  func(_ *past, f *follower) { f.leave() },
		"the facade stops": func(*past, *follower) { close(stop) },
		"the key is revoked": func(w *past, _ *follower) {
			w.changeKey(t, func(k *v1alpha1.APIKeySpec) { k.Revoked = true })
		},
		"the key is narrowed": func(w *past, _ *follower) {
			w.changeKey(t, func(k *v1alpha1.APIKeySpec) { k.Access = v1alpha1.AccessSelected })
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newPast(t)
			if name == "the facade stops" {
				w.server.stopping = stop
			}
			f := w.follow(t, w.key(t, nil), w.building(t).String(), 0)
			require.EqualValues(t, 1, w.server.streams.Taken())
			end(w, f)
			require.Empty(t, f.next())
			require.Eventually(t, func() bool { return w.server.streams.Taken() == 0 }, time.Minute, time.Millisecond, "%s: its place is free", name)
		})
	}
}

// changeKey changes the keys of the project.
func (w *world) changeKey(t testing.TB, change func(*v1alpha1.APIKeySpec)) {
	t.Helper()
	var list v1alpha1.APIKeyList
	require.NoError(t, w.client.List(t.Context(), &list))
	for i := range list.Items {
		if list.Items[i].Namespace == w.namespace {
			change(&list.Items[i].Spec)
			require.NoError(t, w.client.Update(t.Context(), &list.Items[i]))
		}
	}
}

// TestStreamsAreBounded: a project's, and all.
func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key, path := w.key(t, nil), "/deployments/"+w.building(t).String()+"/logs"
	require.NoError(t, w.server.streams.Take(w.projectID, maxStreams/streamShare))
	requireCode(t, http.StatusTooManyRequests, httpserver.CodeRateLimited, w.world, key, http.MethodGet, path, "")
	w.server.streams.Give(w.projectID, maxStreams/streamShare)
	for range maxStreams {
		if w.server.streams.Take(uuid.New(), 1) != nil {
			break
		}
	}
	requireCode(t, http.StatusServiceUnavailable, httpserver.CodeBusy, w.world, key, http.MethodGet, path, "")
	got := w.ask(t, key, http.MethodGet, path, "", "Last-Event-ID", "-1")
	requireField(t, got.Code, got.Body.Bytes(), "header.Last-Event-ID")
}
