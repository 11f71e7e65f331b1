// SPDX-License-Identifier: Apache-2.0

package deployments_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// followLog opens the stream of a deployment's log.
func followLog(t testing.TB, w *apiservertest.Project, key, id string, after int) *apiservertest.Follower {
	t.Helper()
	return w.Follow(t, w.Server, key, "/deployments/"+id+"/logs", after)
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
	require.Equal(t, `id: 1 event: log data: {"text":"fetching\n"}`, f.Next())
	write(1, "pack")
	require.Equal(t, `id: 2 event: log data: {"text":"pack"}`, f.Next())
	write(2, "ing\n")
	require.Equal(t, `id: 3 event: log data: {"text":"ing\n"}`, f.Next())
	require.NoError(t, w.Store.EndDeployment(t.Context(), d, store.DeploymentFailed, store.FailureBuild, "no"))
	require.Regexp(t, `^id: 4 event: log data: {"text":"\d\d:\d\d:\d\d the deployment failed: build_failed: no\\n"}$`, f.Next())
	require.Equal(t, `id: 4 event: end data: {"status":"failed"}`, f.Next())
	require.Empty(t, f.Next(), "it ends with the deployment")
	require.Zero(t, w.Server.Service.Streams.Taken())

	f = followLog(t, w.Project, key, id.String(), 2)
	require.Regexp(t, `^id: 4 event: log data: {"text":"ing\\n.* build_failed: no\\n"}$`, f.Next(), "from where its reader was")
	require.Equal(t, `id: 4 event: end data: {"status":"failed"}`, f.Next())
	f = followLog(t, w.Project, key, w.IDs["deployment"], 0)
	require.Equal(t, `id: 1 event: log data: {"text":"packed 1 agent\n"}`, f.Next())
	require.Equal(t, `id: 1 event: end data: {"status":"deployed"}`, f.Next())
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
	require.Equal(t, `id: 1 event: log data: {"text":"fetching\n"}`, f.Next())
}

// The stream ends when the reader disconnects or loses its permission, and when the facade stops.
func TestDeploymentLog_EndsStream(t *testing.T) {
	t.Parallel()
	stop := make(chan struct{})
	for name, end := range map[string]func(*apiservertest.ProjectWithHistory, *apiservertest.Follower){
		"client disconnects": func(_ *apiservertest.ProjectWithHistory, f *apiservertest.Follower) { f.Leave() },
		"the facade stops":   func(*apiservertest.ProjectWithHistory, *apiservertest.Follower) { close(stop) },
		"the key is revoked": func(w *apiservertest.ProjectWithHistory, _ *apiservertest.Follower) {
			changeKey(t, w.Project, func(k *v1alpha1.APIKeySpec) { k.Revoked = true })
		},
		"the key is narrowed": func(w *apiservertest.ProjectWithHistory, _ *apiservertest.Follower) {
			changeKey(t, w.Project, func(k *v1alpha1.APIKeySpec) { k.Access = v1alpha1.AccessSelected })
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := apiservertest.NewProjectWithHistory(t)
			if name == "the facade stops" {
				w.Server.Service.Stopping = stop
			}
			f := followLog(t, w.Project, w.CreateKey(t, nil), w.OpenDeployment(t).String(), 0)
			require.EqualValues(t, 1, w.Server.Service.Streams.Taken())
			end(w, f)
			require.Empty(t, f.Next())
			require.Eventually(t, func() bool { return w.Server.Service.Streams.Taken() == 0 }, time.Minute, time.Millisecond, "%s: its place is free", name)
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
	require.NoError(t, w.Server.Service.Streams.Take(w.ProjectID, rest.MaxStreams/rest.StreamShare))
	apiservertest.RequireCode(t, http.StatusTooManyRequests, httpserver.CodeRateLimited, w.Project, key, http.MethodGet, path, "")
	w.Server.Service.Streams.Give(w.ProjectID, rest.MaxStreams/rest.StreamShare)
	for range rest.MaxStreams {
		if w.Server.Service.Streams.Take(uuid.New(), 1) != nil {
			break
		}
	}
	apiservertest.RequireCode(t, http.StatusServiceUnavailable, httpserver.CodeBusy, w.Project, key, http.MethodGet, path, "")
	got := w.Request(t, key, http.MethodGet, path, "", "Last-Event-ID", "-1")
	apiservertest.RequireField(t, got.Code, got.Body.Bytes(), "header.Last-Event-ID")
}
