// SPDX-License-Identifier: Apache-2.0

package deployments_test

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
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/deployments"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// follower reads a stream of events over a connection.
type follower struct {
	*http.Response
	lines *bufio.Scanner
	leave context.CancelFunc
}

// followLog opens the stream of a deployment's log.
func followLog(t testing.TB, w *apiservertest.Project, key, id string, from int) *follower {
	t.Helper()
	server := httptest.NewServer(w.Server.Handler())
	t.Cleanup(server.Close)
	ctx, leave := context.WithCancel(t.Context())
	t.Cleanup(leave)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/v1/projects/"+w.ProjectID.String()+"/deployments/"+id+"/logs", nil)
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

func TestDeploymentLog_FollowsOpenBuild(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, id := w.CreateKey(t, nil), w.OpenDeployment(t)
	d := store.Key{ProjectID: w.ProjectID, ID: id}
	write := func(number int64, text string) {
		require.NoError(t, w.Store.AppendBuildLog(t.Context(), d, number, text))
	}
	write(0, "fetching\n")
	f := followLog(t, w.Project, key, id.String(), 0)
	require.Equal(t, `id: 1 event: log data: {"text":"fetching\n"}`, f.next())
	write(1, "pack")
	require.Equal(t, `id: 2 event: log data: {"text":"pack"}`, f.next())
	write(2, "ing\n")
	require.Equal(t, `id: 3 event: log data: {"text":"ing\n"}`, f.next())
	require.NoError(t, w.Store.EndDeployment(t.Context(), d, store.DeploymentFailed, store.FailureBuild, "no"))
	require.Regexp(t, `^id: 4 event: log data: {"text":"\d\d:\d\d:\d\d the deployment failed: build_failed: no\\n"}$`, f.next())
	require.Equal(t, `id: 4 event: end data: {"status":"failed"}`, f.next())
	require.Empty(t, f.next(), "it ends with the deployment")
	require.Zero(t, w.Server.Deployments.Streams.Taken())

	f = followLog(t, w.Project, key, id.String(), 2)
	require.Regexp(t, `^id: 4 event: log data: {"text":"ing\\n.* build_failed: no\\n"}$`, f.next(), "from where its reader was")
	require.Equal(t, `id: 4 event: end data: {"status":"failed"}`, f.next())
	f = followLog(t, w.Project, key, w.IDs["deployment"], 0)
	require.Equal(t, `id: 1 event: log data: {"text":"packed 1 agent\n"}`, f.next())
	require.Equal(t, `id: 1 event: end data: {"status":"deployed"}`, f.next())
}

// The log also works for a deployment that only Kubernetes knows.
func TestDeploymentLog_StartsWithWaitingDeployment(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	made := w.CreateDeployment(t, key, "/deployments?environment_id="+w.IDs["environment"], "", http.StatusCreated)
	f := followLog(t, w.Project, key, made.ID, 0)
	d, err := w.RecordDeployment(t.Context(), w.DeploymentObject(t, made.ID))
	require.NoError(t, err)
	require.NoError(t, w.Store.StartBuild(t.Context(), d, ""))
	require.NoError(t, w.Store.AppendBuildLog(t.Context(), d, 0, "fetching\n"))
	require.Equal(t, `id: 1 event: log data: {"text":"fetching\n"}`, f.next())
}

// The stream ends when the reader disconnects or loses its permission, and when the facade stops.
func TestDeploymentLog_EndsStream(t *testing.T) {
	t.Parallel()
	stop := make(chan struct{})
	for name, end := range map[string]func(*apiservertest.ProjectWithHistory, *follower){
		"its reader goes":  func(_ *apiservertest.ProjectWithHistory, f *follower) { f.leave() },
		"the facade stops": func(*apiservertest.ProjectWithHistory, *follower) { close(stop) },
		"the key is revoked": func(w *apiservertest.ProjectWithHistory, _ *follower) {
			changeKey(t, w.Project, func(k *v1alpha1.APIKeySpec) { k.Revoked = true })
		},
		"the key is narrowed": func(w *apiservertest.ProjectWithHistory, _ *follower) {
			changeKey(t, w.Project, func(k *v1alpha1.APIKeySpec) { k.Access = v1alpha1.AccessSelected })
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := apiservertest.NewProjectWithHistory(t)
			if name == "the facade stops" {
				w.Server.Deployments.Stopping = stop
			}
			f := followLog(t, w.Project, w.CreateKey(t, nil), w.OpenDeployment(t).String(), 0)
			require.EqualValues(t, 1, w.Server.Deployments.Streams.Taken())
			end(w, f)
			require.Empty(t, f.next())
			require.Eventually(t, func() bool { return w.Server.Deployments.Streams.Taken() == 0 }, time.Minute, time.Millisecond, "%s: its place is free", name)
		})
	}
}

// changeKey changes the keys of the project.
func changeKey(t testing.TB, w *apiservertest.Project, change func(*v1alpha1.APIKeySpec)) {
	t.Helper()
	var list v1alpha1.APIKeyList
	require.NoError(t, w.Client.List(t.Context(), &list))
	for i := range list.Items {
		if list.Items[i].Namespace == w.Namespace {
			change(&list.Items[i].Spec)
			require.NoError(t, w.Client.Update(t.Context(), &list.Items[i]))
		}
	}
}

// Both a project and the facade have a limit.
func TestDeploymentLog_LimitsStreams(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, path := w.CreateKey(t, nil), "/deployments/"+w.OpenDeployment(t).String()+"/logs"
	require.NoError(t, w.Server.Deployments.Streams.Take(w.ProjectID, deployments.MaxStreams/deployments.StreamShare))
	apiservertest.RequireCode(t, http.StatusTooManyRequests, httpserver.CodeRateLimited, w.Project, key, http.MethodGet, path, "")
	w.Server.Deployments.Streams.Give(w.ProjectID, deployments.MaxStreams/deployments.StreamShare)
	for range deployments.MaxStreams {
		if w.Server.Deployments.Streams.Take(uuid.New(), 1) != nil {
			break
		}
	}
	apiservertest.RequireCode(t, http.StatusServiceUnavailable, httpserver.CodeBusy, w.Project, key, http.MethodGet, path, "")
	got := w.Request(t, key, http.MethodGet, path, "", "Last-Event-ID", "-1")
	apiservertest.RequireField(t, got.Code, got.Body.Bytes(), "header.Last-Event-ID")
}
