// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/environments"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/keys"
)

// The scheme is case-insensitive. Every other form returns 401.
func TestAuth_ParsesAuthorizationHeader(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
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
			answer := w.Request(t, "", http.MethodGet, "/environments", "", "Authorization", header)
			require.Equal(t, want, answer.Code, "%q", strings.ReplaceAll(header, key, "KEY"))
			require.Equal(t, want == http.StatusUnauthorized, answer.Header().Get("WWW-Authenticate") == "Bearer")
			require.NotContains(t, answer.Body.String(), key)
		})
	}
	answer := w.Request(t, "", http.MethodGet, "/environments?authorization=Bearer%20"+key, "")
	require.Equal(t, http.StatusUnauthorized, answer.Code, "a query brings no key")
}

// The project ID in the path must be the project of the key.
func TestAuth_RequiresProjectOfKey(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	own := w.ProjectID.String()
	for project, want := range map[string]int{
		own:                              http.StatusOK,
		strings.ToUpper(own):             http.StatusOK,
		uuid.NewString():                 http.StatusForbidden,
		uuid.Nil.String():                http.StatusForbidden,
		"project":                        http.StatusForbidden,
		strings.ReplaceAll(own, "-", ""): http.StatusUnprocessableEntity,
	} {
		t.Run(project, func(t *testing.T) {
			answer := w.Send(t, key, http.MethodGet, "/v1/projects/"+project+"/environments", "")
			require.Equal(t, want, answer.Code, "%s", answer.Body)
		})
	}
	answer := w.Send(t, key, http.MethodGet, "/v1/projects/"+uuid.NewString()+"/environments", "")
	require.Equal(t, "the key belongs to another project", apiservertest.Decode[rest.Problem](t, answer.Body.Bytes()).Detail)
}

// The key works once its namespace has a project.
func TestAuth_RejectsKeyWithoutProject(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	namespace, key := "bare-"+w.Namespace, keys.Generate()
	require.NoError(t, w.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	keyObject(t, w, namespace, "ci", key, nil)
	path := "/v1/projects/" + v1alpha1.ProjectID(w.Options.PlatformID, namespace).String() + "/environments"
	require.Equal(t, http.StatusUnauthorized, w.Send(t, key.String(), http.MethodGet, path, "").Code)
	require.NoError(t, w.Client.Create(t.Context(), &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.ProjectName}}))
	emptyCaches(t, w)
	require.Equal(t, http.StatusForbidden, w.Send(t, key.String(), http.MethodGet, path, "").Code, "its owner has no rights there")
}

// The detail names the permission, whether the key or its owner lacks it.
func TestAuth_NamesMissingPermission(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	for name, change := range map[string]func(*v1alpha1.APIKeySpec){
		"key lacks it": func(k *v1alpha1.APIKeySpec) {
			k.Access, k.Permissions = v1alpha1.AccessSelected, []v1alpha1.Permission{"environments.view"}
		},
		"owner lacks it": func(k *v1alpha1.APIKeySpec) { k.Owner.Name = "nobody" },
	} {
		t.Run(name, func(t *testing.T) {
			answer := w.Request(t, w.CreateKey(t, change), http.MethodGet, "/runs", "")
			require.Equal(t, http.StatusForbidden, answer.Code)
			p := apiservertest.Decode[rest.Problem](t, answer.Body.Bytes())
			require.Equal(t, httpserver.CodeForbidden, p.Code)
			require.Contains(t, p.Detail, "runs.view")
		})
	}
}

// A limited key reaches neither other environments nor the objects in them.
func TestAuth_EnforcesEnvironmentsOnEachEndpoint(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	narrow := w.CreateKey(t, func(k *v1alpha1.APIKeySpec) {
		k.EnvironmentAccess, k.Environments = v1alpha1.AccessSelected, []v1alpha1.EnvironmentName{"staging"}
	})
	reached := map[string]bool{"listEnvironments": true, "listRuns": true} // which leave it out
	for _, r := range apiservertest.SupportedEndpoints(t) {
		answer := w.Request(t, narrow, r.Method, apiservertest.FillPath(t, r.Example.Path, idsForExample(t, w, r)), bodyFor(r))
		if reached[r.ID] {
			require.Equal(t, http.StatusOK, answer.Code, r.ID)
			for noun, id := range w.IDs {
				require.NotContains(t, answer.Body.String(), id, "%s shows the %s", r.ID, noun)
			}
			continue
		}
		require.Equal(t, http.StatusForbidden, answer.Code, "%s: %s", r.ID, answer.Body)
	}
	_, body := w.Call(t, narrow, http.MethodGet, "/environments", "")
	require.Len(t, apiservertest.Decode[[]environments.Environment](t, body), 1)
}

// The hash distinguishes keys with the same key ID.
func TestAuth_ComparesHashesOfSameKeyID(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key, other := keys.Generate(), keys.Generate()
	keyObject(t, w, w.Namespace, "other", other, func(k *v1alpha1.APIKeySpec) { k.KeyID = key.ID() })
	require.Equal(t, http.StatusUnauthorized, w.Request(t, key.String(), http.MethodGet, "/environments", "").Code)
	keyObject(t, w, w.Namespace, "own", key, nil)
	emptyCaches(t, w)
	require.Equal(t, http.StatusOK, w.Request(t, key.String(), http.MethodGet, "/environments", "").Code)
}

// New returns an error that names the missing option.
func TestNew_NamesMissingOptions(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	for name, lose := range map[string]func(*apiserver.Options){
		"Client": func(o *apiserver.Options) { o.Client = nil }, "Index": func(o *apiserver.Options) { o.Index = nil },
		"Store": func(o *apiserver.Options) { o.Store = nil }, "Claims": func(o *apiserver.Options) { o.Claims = nil },
		"PlatformID": func(o *apiserver.Options) { o.PlatformID = uuid.Nil }, "Keys": func(o *apiserver.Options) { o.Keys = nil },
		"Store, Keys": func(o *apiserver.Options) { o.Store, o.Keys = nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			options := w.Options
			lose(&options)
			_, err := apiserver.New(options)
			require.EqualError(t, err, "creating the REST facade: set the options "+name)
		})
	}
	options := w.Options
	options.Logger, options.RequestsPerMinute = nil, 0
	s, err := apiserver.New(options)
	require.NoError(t, err)
	require.NotNil(t, s.Service.Logger)
	require.Equal(t, 120, s.Service.RequestsPerMinute)
	require.Equal(t, 2*time.Second, s.Service.ReadyTimeout)
}
