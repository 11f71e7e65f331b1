// SPDX-License-Identifier: Apache-2.0

package environments_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/environments"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// createTestEnvironment makes a test environment and says where it is.
func createTestEnvironment(t testing.TB, w *apiservertest.Project, key string) string {
	t.Helper()
	got := w.Request(t, key, http.MethodPost, "/environments", `{"name":"tests","kind":"test"}`)
	require.Equal(t, http.StatusCreated, got.Code, got.Body)
	return "/environments/" + apiservertest.Decode[environments.Environment](t, got.Body.Bytes()).ID
}

func TestTestSession_StartsAndEnds(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	now := time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
	w.Server.Service.Now = func() time.Time { return now }
	key := w.CreateKey(t, nil)
	path := createTestEnvironment(t, w, key)
	shown := func() *environments.TestSession {
		return apiservertest.Decode[environments.Environment](t, w.Request(t, key, http.MethodGet, path, "").Body.Bytes()).TestSession.Value
	}
	require.Nil(t, shown())
	got := w.Request(t, key, http.MethodPut, path+"/session", `{"holder":"anna","ttl_seconds":60}`)
	require.Equal(t, http.StatusOK, got.Code, got.Body)
	require.JSONEq(t, `{"holder":"anna","expires_at":"2030-01-31T12:01:00Z"}`, got.Body.String())
	require.Equal(t, environments.TestSession{Holder: "anna", ExpiresAt: now.Add(time.Minute)}, *shown())

	for method, call := range map[string][2]string{
		http.MethodPut: {path + "/session", `{"holder":"berta"}`}, http.MethodDelete: {path + "/session?holder=berta", ""},
	} {
		t.Run(method, func(t *testing.T) {
			other := w.Request(t, key, method, call[0], call[1])
			require.Equal(t, http.StatusConflict, other.Code, other.Body)
			require.Equal(t, httpserver.CodeTestSession, apiservertest.Decode[rest.Problem](t, other.Body.Bytes()).Code)
			require.Contains(t, other.Body.String(), "expires at 2030-01-31T12:01:00Z")
		})
	}
	for _, refused := range []struct{ method, path, body string }{{http.MethodDelete, path, ""}, {http.MethodPatch, path, `{"kind":"standard"}`}} {
		t.Run(refused.method+" "+refused.path+" "+refused.body, func(t *testing.T) {
			answer := w.Request(t, key, refused.method, refused.path, refused.body)
			require.Equal(t, http.StatusConflict, answer.Code, answer.Body)
			require.Equal(t, httpserver.CodeTestSession, apiservertest.Decode[rest.Problem](t, answer.Body.Bytes()).Code)
		})
	}

	now = now.Add(59 * time.Second)
	renewed := w.Request(t, key, http.MethodPut, path+"/session", `{"holder":"anna"}`)
	require.Equal(t, now.Add(300*time.Second), apiservertest.Decode[environments.TestSession](t, renewed.Body.Bytes()).ExpiresAt)
	now = now.Add(300 * time.Second)
	require.Nil(t, shown(), "it ends by itself")
	require.Equal(t, http.StatusOK, w.Request(t, key, http.MethodPut, path+"/session", `{"holder":"berta"}`).Code)
	for range 2 {
		require.Equal(t, http.StatusOK, w.Request(t, key, http.MethodDelete, path+"/session?holder=berta", "").Code)
		require.Nil(t, shown())
	}
	require.Equal(t, http.StatusOK, w.Request(t, key, http.MethodDelete, path, "").Code)
}

func TestTestSession_RejectsInvalidCalls(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	path := createTestEnvironment(t, w, key)
	for body, location := range map[string]string{
		`{}`:                                   "body.holder",
		`{"holder":""}`:                        "body.holder",
		`{"holder":"anna","ttl_seconds":9}`:    "body.ttl_seconds",
		`{"holder":"anna","ttl_seconds":3601}`: "body.ttl_seconds",
	} {
		t.Run(body, func(t *testing.T) {
			got := w.Request(t, key, http.MethodPut, path+"/session", body)
			apiservertest.RequireField(t, got.Code, got.Body.Bytes(), location)
		})
	}
	standard := w.Request(t, key, http.MethodPut, "/environments/"+w.EnvironmentID("staging")+"/session", `{"holder":"anna"}`)
	require.Equal(t, http.StatusConflict, standard.Code, standard.Body)
	stale := w.Request(t, key, http.MethodPut, path+"/session", `{"holder":"anna"}`, "If-Match", `"another"`)
	apiservertest.RequireField(t, stale.Code, stale.Body.Bytes(), "header.If-Match")
	require.Equal(t, http.StatusOK, w.Request(t, key, http.MethodPut, path+"/session", `{"holder":"berta"}`).Code, "nobody has begun one")
	limited := w.CreateKey(t, func(k *v1alpha1.APIKeySpec) {
		k.EnvironmentAccess, k.Environments = v1alpha1.AccessSelected, []v1alpha1.EnvironmentName{"staging"}
	})
	require.Equal(t, http.StatusForbidden, w.Request(t, limited, http.MethodPut, path+"/session", `{"holder":"anna"}`).Code)
}

// The second caller gets 409 although no session existed at its check.
func TestTestSession_RejectsSecondConcurrentStart(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	path := createTestEnvironment(t, w, key)
	faster := false
	w.Server.Service.Client = interceptor.NewClient(w.Server.Service.Client.(client.WithWatch), interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			if !faster {
				faster = true
				e := &v1alpha1.Environment{}
				require.NoError(t, w.Client.Get(ctx, client.ObjectKeyFromObject(o), e))
				e.Status.TestSession = &v1alpha1.TestSession{Holder: "berta", ExpiresAt: metav1.NewTime(time.Now().Add(time.Hour))}
				require.NoError(t, w.Client.Status().Update(ctx, e))
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
	got := w.Request(t, key, http.MethodPut, path+"/session", `{"holder":"anna"}`)
	require.Equal(t, http.StatusConflict, got.Code, got.Body)
	require.Contains(t, got.Body.String(), "berta")
}

func TestUpdateEnvironment_ChangesKind(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	require.NoError(t, w.Client.DeleteAllOf(t.Context(), &v1alpha1.Environment{}, client.InNamespace(w.Namespace)))
	key := w.CreateKey(t, nil)
	tests := createTestEnvironment(t, w, key)
	require.Regexp(t, "^tests-", defaultEnvironment(t, w), "the first environment created is the default, whatever its kind")
	require.Equal(t, http.StatusBadRequest, w.Request(t, key, http.MethodDelete, tests, "").Code, "it is the default")
	create := func(name string) string {
		got := w.Request(t, key, http.MethodPost, "/environments", `{"name":"`+name+`"}`)
		require.Equal(t, http.StatusCreated, got.Code, got.Body)
		id := apiservertest.Decode[environments.Environment](t, got.Body.Bytes()).ID
		w.SetReady(t, w.EnvironmentObject(t, id))
		return "/environments/" + id
	}
	first := create("first")
	require.Regexp(t, "^tests-", defaultEnvironment(t, w), "and stays it")
	require.Equal(t, http.StatusOK, w.Request(t, key, http.MethodPost, first+"/set-default", "").Code)
	kind := func(path, kind string) (int, httpserver.Code) {
		got := w.Request(t, key, http.MethodPatch, path, `{"kind":"`+kind+`"}`)
		return got.Code, apiservertest.Decode[rest.Problem](t, got.Body.Bytes()).Code
	}
	status, code := kind(first, "test")
	require.Equal(t, http.StatusBadRequest, status)
	require.Equal(t, httpserver.CodeDefaultEnvironment, code)
	require.Equal(t, http.StatusOK, w.Request(t, key, http.MethodPost, tests+"/set-default", "").Code, "as it becomes where that is asked for")
	status, code = kind(first, "test")
	require.Equal(t, http.StatusBadRequest, status)
	require.Equal(t, httpserver.CodeLastEnvironment, code)
	second := create("second")
	status, _ = kind(second, "test")
	require.Equal(t, http.StatusOK, status)
	status, _ = kind(second, "standard")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, http.StatusBadRequest, w.Request(t, key, http.MethodDelete, tests, "").Code, "it is the default")
	require.Equal(t, http.StatusOK, w.Request(t, key, http.MethodPost, first+"/set-default", "").Code)
	require.Equal(t, http.StatusOK, w.Request(t, key, http.MethodDelete, second, "").Code)
	require.Equal(t, http.StatusOK, w.Request(t, key, http.MethodDelete, tests, "").Code, "one for tests is never the last")
}
