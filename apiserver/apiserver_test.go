// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/keys"
	"github.com/agentplatform/agentplatform/internal/seal"
	"github.com/agentplatform/agentplatform/internal/testenv/kube"
	"github.com/agentplatform/agentplatform/store"
)

// gateway is the public URL of the tests' gateway.
const gateway = "https://hooks.example.com"

// world is a project on a real Kubernetes API with a facade before it.
type world struct {
	client    client.Client
	namespace string
	projectID uuid.UUID
	server    *Server
	sealer    *seal.Sealer
	contract  *contract
}

func newWorld(t *testing.T, data Store) *world {
	t.Helper()
	control := kube.Start(t)
	config := rest.CopyConfig(control.Config)
	config.QPS = -1 // as in production
	direct, err := client.New(config, client.Options{Scheme: control.Scheme})
	require.NoError(t, err)
	w := &world{client: direct, namespace: control.Namespace(t), projectID: uuid.New()}
	keyset, err := seal.GenerateKeyset()
	require.NoError(t, err)
	w.sealer, err = seal.NewSealer(keyset)
	require.NoError(t, err)
	derivation, err := seal.NewDerivationKey(bytes.Repeat([]byte{7}, 32))
	require.NoError(t, err)
	w.server, err = New(Options{
		Client: direct, Store: data, DerivationKey: derivation, Sealer: w.sealer,
		GatewayURL: gateway + "/", Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	w.contract = newContract(t, w.server)
	w.create(t, &v1alpha1.Project{
		ObjectMeta: w.meta(v1alpha1.ProjectName), Spec: v1alpha1.ProjectSpec{ID: v1alpha1.UUID(w.projectID.String())},
	})
	for _, name := range []string{"production", "staging"} {
		w.create(t, &v1alpha1.Environment{ObjectMeta: w.meta(name)})
	}
	w.allow(t, "everything", "anna", rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"*"}, Verbs: []string{"*"},
	})
	return w
}

func (w *world) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: w.namespace, Name: name}
}

// create makes an object, and gives it the status that its controller would.
func (w *world) create(t *testing.T, o client.Object) {
	t.Helper()
	require.NoError(t, w.client.Create(t.Context(), o))
	object, ok := o.(v1alpha1.ConditionedObject)
	if !ok {
		return
	}
	id := object.SpecID()
	if id == "" {
		id = v1alpha1.ProjectObjectID(w.projectID, object.ObjectKind(), o.GetName()).String()
	}
	object.CommonStatus().ID = id
	object.MarkReady("")
	require.NoError(t, w.client.Status().Update(t.Context(), o))
}

func (w *world) environmentID(name string) string {
	return v1alpha1.ProjectObjectID(w.projectID, "Environment", name).String()
}

// allow gives a user a role of one rule in the namespace.
func (w *world) allow(t *testing.T, role, user string, rule rbacv1.PolicyRule) {
	t.Helper()
	w.create(t, &rbacv1.Role{ObjectMeta: w.meta(role), Rules: []rbacv1.PolicyRule{rule}})
	w.create(t, &rbacv1.RoleBinding{
		ObjectMeta: w.meta(role), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	})
}

// key makes an API key, of anna's unless changed.
func (w *world) key(t *testing.T, change func(*v1alpha1.APIKeySpec)) string {
	t.Helper()
	key := keys.Generate()
	object := &v1alpha1.APIKey{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, GenerateName: "key-"},
		Spec: v1alpha1.APIKeySpec{
			Hash: key.Hash(), KeyID: key.ID(), Owner: v1alpha1.KeyOwner{Kind: v1alpha1.OwnerUser, Name: "anna"},
		},
	}
	if change != nil {
		change(&object.Spec)
	}
	require.NoError(t, w.client.Create(t.Context(), object))
	return key.String()
}

// call sends a request below the project and returns status and body.
func (w *world) call(t *testing.T, key, method, path, body string) (int, []byte) {
	t.Helper()
	r := w.send(t, key, method, "/v1/projects/"+w.projectID.String()+path, body)
	return r.Code, r.Body.Bytes()
}

func (w *world) send(t *testing.T, key, method, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), method, path, bytes.NewBufferString(body))
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	recorder := httptest.NewRecorder()
	w.server.Handler().ServeHTTP(recorder, request)
	if recorder.Code >= http.StatusBadRequest {
		requireProblem(t, recorder)
	}
	w.contract.requireDescribed(t, request, recorder)
	return recorder
}

// requireProblem checks the one shape of errors.
func requireProblem(t *testing.T, r *httptest.ResponseRecorder) {
	t.Helper()
	require.Equal(t, "application/problem+json", r.Header().Get("Content-Type"))
	var fields map[string]any
	require.NoError(t, json.Unmarshal(r.Body.Bytes(), &fields))
	require.Len(t, fields, 5, "%s", r.Body)
	require.NotEmpty(t, fields["title"])
	require.NotEmpty(t, fields["detail"])
	require.NotEmpty(t, fields["code"])
	require.EqualValues(t, r.Code, fields["status"])
	require.NotNil(t, fields["errors"])
}

func decode[T any](t *testing.T, body []byte) T {
	t.Helper()
	var out T
	require.NoError(t, json.Unmarshal(body, &out), "%s", body)
	return out
}

// emptyStore is a store in which nothing has happened yet.
type emptyStore struct{ Store }

func (emptyStore) Environment(context.Context, uuid.UUID) (store.Environment, error) {
	return store.Environment{}, store.ErrNotFound
}

func (emptyStore) Agents(context.Context, uuid.UUID) ([]store.AgentSummary, error) { return nil, nil }

func (emptyStore) Run(context.Context, uuid.UUID) (store.Run, error) {
	return store.Run{}, store.ErrNotFound
}

func (emptyStore) RunInput(context.Context, uuid.UUID) (string, io.ReadCloser, error) {
	return "", nil, store.ErrNotFound
}

func (emptyStore) ListRuns(context.Context, store.RunQuery) ([]store.Run, error) { return nil, nil }

func (emptyStore) ConnectorRun(context.Context, uuid.UUID) (store.ConnectorRun, error) {
	return store.ConnectorRun{}, store.ErrNotFound
}

func (emptyStore) ListConnectorRuns(context.Context, store.ConnectorRunQuery) ([]store.ConnectorRun, int64, error) {
	return nil, 0, nil
}

func (emptyStore) Deployment(context.Context, uuid.UUID) (store.Deployment, error) {
	return store.Deployment{}, store.ErrNotFound
}

func (emptyStore) ListDeployments(context.Context, uuid.UUID) ([]store.Deployment, error) {
	return nil, nil
}
