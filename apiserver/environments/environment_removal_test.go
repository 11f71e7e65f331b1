// SPDX-License-Identifier: Apache-2.0

package environments_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// newTwoStandard is a world with two standard environments, production and staging, and one for tests
// that is the default; other is a second replica.
func newTwoStandard(t *testing.T) (w *apiservertest.Project, other *apiserver.Server) {
	t.Helper()
	w = apiservertest.NewProject(t)
	w.Create(t, &v1alpha1.Environment{ObjectMeta: w.Meta("tests"), Spec: v1alpha1.EnvironmentSpec{Kind: v1alpha1.EnvironmentTest}})
	project := w.ProjectObject(t)
	project.Spec.DefaultEnvironment = "tests"
	require.NoError(t, w.Client.Update(t.Context(), project))
	return w, w.NewReplica(t, nil)
}

// standardEnvironments are the names of the standard environments that are there to stay.
func standardEnvironments(t testing.TB, w *apiservertest.Project) (names []string) {
	t.Helper()
	var list v1alpha1.EnvironmentList
	require.NoError(t, w.Client.List(t.Context(), &list, client.InNamespace(w.Namespace)))
	for _, e := range list.Items {
		if !e.IsTest() && e.DeletionTimestamp == nil {
			names = append(names, e.Name)
		}
	}
	return names
}

// writeKind is what a facade writes: that of the calls under way into the project, a change, or a deletion.
type writeKind string

const (
	writesProject     writeKind = "patch Project"
	writesEnvironment writeKind = "patch Environment"
	deletes           writeKind = "delete Environment"
)

// beforeWrite runs something in the middle of the facade's next request: once, before it writes that.
func beforeWrite(t *testing.T, w *apiservertest.Project, next writeKind, do func()) {
	t.Helper()
	working, done := w.Server.Service.Client, false
	reached := func(verb string, o client.Object) {
		if object, ok := o.(v1alpha1.ConditionedObject); ok && !done && writeKind(verb+" "+object.ObjectKind()) == next {
			done = true
			do()
		}
	}
	w.Server.Service.Client = interceptor.NewClient(working.(client.WithWatch), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			reached("patch", o)
			return c.Patch(ctx, o, p, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			reached("delete", o)
			return c.Delete(ctx, o, opts...)
		},
	})
	t.Cleanup(func() { require.True(t, done, "nothing came in the middle") })
}

// Each call alone would be valid. The second call runs before the next write of the first call.
func TestDeleteEnvironment_RejectsOneOfTwoConcurrentCalls(t *testing.T) {
	t.Parallel()
	const (
		remove    = http.MethodDelete + " /environments/"
		toTest    = http.MethodPatch + " /environments/"
		asDefault = http.MethodPost + " /environments/"
	)
	for name, c := range map[string]struct {
		first, firstOf   string
		next             writeKind
		second, secondOf string
		want, wantSecond int
		standards        []string
		chosen           string
	}{
		"two deletions, the first is recorded first":                        {remove, "production", deletes, remove, "staging", 200, 400, []string{"staging"}, "tests"},
		"two deletions, the second is recorded first":                       {remove, "production", writesProject, remove, "staging", 400, 200, []string{"production"}, "tests"},
		"a deletion, then a change of kind":                                 {remove, "production", deletes, toTest, "staging", 200, 400, []string{"staging"}, "tests"},
		"a deletion, overtaken by a change of kind":                         {remove, "production", writesProject, toTest, "staging", 400, 200, []string{"production"}, "tests"},
		"a change of kind, then a deletion":                                 {toTest, "production", writesEnvironment, remove, "staging", 200, 400, []string{"staging"}, "tests"},
		"a change of kind, overtaken by a deletion":                         {toTest, "production", writesProject, remove, "staging", 400, 200, []string{"production"}, "tests"},
		"a deletion, then set-default of the same environment":              {remove, "production", deletes, asDefault, "production", 200, 409, []string{"staging"}, "tests"},
		"a deletion, overtaken by set-default":                              {remove, "production", writesProject, asDefault, "production", 400, 200, []string{"production", "staging"}, "production"},
		"set-default, overtaken by a deletion":                              {asDefault, "production", writesProject, remove, "production", 404, 200, []string{"staging"}, "tests"},
		"a change of kind, then set-default":                                {toTest, "production", writesEnvironment, asDefault, "production", 200, 409, []string{"staging"}, "tests"},
		"the same deletion twice":                                           {remove, "production", deletes, remove, "production", 200, 200, []string{"staging"}, "tests"},
		"a deletion, then the deletion of a test environment":               {remove, "production", deletes, remove, "tests", 200, 400, []string{"staging"}, "tests"},
		"a change of kind, overtaken by a deletion of the same environment": {toTest, "production", writesEnvironment, remove, "production", 404, 200, []string{"staging"}, "tests"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, other := newTwoStandard(t)
			key := w.CreateKey(t, nil)
			call := func(to *apiserver.Server, what, of string) *httptest.ResponseRecorder {
				method, path, _ := strings.Cut(what, " ")
				path, body := "/v1/projects/"+w.ProjectID.String()+path+w.EnvironmentID(of), ""
				switch method {
				case http.MethodPatch:
					body = `{"kind":"test"}`
				case http.MethodPost:
					path += "/set-default"
				}
				return w.SendTo(t, to, key, method, path, body)
			}
			var second *httptest.ResponseRecorder
			beforeWrite(t, w, c.next, func() { second = call(other, c.second, c.secondOf) })
			first := call(w.Server, c.first, c.firstOf)
			require.Equal(t, c.want, first.Code, first.Body)
			require.Equal(t, c.wantSecond, second.Code, second.Body)
			require.Equal(t, c.standards, standardEnvironments(t, w))
			require.Equal(t, c.chosen, defaultEnvironment(t, w))
			require.NotContains(t, w.ProjectObject(t).Annotations, "agentplatform.dev/leaving", "no call is under way")
		})
	}
}

// The deletion was valid for an environment of kind test.
func TestDeleteEnvironment_ChecksAgainIfKindChanged(t *testing.T) {
	t.Parallel()
	w, other := newTwoStandard(t)
	key := w.CreateKey(t, nil)
	w.Create(t, &v1alpha1.Environment{ObjectMeta: w.Meta("trial"), Spec: v1alpha1.EnvironmentSpec{Kind: v1alpha1.EnvironmentTest}})
	for _, name := range []string{"production", "staging"} {
		require.NoError(t, w.Client.Delete(t.Context(), w.EnvironmentObject(t, w.EnvironmentID(name))))
	}
	beforeWrite(t, w, deletes, func() {
		got := w.SendTo(t, other, key, http.MethodPatch, "/v1/projects/"+w.ProjectID.String()+"/environments/"+w.EnvironmentID("trial"), `{"kind":"standard"}`)
		require.Equal(t, http.StatusOK, got.Code, got.Body)
	})
	apiservertest.RequireCode(t, http.StatusBadRequest, httpserver.CodeLastEnvironment, w, key, http.MethodDelete, "/environments/"+w.EnvironmentID("trial"), "")
	require.Equal(t, []string{"trial"}, standardEnvironments(t, w))
}

// The new kind counts once the call that changes it has ended.
func TestDeleteEnvironment_IgnoresUncommittedKind(t *testing.T) {
	t.Parallel()
	w, other := newTwoStandard(t)
	key := w.CreateKey(t, nil)
	require.NoError(t, w.Client.Delete(t.Context(), w.EnvironmentObject(t, w.EnvironmentID("staging"))))
	production := "/v1/projects/" + w.ProjectID.String() + "/environments/" + w.EnvironmentID("production")
	writes := 0
	w.Server.Service.Client = interceptor.NewClient(w.Server.Service.Client.(client.WithWatch), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if _, ok := o.(*v1alpha1.Project); ok {
				writes++
			}
			if writes == 2 { // the environment is written, and the call is about to end
				require.Equal(t, []string{"production", "tests"}, standardEnvironments(t, w))
				got := w.SendTo(t, other, key, http.MethodDelete, production, "")
				require.Equal(t, http.StatusBadRequest, got.Code, got.Body)
			}
			return c.Patch(ctx, o, p, opts...)
		},
	})
	got := w.Request(t, key, http.MethodPatch, "/environments/"+w.EnvironmentID("tests"), `{"kind":"standard"}`)
	require.Equal(t, http.StatusOK, got.Code, got.Body)
	require.Equal(t, 2, writes)
	require.Equal(t, []string{"production", "tests"}, standardEnvironments(t, w))
}

// An environment that waits for its dependents counts as deleted.
func TestDeleteEnvironment_IgnoresTerminatingEnvironment(t *testing.T) {
	t.Parallel()
	w, _ := newTwoStandard(t)
	key := w.CreateKey(t, nil)
	require.NoError(t, w.Client.Delete(t.Context(), w.EnvironmentObject(t, w.EnvironmentID("staging")), client.PropagationPolicy(metav1.DeletePropagationForeground)))
	require.NotNil(t, w.EnvironmentObject(t, w.EnvironmentID("staging")).DeletionTimestamp)
	production := "/environments/" + w.EnvironmentID("production")
	apiservertest.RequireCode(t, http.StatusBadRequest, httpserver.CodeLastEnvironment, w, key, http.MethodDelete, production, "")
	apiservertest.RequireCode(t, http.StatusBadRequest, httpserver.CodeLastEnvironment, w, key, http.MethodPatch, production, `{"kind":"test"}`)
	apiservertest.RequireCode(t, http.StatusConflict, httpserver.CodeConflict, w, key, http.MethodPost, "/environments/"+w.EnvironmentID("staging")+"/set-default", "")
	require.Equal(t, "tests", defaultEnvironment(t, w))
}

// A call without an outcome counts for a while. A rejected call does not count, and a repeated call finds its entry.
func TestEnvironmentLeaving_ExpiresUnknownCalls(t *testing.T) {
	t.Parallel()
	w, _ := newTwoStandard(t)
	key := w.CreateKey(t, nil)
	now := time.Now()
	w.Server.Service.Now = func() time.Time { return now }
	production, staging := "/environments/"+w.EnvironmentID("production"), "/environments/"+w.EnvironmentID("staging")
	failing := func(err error) int {
		heal := w.FailWrites(func(verb string, _ client.Object) error {
			if verb == "delete" {
				return err
			}
			return nil
		})
		defer heal()
		return w.Request(t, key, http.MethodDelete, production, "").Code
	}
	environments := schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "environments"}
	require.Equal(t, http.StatusForbidden, failing(apierrors.NewForbidden(environments, "production", errors.New("a policy keeps it"))))
	require.NotContains(t, w.ProjectObject(t).Annotations, "agentplatform.dev/leaving", "it stays")
	require.Equal(t, http.StatusServiceUnavailable, failing(apierrors.NewServiceUnavailable("restarting")))
	require.Equal(t, string(w.EnvironmentObject(t, w.EnvironmentID("production")).UID)+"="+now.UTC().Format(time.RFC3339), w.ProjectObject(t).Annotations["agentplatform.dev/leaving"])

	apiservertest.RequireCode(t, http.StatusBadRequest, httpserver.CodeLastEnvironment, w, key, http.MethodDelete, staging, "")
	now = now.Add(5*time.Minute + time.Second)
	require.Equal(t, http.StatusOK, w.Request(t, key, http.MethodDelete, staging, "").Code, "who asked for the other one is gone")
	apiservertest.RequireCode(t, http.StatusBadRequest, httpserver.CodeLastEnvironment, w, key, http.MethodDelete, production, "")
	require.Equal(t, []string{"production"}, standardEnvironments(t, w))

	w.Create(t, &v1alpha1.Environment{ObjectMeta: w.Meta("next")})
	require.Equal(t, http.StatusServiceUnavailable, failing(apierrors.NewServiceUnavailable("restarting")))
	require.Equal(t, http.StatusOK, w.Request(t, key, http.MethodDelete, production, "").Code, "a repetition ends it")
	require.Equal(t, []string{"next"}, standardEnvironments(t, w))
}

// The next call removes invalid text of a tenant.
func TestEnvironmentLeaving_ToleratesInvalidAnnotation(t *testing.T) {
	t.Parallel()
	w, _ := newTwoStandard(t)
	key := w.CreateKey(t, nil)
	staging := string(w.EnvironmentObject(t, w.EnvironmentID("staging")).UID)
	said := func(text string) {
		project := w.ProjectObject(t)
		project.Annotations = map[string]string{"agentplatform.dev/leaving": text, "example.com/theirs": "stays"}
		require.NoError(t, w.Client.Update(t.Context(), project))
	}
	for _, text := range []string{
		"", " ", "=", "==", "\n", staging, staging + "=", staging + "=soon", "{}",
		staging + "=9999-12-31T23:59:59Z", staging + "=" + time.Now().Add(time.Hour).UTC().Format(time.RFC3339), staging + "=0001-01-01T00:00:00Z",
		strings.Repeat("x ", 100_000),
	} {
		said(text)
		got := w.Request(t, key, http.MethodDelete, "/environments/"+w.EnvironmentID("production"), "")
		require.Equal(t, http.StatusOK, got.Code, "%q: %s", text, got.Body)
		require.Equal(t, map[string]string{"example.com/theirs": "stays"}, w.ProjectObject(t).Annotations, text)
		w.Create(t, &v1alpha1.Environment{ObjectMeta: w.Meta("production")})
	}
	said(staging + "=" + time.Now().UTC().Format(time.RFC3339))
	apiservertest.RequireCode(t, http.StatusBadRequest, httpserver.CodeLastEnvironment, w, key, http.MethodDelete, "/environments/"+w.EnvironmentID("production"), "")
}
