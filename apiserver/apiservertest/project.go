// SPDX-License-Identifier: Apache-2.0

// Package apiservertest provides projects for tests of the REST facade: a Kubernetes API, a store, a facade in front of
// both, and calls whose responses are validated against the OpenAPI document.
package apiservertest

import (
	"context"
	"log/slog"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"golang.org/x/time/rate"
	rbacv1 "k8s.io/api/rbac/v1"
	clientrest "k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/internal/testenv/kube"
	"github.com/agentplatform/agentplatform/internal/testenv/sqlitetest"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlite"
)

// GatewayURL is the public URL of the gateway.
const GatewayURL = "https://hooks.example.com"

// Project is a project with a facade, on a real Kubernetes API and a real store. No controllers run.
type Project struct {
	Client       client.Client
	Store        store.Store
	StorePath    string // of SQLite's file
	Namespace    string
	ProjectID    uuid.UUID
	Server       *apiserver.Server
	Options      apiserver.Options
	PlatformKeys *secrets.Keys
	contract     *Contract
	// FacadeClient is the client of the facade without the effects of controllers.
	FacadeClient client.WithWatch
}

// HighLimit is a rate limit that no test reaches by chance.
const HighLimit = 1 << 20

// NewProject returns a project on SQLite. The user anna has all permissions in it.
func NewProject(t testing.TB) *Project {
	t.Helper()
	path := sqlitetest.Migrated(t)
	db, err := sqlite.Open(t.Context(), sqlite.Options{Path: path, Logger: DiscardLogger()})
	require.NoError(t, err)
	p := NewProjectOn(t, db)
	p.StorePath = path
	return p
}

// NewProjectOn returns a project on an open store, and closes the store after the test.
func NewProjectOn(t testing.TB, db store.Store) *Project {
	t.Helper()
	t.Cleanup(func() { _ = db.Close() })
	control := kube.Start(t)
	config := clientrest.CopyConfig(control.Config)
	config.QPS = -1 // as in production
	direct, err := client.New(config, client.Options{Scheme: control.Scheme})
	require.NoError(t, err)
	// The facade has the permissions of its role only.
	control.Grant(t, "facade", "agentplatform-apiserver")
	facade, err := client.NewWithWatch(control.User(t, "facade"), client.Options{Scheme: control.Scheme})
	require.NoError(t, err)
	require.NoError(t, db.Migrate(t.Context()))
	platformID := uuid.New()
	p := &Project{Client: direct, Store: db, Namespace: control.Namespace(t), FacadeClient: facade}
	p.ProjectID = v1alpha1.ProjectID(platformID, p.Namespace)
	ring, err := secrets.NewRing()
	require.NoError(t, err)
	p.PlatformKeys = useRing(t, db, ring)
	p.Options = apiserver.Options{
		Options: rest.Options{
			Client: p.withControllers(facade), Index: WithoutLookupLimit(rest.NewIndex(facade, nil, DiscardLogger())),
			PlatformID: platformID, Logger: DiscardLogger(), RequestsPerMinute: HighLimit,
		},
		Store: db, Claims: db, Keys: p.PlatformKeys, GatewayURL: GatewayURL + "/",
	}
	p.Server, err = apiserver.New(p.Options)
	require.NoError(t, err)
	p.Server.Service.ReadyTimeout = 0 // there are no controllers
	p.contract = NewContract(t, p.Server)
	p.Create(t, &v1alpha1.Project{ObjectMeta: p.Meta(v1alpha1.ProjectName), Spec: v1alpha1.ProjectSpec{Git: &v1alpha1.ProjectGit{URL: "https://git.example.com/shop.git"}}})
	for _, name := range []string{"production", "staging"} {
		p.Create(t, &v1alpha1.Environment{ObjectMeta: p.Meta(name)})
	}
	p.Allow(t, "everything", "anna", rbacv1.PolicyRule{
		APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"*"}, Verbs: []string{"*"},
	})
	return p
}

// withControllers returns a client that sets the status of each patched object, as controllers do.
func (p *Project) withControllers(inner client.WithWatch) client.WithWatch {
	return interceptor.NewClient(inner, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := c.Patch(ctx, o, patch, opts...); err != nil {
				return err
			}
			object := o.(v1alpha1.ConditionedObject)
			if v1alpha1.IsStalled(object) {
				return nil // the controllers keep it stalled
			}
			v1alpha1.MarkReady(object, "")
			if d, ok := o.(*v1alpha1.Deployment); ok {
				if err := p.Reconcile(ctx, d); err != nil {
					return err
				}
			}
			if conn, ok := o.(*v1alpha1.Connector); ok {
				conn.Status.SecretVersion = conn.SecretVersion()
				if conn.MarkRoutesReady(); !conn.IsEnabled() {
					conn.MarkDisabled()
				}
			}
			return p.Client.Status().Update(ctx, o)
		},
	})
}

// NewReplica returns another facade of the project, which shares no memory with the first one.
func (p *Project) NewReplica(t testing.TB, change func(*apiserver.Options)) *apiserver.Server {
	t.Helper()
	options := p.Options
	options.Index = WithoutLookupLimit(rest.NewIndex(p.FacadeClient, nil, DiscardLogger()))
	if change != nil {
		change(&options)
	}
	s, err := apiserver.New(options)
	require.NoError(t, err)
	s.Service.ReadyTimeout = 0
	return s
}

// WithoutLookupLimit removes the limit of lookups in Kubernetes from an index that does not run.
func WithoutLookupLimit(x *rest.Index) *rest.Index {
	x.LimitLookups(rate.Inf)
	return x
}

// useRing makes the keys of a ring the current keys of the platform.
func useRing(t testing.TB, db store.Store, ring secrets.Ring) *secrets.Keys {
	t.Helper()
	var admitted []store.PlatformKey
	for id, fingerprint := range ring.Fingerprints() {
		admitted = append(admitted, store.PlatformKey{ID: id, Ring: secrets.RingOf(id), Fingerprint: fingerprint})
	}
	require.NoError(t, db.AdmitKeys(t.Context(), admitted, nil))
	_, err := db.ReportKeys(t.Context(), "test", ring.Fingerprints())
	require.NoError(t, err)
	current, err := db.PromoteKeys(t.Context(), store.KeyHolderAge)
	require.NoError(t, err)
	keys := &secrets.Keys{}
	require.NoError(t, keys.Set(ring, current))
	return keys
}

// DiscardLogger returns a logger that drops all records.
func DiscardLogger() *slog.Logger { return slog.New(slog.DiscardHandler) }
