// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlite"
)

// Of Deployments that appear together, the newest supersedes the others, in any order of reconciles.
func TestBegin_NewestDeploymentSupersedes(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	created := map[string]time.Time{"oldest": noon, "newest": noon.Add(2 * time.Second), "b": noon.Add(time.Second), "a": noon.Add(time.Second)}
	for _, seen := range [][]string{
		{"newest", "a", "oldest", "b"}, {"oldest", "a", "b", "newest"}, {"b", "newest", "a", "oldest"}, {"a", "b", "newest", "oldest"},
	} {
		s := newOrderScene(t, created)
		for _, name := range seen {
			s.begin(t, name)
		}
		list, err := s.db.ListDeployments(t.Context(), store.Key{ProjectID: s.projectID, ID: s.environmentID})
		require.NoError(t, err)
		var order []string
		for i, d := range list { // newest first
			order = append(order, d.Ref.Name)
			want := store.DeploymentCancelled
			if i == 0 {
				want = store.DeploymentPending
			}
			require.Equal(t, want, d.Status, "%s, seen as %v", d.Ref.Name, seen)
		}
		require.Equal(t, []string{"newest", "b", "a", "oldest"}, order, "seen as %v", seen)
	}
}

// Deployments with a status, stalled ones, deleted ones and those to other environments do not begin.
func TestNotBegun_SelectsOlderDeployments(t *testing.T) {
	t.Parallel()
	noon := metav1.NewTime(time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC))
	d := func(name string, change func(*v1alpha1.Deployment)) v1alpha1.Deployment {
		out := v1alpha1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: noon}, Spec: v1alpha1.DeploymentSpec{Environment: "dev"}}
		change(&out)
		return out
	}
	asIs := func(*v1alpha1.Deployment) {}
	got := notBegun([]v1alpha1.Deployment{
		d("m", asIs), d("b", asIs), d("z", asIs), d("a", asIs),
		d("c", func(d *v1alpha1.Deployment) { d.Status.Phase = v1alpha1.DeploymentFailed }),
		d("d", func(d *v1alpha1.Deployment) { d.MarkNameReused() }),
		d("e", func(d *v1alpha1.Deployment) { d.DeletionTimestamp = &noon }),
		d("f", func(d *v1alpha1.Deployment) { d.Spec.Environment = "prod" }),
	}, &v1alpha1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "m", CreationTimestamp: noon}, Spec: v1alpha1.DeploymentSpec{Environment: "dev"}})
	names := make([]string, len(got))
	for i, o := range got {
		names[i] = o.Name
	}
	require.Equal(t, []string{"a", "b"}, names)
}

// orderScene is a project with an environment and Deployments to it.
type orderScene struct {
	*Reconciler
	db                       store.Store
	projectID, environmentID uuid.UUID
}

func newOrderScene(t *testing.T, created map[string]time.Time) orderScene {
	t.Helper()
	db, err := sqlite.Open(t.Context(), sqlite.Options{Path: filepath.Join(t.TempDir(), "test.db")})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	require.NoError(t, db.Migrate(t.Context()))
	scheme := runtime.NewScheme()
	require.NoError(t, v1alpha1.AddToScheme(scheme))
	at := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name), Generation: 1}
	}
	environment := &v1alpha1.Environment{ObjectMeta: at("dev")}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&v1alpha1.Project{ObjectMeta: at("project")}, environment)
	require.NoError(t, base.IndexFields(t.Context(), indexer{c}))
	for name, when := range created {
		d := &v1alpha1.Deployment{ObjectMeta: at(name), Spec: v1alpha1.DeploymentSpec{Environment: "dev"}}
		d.CreationTimestamp = metav1.NewTime(when)
		c = c.WithObjects(d)
	}
	s := orderScene{Reconciler: &Reconciler{Base: &base.Base{Client: c.Build(), Store: db, PlatformID: uuid.New()}, Store: db}, db: db}
	s.projectID = s.ProjectID("team")
	s.environmentID, err = v1alpha1.ObjectID(s.projectID, environment)
	require.NoError(t, err)
	require.NoError(t, db.PutEnvironment(t.Context(), store.Environment{
		Ref: s.Ref(environment), ID: s.environmentID, ProjectID: s.projectID, Slug: "dev", Kind: "standard",
	}))
	return s
}

// indexer registers the indexes of the cache with a fake client.
type indexer struct{ *fake.ClientBuilder }

func (i indexer) IndexField(_ context.Context, o client.Object, field string, extract client.IndexerFunc) error {
	i.WithIndex(o, field, extract)
	return nil
}

// begin runs the first part of a reconcile.
func (s orderScene) begin(t *testing.T, name string) {
	t.Helper()
	v := &deploymentState{Deployment: &v1alpha1.Deployment{}}
	require.NoError(t, s.Client.Get(t.Context(), types.NamespacedName{Namespace: "team", Name: name}, v.Deployment))
	id, err := v1alpha1.ObjectID(s.projectID, v.Deployment)
	require.NoError(t, err)
	v.key = store.Key{ProjectID: s.projectID, ID: id}
	require.NoError(t, s.Reconciler.beginDeployment(t.Context(), v))
}
