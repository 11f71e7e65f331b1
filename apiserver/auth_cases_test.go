// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/keys"
)

// TestTheHeaderThatBringsAKey: its scheme in any case of letters, and nothing else.
func TestTheHeaderThatBringsAKey(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key(t, nil)
	for header, want := range map[string]int{
		"Bearer " + key:             http.StatusOK,
		"bearer " + key:             http.StatusOK,
		"BEARER  " + key + " ":      http.StatusOK,
		key:                         http.StatusUnauthorized,
		"Basic " + key:              http.StatusUnauthorized,
		"Bearer":                    http.StatusUnauthorized,
		"Bearer " + key + "x":       http.StatusUnauthorized,
		"Bearer x" + key:            http.StatusUnauthorized,
		"Bearer " + key + " " + key: http.StatusUnauthorized,
	} {
		t.Run(header, func(t *testing.T) {
			answer := w.ask(t, "", http.MethodGet, "/environments", "", "Authorization", header)
			require.Equal(t, want, answer.Code, "%q", strings.ReplaceAll(header, key, "KEY"))
			require.Equal(t, want == http.StatusUnauthorized, answer.Header().Get("WWW-Authenticate") == "Bearer")
			require.NotContains(t, answer.Body.String(), key)
		})
	}
	answer := w.ask(t, "", http.MethodGet, "/environments?authorization=Bearer%20"+key, "")
	require.Equal(t, http.StatusUnauthorized, answer.Code, "a query brings no key")
}

// TestTheProjectOfThePathIsTheKeys: whatever stands there.
func TestTheProjectOfThePathIsTheKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key(t, nil)
	own := w.projectID.String()
	for project, want := range map[string]int{
		own:                              http.StatusOK,
		strings.ToUpper(own):             http.StatusOK,
		uuid.NewString():                 http.StatusForbidden,
		uuid.Nil.String():                http.StatusForbidden,
		"project":                        http.StatusForbidden,
		strings.ReplaceAll(own, "-", ""): http.StatusUnprocessableEntity,
	} {
		t.Run(project, func(t *testing.T) {
			answer := w.send(t, key, http.MethodGet, "/v1/projects/"+project+"/environments", "")
			require.Equal(t, want, answer.Code, "%s", answer.Body)
		})
	}
	answer := w.send(t, key, http.MethodGet, "/v1/projects/"+uuid.NewString()+"/environments", "")
	require.Equal(t, "the key belongs to another project", decode[Problem](t, answer.Body.Bytes()).Detail)
}

// TestAKeyOfANamespaceWithoutAProjectOpensNothing: until there is one.
func TestAKeyOfANamespaceWithoutAProjectOpensNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	namespace, key := "bare-"+w.namespace, keys.Generate()
	require.NoError(t, w.client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	w.keyObject(t, namespace, "ci", key, nil)
	path := "/v1/projects/" + v1alpha1.ProjectID(w.options.PlatformID, namespace).String() + "/environments"
	require.Equal(t, http.StatusUnauthorized, w.send(t, key.String(), http.MethodGet, path, "").Code)
	require.NoError(t, w.client.Create(t.Context(), &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.ProjectName}}))
	w.forget()
	require.Equal(t, http.StatusForbidden, w.send(t, key.String(), http.MethodGet, path, "").Code, "its owner has no rights there")
}

// TestWhatAKeyLacksIsNamed: the permission, whoever lacks it.
func TestWhatAKeyLacksIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, change := range map[string]func(*v1alpha1.APIKeySpec){
		"the key": func(k *v1alpha1.APIKeySpec) {
			k.Access, k.Permissions = v1alpha1.AccessSelected, []v1alpha1.Permission{"environments.view"}
		},
		"its owner": func(k *v1alpha1.APIKeySpec) { k.Owner.Name = "nobody" },
	} {
		t.Run(name, func(t *testing.T) {
			answer := w.ask(t, w.key(t, change), http.MethodGet, "/runs", "")
			require.Equal(t, http.StatusForbidden, answer.Code)
			p := decode[Problem](t, answer.Body.Bytes())
			require.Equal(t, httpserver.CodeForbidden, p.Code)
			require.Contains(t, p.Detail, "runs.view")
		})
	}
}

// TestWhoIsLimitedToEnvironmentsReachesNoOtherByAnyRoute: not by the id of the
// environment, and not by what is in it.
func TestWhoIsLimitedToEnvironmentsReachesNoOtherByAnyRoute(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	narrow := w.key(t, func(k *v1alpha1.APIKeySpec) {
		k.EnvironmentAccess, k.Environments = v1alpha1.AccessSelected, []v1alpha1.EnvironmentName{"staging"}
	})
	reached := map[string]bool{"listEnvironments": true, "listRuns": true} // which leave it out
	for _, r := range served(t) {
		answer := w.ask(t, narrow, r.method, samples[r.id].fill(t, w.idsFor(t, r)), bodyFor(r))
		if reached[r.id] {
			require.Equal(t, http.StatusOK, answer.Code, r.id)
			for noun, id := range w.ids {
				require.NotContains(t, answer.Body.String(), id, "%s shows the %s", r.id, noun)
			}
			continue
		}
		require.Equal(t, http.StatusForbidden, answer.Code, "%s: %s", r.id, answer.Body)
	}
	_, body := w.call(t, narrow, http.MethodGet, "/environments", "")
	require.Len(t, decode[[]Environment](t, body), 1)
}

// TestOneKeyOfManyTellsNothingOfTheOthers: candidates with the same key id are
// compared by their hash.
func TestOneKeyOfManyTellsNothingOfTheOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key, other := keys.Generate(), keys.Generate()
	w.keyObject(t, w.namespace, "other", other, func(k *v1alpha1.APIKeySpec) { k.KeyID = key.ID() })
	require.Equal(t, http.StatusUnauthorized, w.ask(t, key.String(), http.MethodGet, "/environments", "").Code)
	w.keyObject(t, w.namespace, "own", key, nil)
	w.forget()
	require.Equal(t, http.StatusOK, w.ask(t, key.String(), http.MethodGet, "/environments", "").Code)
}

// TestAFacadeSaysWhatItLacks: it is not made without what it needs.
func TestAFacadeSaysWhatItLacks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, lose := range map[string]func(*Options){
		"client": func(o *Options) { o.Client = nil }, "index": func(o *Options) { o.Index = nil },
		"store": func(o *Options) { o.Store = nil }, "claims": func(o *Options) { o.Claims = nil },
		"platform id": func(o *Options) { o.PlatformID = uuid.Nil }, "keys": func(o *Options) { o.Keys = nil },
	} {
		t.Run(name, func(t *testing.T) {
			options := w.options
			lose(&options)
			_, err := New(options)
			require.ErrorContains(t, err, name)
		})
	}
	options := w.options
	options.Logger, options.RequestsPerMinute = nil, 0
	s, err := New(options)
	require.NoError(t, err)
	require.NotNil(t, s.logger)
	require.Equal(t, 120, s.requestsPerMinute)
	require.Equal(t, readyTimeout, s.patience)
}
