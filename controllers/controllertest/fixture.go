// SPDX-License-Identifier: Apache-2.0

// Package controllertest has the shared fixture of the controllers' tests. A test calls its reconciler
// directly, on a real kube-apiserver and a real store, and steps the clock. Nothing runs concurrently,
// so tests never wait.
//
//	f := controllertest.New()
//	f.ExpectApplied(ctx, project)
//	f.ExpectReconciled(ctx, reconciler, project)
//	f.Clock.Step(time.Minute)
//	f.ExpectDeleted(ctx, reconciler, project)
//
// The reconcilers' client reads without a cache, so that tests need not wait for one, but returns only
// the fields that a manager's cache has; see [AsCache]. The fields that Reconcile lists by are
// selectable fields of kube-apiserver too. The map functions of watches need the indexes of the cache;
// their tests use a fake client, see [Cached].
package controllertest

import (
	"context"
	"database/sql"
	"path/filepath"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"
	_ "modernc.org/sqlite" // for Database
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/controllers/cached"
	"github.com/agentplatform/agentplatform/internal/plan"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/internal/testenv/kube"
	"github.com/agentplatform/agentplatform/internal/testenv/sqlitetest"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlite"
)

// Fixture is a namespace of a cluster with a store, and the Base of reconcilers that use both.
type Fixture struct {
	// Base is for reconcilers. Its Client is Cluster behind AsCache, its Reader is Cluster, its Store
	// is Store and its Clock is Clock.
	*base.Base
	// Admin is the administrator's client. Its calls are not recorded.
	Admin client.Client
	// Cluster is the reconcilers' client. It records calls and can make them fail.
	Cluster *Cluster
	// Store is the reconcilers' store. It can become unavailable.
	Store *Store
	// Clock starts at the current time, because conditions have real times.
	Clock *clocktesting.FakeClock
	// Events are the recorded events.
	Events *Events
	// Keys derives connectors' secrets. KeyID is the key in use.
	Keys  *secrets.Keys
	KeyID string
	// Namespace is the namespace of the spec.
	Namespace string
}

// New returns a fixture that lasts until the spec ends.
func New() *Fixture {
	GinkgoHelper()
	plane := kube.Start(GinkgoTB())
	f := &Fixture{
		Admin: plane.Client, Cluster: newCluster(plane), Store: newStore(), Clock: clocktesting.NewFakeClock(time.Now()),
		Events: &Events{}, Keys: &secrets.Keys{}, Namespace: plane.Namespace(GinkgoTB()),
	}
	f.Base = &base.Base{
		Client: AsCache(f.Cluster, cached.Options()), Reader: f.Cluster, Store: f.Store, Events: f.Events, PlatformID: uuid.New(),
		PlatformPlan: plan.Default(), Clock: f.Clock,
	}
	ring, err := secrets.NewRing()
	Expect(err).NotTo(HaveOccurred())
	f.KeyID = ring.IDs(secrets.Derivation)[0]
	Expect(f.Keys.Set(ring, []string{f.KeyID, ring.IDs(secrets.Sealing)[0]})).To(Succeed())
	f.Store.takeKeys(ring)
	return f
}

// Key returns the primary key of an object.
func (f *Fixture) Key(o v1alpha1.ConditionedObject) store.Key {
	GinkgoHelper()
	projectID := f.ProjectID(f.Namespace)
	id, err := v1alpha1.ObjectID(projectID, o)
	Expect(err).NotTo(HaveOccurred())
	return store.Key{ProjectID: projectID, ID: id}
}

// Store is a store on SQLite that can become unavailable.
type Store struct {
	store.Store
	// Database is a connection to the same file, for data without a store method.
	Database *sql.Conn

	there, away store.Store
}

// newStore opens a store. A closed one stands for the unavailable store.
func newStore() *Store {
	GinkgoHelper()
	ctx := context.Background()
	open := func(path string) store.Store {
		db, err := sqlite.Open(ctx, sqlite.Options{Path: path})
		Expect(err).NotTo(HaveOccurred())
		return db
	}
	path := sqlitetest.Migrated(GinkgoTB())
	s := &Store{there: open(path), away: open(filepath.Join(GinkgoTB().TempDir(), "away.db"))}
	s.Store = s.there
	Expect(s.away.Close()).To(Succeed())
	pool, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)")
	Expect(err).NotTo(HaveOccurred())
	s.Database, err = pool.Conn(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() {
		Expect(s.Database.Close()).To(Succeed())
		Expect(pool.Close()).To(Succeed())
		Expect(s.there.Close()).To(Succeed())
	})
	return s
}

// takeKeys puts the keys of a ring into use.
func (s *Store) takeKeys(ring secrets.Ring) {
	GinkgoHelper()
	ctx, held := context.Background(), ring.Fingerprints()
	var known []store.PlatformKey
	for _, of := range []string{secrets.Derivation, secrets.Sealing} {
		for _, id := range ring.IDs(of) {
			known = append(known, store.PlatformKey{ID: id, Ring: of, Fingerprint: held[id]})
		}
	}
	Expect(s.AdmitKeys(ctx, known, nil)).To(Succeed())
	_, err := s.ReportKeys(ctx, "test", held)
	Expect(err).NotTo(HaveOccurred())
	_, err = s.PromoteKeys(ctx, store.KeyHolderAge)
	Expect(err).NotTo(HaveOccurred())
}

// GoAway makes every call fail until ComeBack.
func (s *Store) GoAway() { s.Store = s.away }

// ComeBack ends GoAway.
func (s *Store) ComeBack() { s.Store = s.there }

// Version changes with every transaction that writes.
func (s *Store) Version(ctx context.Context) (version int64) {
	GinkgoHelper()
	Expect(s.Database.QueryRowContext(ctx, "PRAGMA data_version").Scan(&version)).To(Succeed())
	return version
}
