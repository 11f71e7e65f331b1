// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/keyring"
	"github.com/agentplatform/agentplatform/internal/keys"
	"github.com/agentplatform/agentplatform/internal/testenv/kube"
	"github.com/agentplatform/agentplatform/internal/testenv/sqlitetest"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlite"
)

// gateway is the public URL of the tests' gateway.
const gateway = "https://hooks.example.com"

// world is a project on a real Kubernetes API with a facade before it, on a real
// store.
type world struct {
	client    client.Client
	db        store.Store
	path      string // of db, where it is a file
	namespace string
	projectID uuid.UUID
	server    *Server
	options   Options
	platform  *keyring.Keys
	contract  *contract
	// alone is the facade's client without controllers behind it.
	alone client.WithWatch
}

// plenty is a limit of requests that no test reaches by chance.
const plenty = 1 << 20

// newWorld is one on SQLite.
func newWorld(t testing.TB) *world {
	t.Helper()
	path := sqlitetest.Migrated(t)
	db, err := sqlite.Open(t.Context(), sqlite.Options{Path: path, Logger: quiet()})
	require.NoError(t, err)
	w := newWorldOn(t, db)
	w.path = path
	return w
}

// newWorldOn is one on a store that was opened for it.
func newWorldOn(t testing.TB, db store.Store) *world {
	t.Helper()
	t.Cleanup(func() { _ = db.Close() })
	control := kube.Start(t)
	config := rest.CopyConfig(control.Config)
	config.QPS = -1 // as in production
	direct, err := client.New(config, client.Options{Scheme: control.Scheme})
	require.NoError(t, err)
	// The facade may what its role lets it and no more.
	control.Grant(t, "facade", "agentplatform-apiserver")
	facade, err := client.NewWithWatch(control.User(t, "facade"), client.Options{Scheme: control.Scheme})
	require.NoError(t, err)
	require.NoError(t, db.Migrate(t.Context()))
	platformID := uuid.New()
	w := &world{client: direct, db: db, namespace: control.Namespace(t), alone: facade}
	w.projectID = v1alpha1.ProjectID(platformID, w.namespace)
	ring, err := keyring.New()
	require.NoError(t, err)
	w.platform = inUse(t, db, ring)
	w.options = Options{
		Client: w.controlling(facade), Index: unlimited(NewIndex(facade, nil, quiet())), Store: db, Claims: db,
		PlatformID: platformID, Keys: w.platform, GatewayURL: gateway + "/", Logger: quiet(),
		RequestsPerMinute: plenty,
	}
	w.server, err = New(w.options)
	require.NoError(t, err)
	w.server.patience = 0 // there are no controllers
	w.contract = newContract(t, w.server)
	w.create(t, &v1alpha1.Project{ObjectMeta: w.meta(v1alpha1.ProjectName), Spec: v1alpha1.ProjectSpec{Git: &v1alpha1.ProjectGit{URL: "https://git.example.com/shop.git"}}})
	for _, name := range []string{"production", "staging"} {
		w.create(t, &v1alpha1.Environment{ObjectMeta: w.meta(name)})
	}
	w.allow(t, "everything", "anna", rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"*"}, Verbs: []string{"*"},
	})
	return w
}

// controlling is a client behind which controllers are done with whatever it changes.
func (w *world) controlling(inner client.WithWatch) client.WithWatch {
	return interceptor.NewClient(inner, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if err := c.Patch(ctx, o, p, opts...); err != nil {
				return err
			}
			object := o.(v1alpha1.ConditionedObject)
			if v1alpha1.IsStalled(object) {
				return nil // nobody has mended that
			}
			v1alpha1.MarkReady(object, "")
			if d, ok := o.(*v1alpha1.Deployment); ok {
				if err := w.bringOn(ctx, d); err != nil {
					return err
				}
			}
			if conn, ok := o.(*v1alpha1.Connector); ok {
				conn.Status.SecretVersion = conn.SecretVersion()
				if conn.MarkRoutesReady(); !conn.IsEnabled() {
					conn.MarkDisabled()
				}
			}
			return w.client.Status().Update(ctx, o)
		},
	})
}

// facade is another facade of the same project, as if on another machine: it shares
// no memory with the first.
func (w *world) facade(t testing.TB, change func(*Options)) *Server {
	t.Helper()
	options := w.options
	options.Index = unlimited(NewIndex(options.Index.client, nil, quiet()))
	if change != nil {
		change(&options)
	}
	s, err := New(options)
	require.NoError(t, err)
	s.patience = 0
	return s
}

// unlimited lets an index that does not run ask Kubernetes as often as it likes.
func unlimited(x *Index) *Index {
	x.budget.SetLimit(rate.Inf)
	return x
}

// inUse brings a ring into use.
func inUse(t testing.TB, db store.Store, ring keyring.Ring) *keyring.Keys {
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
func (w *world) create(t testing.TB, o client.Object) {
	t.Helper()
	require.NoError(t, w.client.Create(t.Context(), o))
	if object, ok := o.(v1alpha1.ConditionedObject); ok {
		w.settle(t, object)
	}
}

// settle gives an object its id, and the status that its controller would.
func (w *world) settle(t testing.TB, object v1alpha1.ConditionedObject) {
	t.Helper()
	id, err := v1alpha1.ObjectID(w.projectID, object)
	require.NoError(t, err)
	require.NoError(t, w.db.ClaimID(t.Context(), store.Key{ProjectID: w.projectID, ID: id}, w.ref(object)))
	object.CommonStatus().ID = id.String()
	v1alpha1.MarkReady(object, "")
	switch o := object.(type) {
	case *v1alpha1.Connector:
		o.MarkRoutesReady()
	case *v1alpha1.Environment:
		o.Status.Slug = o.WantedSlug()
	}
	require.NoError(t, w.client.Status().Update(t.Context(), object.(client.Object)))
}

// ref names an object for the store, as its controller does.
func (w *world) ref(o v1alpha1.ConditionedObject) store.ObjectRef {
	return store.ObjectRef{
		Namespace: o.GetNamespace(), Kind: o.ObjectKind(), Name: o.GetName(),
		ObjectUID: string(o.GetUID()), Generation: o.GetGeneration(),
	}
}

func (w *world) environmentID(name string) string {
	return v1alpha1.ProjectObjectID(w.projectID, "Environment", name).String()
}

// allow gives a user a role of one rule in the namespace.
func (w *world) allow(t testing.TB, role, user string, rule rbacv1.PolicyRule) {
	t.Helper()
	defer kube.Start(t).AwaitGranted(t, v1alpha1.Subject{User: user}, w.namespace, rule)
	w.create(t, &rbacv1.Role{ObjectMeta: w.meta(role), Rules: []rbacv1.PolicyRule{rule}})
	w.create(t, &rbacv1.RoleBinding{
		ObjectMeta: w.meta(role), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
	})
}

// key makes an API key, of anna's unless changed.
func (w *world) key(t testing.TB, change func(*v1alpha1.APIKeySpec)) string {
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
func (w *world) call(t testing.TB, key, method, path, body string) (int, []byte) {
	t.Helper()
	r := w.send(t, key, method, "/v1/projects/"+w.projectID.String()+path, body)
	return r.Code, r.Body.Bytes()
}

// ask is call with headers, given as names and values in turn.
func (w *world) ask(t testing.TB, key, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	return w.send(t, key, method, "/v1/projects/"+w.projectID.String()+path, body, headers...)
}

func (w *world) send(t testing.TB, key, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	return w.sendTo(t, w.server, key, method, path, body, headers...)
}

// sendTo sends a request to one of several facades.
func (w *world) sendTo(t testing.TB, to *Server, key, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), method, path, bytes.NewBufferString(body))
	fillIn(request, key, body, headers)
	recorder := httptest.NewRecorder()
	to.Handler().ServeHTTP(recorder, request)
	w.requireAsDescribed(t, request, recorder)
	return recorder
}

// fillIn gives a request its key, the type of its body, and headers in their place.
func fillIn(request *http.Request, key, body string, headers []string) {
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	if strings.HasPrefix(body, anUpload[:2]) {
		request.Header.Set("Content-Type", "application/gzip")
	}
	for i := 0; i < len(headers); i += 2 {
		if !slices.Contains(headers[:i], headers[i]) {
			request.Header.Del(headers[i]) // the one from above
		}
		request.Header.Add(headers[i], headers[i+1])
	}
}

// requireAsDescribed holds an answer against the description.
func (w *world) requireAsDescribed(t testing.TB, request *http.Request, answer *httptest.ResponseRecorder) {
	t.Helper()
	if answer.Code >= http.StatusBadRequest {
		requireProblem(t, answer)
	}
	w.contract.requireDescribed(t, request, answer)
}

// requireProblem checks the one shape of errors.
func requireProblem(t testing.TB, r *httptest.ResponseRecorder) {
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
	require.Equal(t, r.Code == http.StatusServiceUnavailable || r.Code == http.StatusTooManyRequests, r.Header().Get("Retry-After") != "")
}

func decode[T any](t testing.TB, body []byte) T {
	t.Helper()
	var out T
	require.NoError(t, json.Unmarshal(body, &out), "%s", body)
	return out
}

// quiet is a log that nobody reads.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func quantity(text string) *resource.Quantity {
	q := resource.MustParse(text)
	return &q
}

func mustJSON(t testing.TB, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	require.NoError(t, err)
	return text
}
