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
	"golang.org/x/time/rate"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/keyring"
	"github.com/agentplatform/agentplatform/internal/keys"
	"github.com/agentplatform/agentplatform/internal/testenv/kube"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlite"
)

// gateway is the public URL of the tests' gateway.
const gateway = "https://hooks.example.com"

// world is a project on a real Kubernetes API with a facade before it. Who
// holds which id is in a real store.
type world struct {
	client    client.Client
	db        *sqlite.Store
	namespace string
	projectID uuid.UUID
	server    *Server
	platform  *keyring.Keys
	contract  *contract
}

func newWorld(t *testing.T, data Store) *world {
	t.Helper()
	control := kube.Start(t)
	config := rest.CopyConfig(control.Config)
	config.QPS = -1 // as in production
	direct, err := client.New(config, client.Options{Scheme: control.Scheme})
	require.NoError(t, err)
	// The facade may what its role lets it and no more.
	control.Grant(t, "facade", "agentplatform-apiserver")
	facade, err := client.NewWithWatch(control.User(t, "facade"), client.Options{Scheme: control.Scheme})
	require.NoError(t, err)
	db, err := sqlite.Open(t.Context(), sqlite.Options{Path: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	require.NoError(t, db.Migrate(t.Context()))
	platformID := uuid.New()
	w := &world{client: direct, db: db, namespace: control.Namespace(t)}
	w.projectID = v1alpha1.ProjectID(platformID, w.namespace)
	if data == nil {
		data = db
	}
	ring, err := keyring.New()
	require.NoError(t, err)
	w.platform = inUse(t, db, ring)
	w.server, err = New(Options{
		Client: facade, KeyIndex: unlimited(NewKeyIndex(facade, nil, slog.New(slog.DiscardHandler))), Store: identified{data, db}, Claims: db, PlatformID: platformID, Keys: w.platform,
		GatewayURL: gateway + "/", Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	w.contract = newContract(t, w.server)
	w.create(t, &v1alpha1.Project{ObjectMeta: w.meta(v1alpha1.ProjectName)})
	for _, name := range []string{"production", "staging"} {
		w.create(t, &v1alpha1.Environment{ObjectMeta: w.meta(name)})
	}
	w.allow(t, "everything", "anna", rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"*"}, Verbs: []string{"*"},
	})
	return w
}

// unlimited lets an index that does not run ask Kubernetes as often as it likes.
func unlimited(x *KeyIndex) *KeyIndex {
	x.budget.SetLimit(rate.Inf)
	return x
}

// inUse brings a ring into use.
func inUse(t *testing.T, db *sqlite.Store, ring keyring.Ring) *keyring.Keys {
	t.Helper()
	var admitted []store.PlatformKey
	for id, fingerprint := range ring.Fingerprints() {
		admitted = append(admitted, store.PlatformKey{ID: id, Ring: keyring.RingOf(id), Fingerprint: fingerprint})
	}
	require.NoError(t, db.AdmitKeys(t.Context(), admitted, nil))
	_, err := db.ReportKeys(t.Context(), "test", ring.Fingerprints())
	require.NoError(t, err)
	current, err := db.PromoteKeys(t.Context(), store.KeyHolderAge)
	require.NoError(t, err)
	keys := &keyring.Keys{}
	require.NoError(t, keys.Set(ring, current))
	return keys
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
	id, err := v1alpha1.ObjectID(w.projectID, object)
	require.NoError(t, err)
	require.NoError(t, w.db.ClaimID(t.Context(), store.Key{ProjectID: w.projectID, ID: id}, w.ref(object)))
	object.CommonStatus().ID = id.String()
	object.MarkReady("")
	require.NoError(t, w.client.Status().Update(t.Context(), o))
}

// ref names an object for the store, as its controller does.
func (w *world) ref(o v1alpha1.ConditionedObject) store.ObjectRef {
	return store.ObjectRef{
		Namespace: o.GetNamespace(), Kind: o.ObjectKind(), Name: o.GetName(),
		ObjectUID: string(o.GetUID()), Generation: o.GetGeneration(),
	}
}

// identified is a store whose ids are those of another one.
type identified struct {
	Store
	ids *sqlite.Store
}

func (i identified) Holder(ctx context.Context, key store.Key) (store.ObjectRef, error) {
	return i.ids.Holder(ctx, key)
}

func (i identified) Holders(ctx context.Context, projectID uuid.UUID, kind string) ([]store.ProjectedObject, error) {
	return i.ids.Holders(ctx, projectID, kind)
}

func (w *world) environmentID(name string) string {
	return v1alpha1.ProjectObjectID(w.projectID, "Environment", name).String()
}

// allow gives a user a role of one rule in the namespace.
func (w *world) allow(t *testing.T, role, user string, rule rbacv1.PolicyRule) {
	t.Helper()
	defer kube.Start(t).AwaitGranted(t, v1alpha1.Subject{User: user}, w.namespace, rule)
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

func (emptyStore) Environment(context.Context, store.Key) (store.Environment, error) {
	return store.Environment{}, store.ErrNotFound
}

func (emptyStore) Agents(context.Context, store.Key) ([]store.AgentSummary, error) { return nil, nil }

func (emptyStore) AgentConfig(context.Context, store.Key, string) (json.RawMessage, error) {
	return nil, store.ErrNotFound
}

func (emptyStore) Run(context.Context, store.Key) (store.Run, error) {
	return store.Run{}, store.ErrNotFound
}

func (emptyStore) RunInput(context.Context, store.Key) (string, io.ReadCloser, error) {
	return "", nil, store.ErrNotFound
}

func (emptyStore) ListRuns(context.Context, store.RunQuery) ([]store.Run, error) { return nil, nil }

func (emptyStore) ConnectorRun(context.Context, store.Key) (store.ConnectorRun, error) {
	return store.ConnectorRun{}, store.ErrNotFound
}

func (emptyStore) ListConnectorRuns(context.Context, store.ConnectorRunQuery) ([]store.ConnectorRun, int64, error) {
	return nil, 0, nil
}

func (emptyStore) Deployment(context.Context, store.Key) (store.Deployment, error) {
	return store.Deployment{}, store.ErrNotFound
}

func (emptyStore) ListDeployments(context.Context, store.Key) ([]store.Deployment, error) {
	return nil, nil
}

func (emptyStore) RecordAudit(context.Context, store.AuditEntry) (uuid.UUID, error) {
	return uuid.New(), nil
}

func (emptyStore) RecordAuditOutcome(context.Context, uuid.UUID, uuid.UUID, store.AuditOutcome) error {
	return nil
}

func (emptyStore) ListAudit(context.Context, store.AuditQuery) ([]store.AuditEntry, error) {
	return nil, nil
}
