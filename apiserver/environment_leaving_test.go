// SPDX-License-Identifier: Apache-2.0

package apiserver

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
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// newTwoStandard is a world with two standard environments, production and staging, and one for tests
// that is the default; other is a second replica.
func newTwoStandard(t *testing.T) (w *world, other *Server) {
	t.Helper()
	w = newWorld(t)
	w.create(t, &v1alpha1.Environment{ObjectMeta: w.meta("tests"), Spec: v1alpha1.EnvironmentSpec{Kind: v1alpha1.EnvironmentTest}})
	project := w.chosenProject(t)
	project.Spec.DefaultEnvironment = "tests"
	require.NoError(t, w.client.Update(t.Context(), project))
	return w, w.facade(t, nil)
}

// standards are the names of the standard environments that are there to stay.
func (w *world) standards(t testing.TB) (names []string) {
	t.Helper()
	var list v1alpha1.EnvironmentList
	require.NoError(t, w.client.List(t.Context(), &list, client.InNamespace(w.namespace)))
	for _, e := range list.Items {
		if !e.IsTest() && e.DeletionTimestamp == nil {
			names = append(names, e.Name)
		}
	}
	return names
}

// written is what a facade writes: that of the calls under way into the project, a change, or a deletion.
type written string

const (
	writesProject     written = "patch Project"
	writesEnvironment written = "patch Environment"
	deletes           written = "delete Environment"
)

// before runs something in the middle of the facade's next request: once, before it writes that.
func (w *world) before(t *testing.T, next written, do func()) {
	t.Helper()
	working, done := w.server.client, false
	reached := func(verb string, o client.Object) {
		if object, ok := o.(v1alpha1.ConditionedObject); ok && !done && written(verb+" "+object.ObjectKind()) == next {
			done = true
			do()
		}
	}
	w.server.client = interceptor.NewClient(working.(client.WithWatch), interceptor.Funcs{
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

// TestOfTwoCallsAtOnceOneIsRefused: each by itself would be right; the second runs in the middle of the
// first, before what is written next.
func TestOfTwoCallsAtOnceOneIsRefused(t *testing.T) {
	t.Parallel()
	const (
		remove    = http.MethodDelete + " /environments/"
		toTest    = http.MethodPatch + " /environments/"
		asDefault = http.MethodPost + " /environments/"
	)
	for name, c := range map[string]struct {
		first, firstOf   string
		next             written
		second, secondOf string
		want, wantSecond int
		standards        []string
		chosen           string
	}{
		"deletions, the first is noted":                 {remove, "production", deletes, remove, "staging", 200, 400, []string{"staging"}, "tests"},
		"deletions, the second is faster":               {remove, "production", writesProject, remove, "staging", 400, 200, []string{"production"}, "tests"},
		"a deletion, then another kind":                 {remove, "production", deletes, toTest, "staging", 200, 400, []string{"staging"}, "tests"},
		"a deletion, before it another kind":            {remove, "production", writesProject, toTest, "staging", 400, 200, []string{"production"}, "tests"},
		"another kind, then a deletion":                 {toTest, "production", writesEnvironment, remove, "staging", 200, 400, []string{"staging"}, "tests"},
		"another kind, before it a deletion":            {toTest, "production", writesProject, remove, "staging", 400, 200, []string{"production"}, "tests"},
		"a deletion, then it were the default":          {remove, "production", deletes, asDefault, "production", 200, 409, []string{"staging"}, "tests"},
		"a deletion of what is the default by then":     {remove, "production", writesProject, asDefault, "production", 400, 200, []string{"production", "staging"}, "production"},
		"a default, which is deleted before":            {asDefault, "production", writesProject, remove, "production", 404, 200, []string{"staging"}, "tests"},
		"another kind, then it were the default":        {toTest, "production", writesEnvironment, asDefault, "production", 200, 409, []string{"staging"}, "tests"},
		"the same deletion twice":                       {remove, "production", deletes, remove, "production", 200, 200, []string{"staging"}, "tests"},
		"deletions of which one is of a test":           {remove, "production", deletes, remove, "tests", 200, 400, []string{"staging"}, "tests"},
		"another kind, and then the deletion of it too": {toTest, "production", writesEnvironment, remove, "production", 404, 200, []string{"staging"}, "tests"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, other := newTwoStandard(t)
			key := w.key(t, nil)
			call := func(to *Server, what, of string) *httptest.ResponseRecorder {
				method, path, _ := strings.Cut(what, " ")
				path, body := "/v1/projects/"+w.projectID.String()+path+w.environmentID(of), ""
				switch method {
				case http.MethodPatch:
					body = `{"kind":"test"}`
				case http.MethodPost:
					path += "/set-default"
				}
				return w.sendTo(t, to, key, method, path, body)
			}
			var second *httptest.ResponseRecorder
			w.before(t, c.next, func() { second = call(other, c.second, c.secondOf) })
			first := call(w.server, c.first, c.firstOf)
			require.Equal(t, c.want, first.Code, first.Body)
			require.Equal(t, c.wantSecond, second.Code, second.Body)
			require.Equal(t, c.standards, w.standards(t))
			require.Equal(t, c.chosen, w.chosen(t))
			require.NotContains(t, w.chosenProject(t).Annotations, annotationLeaving, "no call is under way")
		})
	}
}

// TestADeletionIsJudgedAnewWhereTheKindHasChanged: it was right for one for tests.
func TestADeletionIsJudgedAnewWhereTheKindHasChanged(t *testing.T) {
	t.Parallel()
	w, other := newTwoStandard(t)
	key := w.key(t, nil)
	w.create(t, &v1alpha1.Environment{ObjectMeta: w.meta("trial"), Spec: v1alpha1.EnvironmentSpec{Kind: v1alpha1.EnvironmentTest}})
	for _, name := range []string{"production", "staging"} {
		require.NoError(t, w.client.Delete(t.Context(), w.stored(t, w.environmentID(name))))
	}
	w.before(t, deletes, func() {
		got := w.sendTo(t, other, key, http.MethodPatch, "/v1/projects/"+w.projectID.String()+"/environments/"+w.environmentID("trial"), `{"kind":"standard"}`)
		require.Equal(t, http.StatusOK, got.Code, got.Body)
	})
	requireCode(t, http.StatusBadRequest, httpserver.CodeLastEnvironment, w, key, http.MethodDelete, "/environments/"+w.environmentID("trial"), "")
	require.Equal(t, []string{"trial"}, w.standards(t))
}

// TestAKindThatMayBePutBackDoesNotCount: until the call that changes it has ended.
func TestAKindThatMayBePutBackDoesNotCount(t *testing.T) {
	t.Parallel()
	w, other := newTwoStandard(t)
	key := w.key(t, nil)
	require.NoError(t, w.client.Delete(t.Context(), w.stored(t, w.environmentID("staging"))))
	production := "/v1/projects/" + w.projectID.String() + "/environments/" + w.environmentID("production")
	writes := 0
	w.server.client = interceptor.NewClient(w.server.client.(client.WithWatch), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if _, ok := o.(*v1alpha1.Project); ok {
				writes++
			}
			if writes == 2 { // the environment is written, and the call is about to end
				require.Equal(t, []string{"production", "tests"}, w.standards(t))
				got := w.sendTo(t, other, key, http.MethodDelete, production, "")
				require.Equal(t, http.StatusBadRequest, got.Code, got.Body)
			}
			return c.Patch(ctx, o, p, opts...)
		},
	})
	got := w.ask(t, key, http.MethodPatch, "/environments/"+w.environmentID("tests"), `{"kind":"standard"}`)
	require.Equal(t, http.StatusOK, got.Code, got.Body)
	require.Equal(t, 2, writes)
	require.Equal(t, []string{"production", "tests"}, w.standards(t))
}

// TestWhatKubernetesDeletesIsNoReason: an environment that waits for its dependents is on its way out.
func TestWhatKubernetesDeletesIsNoReason(t *testing.T) {
	t.Parallel()
	w, _ := newTwoStandard(t)
	key := w.key(t, nil)
	require.NoError(t, w.client.Delete(t.Context(), w.stored(t, w.environmentID("staging")), client.PropagationPolicy(metav1.DeletePropagationForeground)))
	require.NotNil(t, w.stored(t, w.environmentID("staging")).DeletionTimestamp)
	production := "/environments/" + w.environmentID("production")
	requireCode(t, http.StatusBadRequest, httpserver.CodeLastEnvironment, w, key, http.MethodDelete, production, "")
	requireCode(t, http.StatusBadRequest, httpserver.CodeLastEnvironment, w, key, http.MethodPatch, production, `{"kind":"test"}`)
	requireCode(t, http.StatusConflict, httpserver.CodeConflict, w, key, http.MethodPost, "/environments/"+w.environmentID("staging")+"/set-default", "")
	require.Equal(t, "tests", w.chosen(t))
}

// TestACallWhoseEndIsNotKnownCountsForAWhile: what was refused does not, and a repetition finds what it left.
func TestACallWhoseEndIsNotKnownCountsForAWhile(t *testing.T) {
	t.Parallel()
	w, _ := newTwoStandard(t)
	key := w.key(t, nil)
	now := time.Now()
	w.server.now = func() time.Time { return now }
	production, staging := "/environments/"+w.environmentID("production"), "/environments/"+w.environmentID("staging")
	failing := func(err error) int {
		heal := w.between(func(verb string, _ client.Object) error {
			if verb == "delete" {
				return err
			}
			return nil
		})
		defer heal()
		return w.ask(t, key, http.MethodDelete, production, "").Code
	}
	environments := schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "environments"}
	require.Equal(t, http.StatusForbidden, failing(apierrors.NewForbidden(environments, "production", errors.New("a policy keeps it"))))
	require.NotContains(t, w.chosenProject(t).Annotations, annotationLeaving, "it stays")
	require.Equal(t, http.StatusServiceUnavailable, failing(apierrors.NewServiceUnavailable("restarting")))
	require.Equal(t, string(w.stored(t, w.environmentID("production")).UID)+"="+now.UTC().Format(time.RFC3339), w.chosenProject(t).Annotations[annotationLeaving])

	requireCode(t, http.StatusBadRequest, httpserver.CodeLastEnvironment, w, key, http.MethodDelete, staging, "")
	now = now.Add(leavingFor + time.Second)
	require.Equal(t, http.StatusOK, w.ask(t, key, http.MethodDelete, staging, "").Code, "who asked for the other one is gone")
	requireCode(t, http.StatusBadRequest, httpserver.CodeLastEnvironment, w, key, http.MethodDelete, production, "")
	require.Equal(t, []string{"production"}, w.standards(t))

	w.create(t, &v1alpha1.Environment{ObjectMeta: w.meta("next")})
	require.Equal(t, http.StatusServiceUnavailable, failing(apierrors.NewServiceUnavailable("restarting")))
	require.Equal(t, http.StatusOK, w.ask(t, key, http.MethodDelete, production, "").Code, "a repetition ends it")
	require.Equal(t, []string{"next"}, w.standards(t))
}

// TestWhatATenantWritesAmongTheCallsBreaksNothing: and goes with the next call.
func TestWhatATenantWritesAmongTheCallsBreaksNothing(t *testing.T) {
	t.Parallel()
	w, _ := newTwoStandard(t)
	key := w.key(t, nil)
	staging := string(w.stored(t, w.environmentID("staging")).UID)
	said := func(text string) {
		project := w.chosenProject(t)
		project.Annotations = map[string]string{annotationLeaving: text, "example.com/theirs": "stays"}
		require.NoError(t, w.client.Update(t.Context(), project))
	}
	for _, text := range []string{
		"", " ", "=", "==", "\n", staging, staging + "=", staging + "=soon", "{}",
		staging + "=9999-12-31T23:59:59Z", staging + "=" + time.Now().Add(time.Hour).UTC().Format(time.RFC3339), staging + "=0001-01-01T00:00:00Z",
		strings.Repeat("x ", 100_000),
	} {
		said(text)
		got := w.ask(t, key, http.MethodDelete, "/environments/"+w.environmentID("production"), "")
		require.Equal(t, http.StatusOK, got.Code, "%q: %s", text, got.Body)
		require.Equal(t, map[string]string{"example.com/theirs": "stays"}, w.chosenProject(t).Annotations, text)
		w.create(t, &v1alpha1.Environment{ObjectMeta: w.meta("production")})
	}
	said(staging + "=" + time.Now().UTC().Format(time.RFC3339))
	requireCode(t, http.StatusBadRequest, httpserver.CodeLastEnvironment, w, key, http.MethodDelete, "/environments/"+w.environmentID("production"), "")
}
