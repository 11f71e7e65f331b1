// SPDX-License-Identifier: Apache-2.0

package apiserver

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
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// tested makes a test environment and says where it is.
func (w *world) tested(t testing.TB, key string) string {
	t.Helper()
	got := w.ask(t, key, http.MethodPost, "/environments", `{"name":"tests","kind":"test"}`)
	require.Equal(t, http.StatusCreated, got.Code, got.Body)
	return "/environments/" + decode[Environment](t, got.Body.Bytes()).ID
}

func TestWhoTestsInAnEnvironment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Date(2030, 1, 31, 12, 0, 0, 0, time.UTC)
	w.server.now = func() time.Time { return now }
	key := w.key(t, nil)
	path := w.tested(t, key)
	shown := func() *TestSession {
		return decode[Environment](t, w.ask(t, key, http.MethodGet, path, "").Body.Bytes()).TestSession.Value
	}
	require.Nil(t, shown())
	got := w.ask(t, key, http.MethodPut, path+"/session", `{"holder":"anna","ttl_seconds":60}`)
	require.Equal(t, http.StatusOK, got.Code, got.Body)
	require.JSONEq(t, `{"holder":"anna","expires_at":"2030-01-31T12:01:00Z"}`, got.Body.String())
	require.Equal(t, TestSession{"anna", now.Add(time.Minute)}, *shown())

	for method, call := range map[string][2]string{
		http.MethodPut: {path + "/session", `{"holder":"berta"}`}, http.MethodDelete: {path + "/session?holder=berta", ""},
	} {
		t.Run(method, func(t *testing.T) {
			other := w.ask(t, key, method, call[0], call[1])
			require.Equal(t, http.StatusConflict, other.Code, other.Body)
			require.Equal(t, httpserver.CodeTestSession, decode[Problem](t, other.Body.Bytes()).Code)
			require.Contains(t, other.Body.String(), "until 2030-01-31T12:01:00Z")
		})
	}
	for _, refused := range []struct{ method, path, body string }{{http.MethodDelete, path, ""}, {http.MethodPatch, path, `{"kind":"standard"}`}} {
		t.Run(refused.method+" "+refused.path+" "+refused.body, func(t *testing.T) {
			answer := w.ask(t, key, refused.method, refused.path, refused.body)
			require.Equal(t, http.StatusConflict, answer.Code, answer.Body)
			require.Equal(t, httpserver.CodeTestSession, decode[Problem](t, answer.Body.Bytes()).Code)
		})
	}

	now = now.Add(59 * time.Second)
	renewed := w.ask(t, key, http.MethodPut, path+"/session", `{"holder":"anna"}`)
	require.Equal(t, now.Add(300*time.Second), decode[TestSession](t, renewed.Body.Bytes()).ExpiresAt)
	now = now.Add(300 * time.Second)
	require.Nil(t, shown(), "it ends by itself")
	require.Equal(t, http.StatusOK, w.ask(t, key, http.MethodPut, path+"/session", `{"holder":"berta"}`).Code)
	for range 2 {
		require.Equal(t, http.StatusOK, w.ask(t, key, http.MethodDelete, path+"/session?holder=berta", "").Code)
		require.Nil(t, shown())
	}
	require.Equal(t, http.StatusOK, w.ask(t, key, http.MethodDelete, path, "").Code)
}

func TestTestSessionsThatAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key(t, nil)
	path := w.tested(t, key)
	for body, location := range map[string]string{
		`{}`:                                   "body.holder",
		`{"holder":""}`:                        "body.holder",
		`{"holder":"anna","ttl_seconds":9}`:    "body.ttl_seconds",
		`{"holder":"anna","ttl_seconds":3601}`: "body.ttl_seconds",
	} {
		t.Run(body, func(t *testing.T) {
			got := w.ask(t, key, http.MethodPut, path+"/session", body)
			requireField(t, got.Code, got.Body.Bytes(), location)
		})
	}
	standard := w.ask(t, key, http.MethodPut, "/environments/"+w.environmentID("staging")+"/session", `{"holder":"anna"}`)
	require.Equal(t, http.StatusConflict, standard.Code, standard.Body)
	stale := w.ask(t, key, http.MethodPut, path+"/session", `{"holder":"anna"}`, "If-Match", `"another"`)
	requireField(t, stale.Code, stale.Body.Bytes(), "header.If-Match")
	require.Equal(t, http.StatusOK, w.ask(t, key, http.MethodPut, path+"/session", `{"holder":"berta"}`).Code, "nobody has begun one")
	limited := w.key(t, func(k *v1alpha1.APIKeySpec) {
		k.EnvironmentAccess, k.Environments = v1alpha1.AccessSelected, []v1alpha1.EnvironmentName{"staging"}
	})
	require.Equal(t, http.StatusForbidden, w.ask(t, limited, http.MethodPut, path+"/session", `{"holder":"anna"}`).Code)
}

// TestOfTwoWhoBeginASessionOneHasIt: the other is told, although nobody tested when it looked.
func TestOfTwoWhoBeginASessionOneHasIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key(t, nil)
	path := w.tested(t, key)
	faster := false
	w.server.client = interceptor.NewClient(w.server.client.(client.WithWatch), interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			if !faster {
				faster = true
				e := &v1alpha1.Environment{}
				require.NoError(t, w.client.Get(ctx, client.ObjectKeyFromObject(o), e))
				e.Status.TestSession = &v1alpha1.TestSession{Holder: "berta", ExpiresAt: metav1.NewTime(time.Now().Add(time.Hour))}
				require.NoError(t, w.client.Status().Update(ctx, e))
			}
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
	got := w.ask(t, key, http.MethodPut, path+"/session", `{"holder":"anna"}`)
	require.Equal(t, http.StatusConflict, got.Code, got.Body)
	require.Contains(t, got.Body.String(), "berta")
}

func TestKindsOfEnvironments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.NoError(t, w.client.DeleteAllOf(t.Context(), &v1alpha1.Environment{}, client.InNamespace(w.namespace)))
	key := w.key(t, nil)
	tests := w.tested(t, key)
	require.Regexp(t, "^tests-", w.chosen(t), "the first environment created is the default, whatever its kind")
	require.Equal(t, http.StatusBadRequest, w.ask(t, key, http.MethodDelete, tests, "").Code, "it is the default")
	create := func(name string) string {
		got := w.ask(t, key, http.MethodPost, "/environments", `{"name":"`+name+`"}`)
		require.Equal(t, http.StatusCreated, got.Code, got.Body)
		id := decode[Environment](t, got.Body.Bytes()).ID
		w.settle(t, w.stored(t, id))
		return "/environments/" + id
	}
	first := create("first")
	require.Regexp(t, "^tests-", w.chosen(t), "and stays it")
	require.Equal(t, http.StatusOK, w.ask(t, key, http.MethodPost, first+"/set-default", "").Code)
	kind := func(path, kind string) (int, httpserver.Code) {
		got := w.ask(t, key, http.MethodPatch, path, `{"kind":"`+kind+`"}`)
		return got.Code, decode[Problem](t, got.Body.Bytes()).Code
	}
	status, code := kind(first, "test")
	require.Equal(t, http.StatusBadRequest, status)
	require.Equal(t, httpserver.CodeDefaultEnvironment, code)
	require.Equal(t, http.StatusOK, w.ask(t, key, http.MethodPost, tests+"/set-default", "").Code, "as it becomes where that is asked for")
	status, code = kind(first, "test")
	require.Equal(t, http.StatusBadRequest, status)
	require.Equal(t, httpserver.CodeLastEnvironment, code)
	second := create("second")
	status, _ = kind(second, "test")
	require.Equal(t, http.StatusOK, status)
	status, _ = kind(second, "standard")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, http.StatusBadRequest, w.ask(t, key, http.MethodDelete, tests, "").Code, "it is the default")
	require.Equal(t, http.StatusOK, w.ask(t, key, http.MethodPost, first+"/set-default", "").Code)
	require.Equal(t, http.StatusOK, w.ask(t, key, http.MethodDelete, second, "").Code)
	require.Equal(t, http.StatusOK, w.ask(t, key, http.MethodDelete, tests, "").Code, "one for tests is never the last")
}
