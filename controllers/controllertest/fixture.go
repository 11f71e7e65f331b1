// SPDX-License-Identifier: Apache-2.0

// Package controllertest is what the suites of the controllers share. A suite
// calls its reconciler itself, on a real kube-apiserver and a real store, and
// steps the clock: nothing runs beside the test, so nothing has to be waited for.
//
//	f := controllertest.New()
//	f.ExpectApplied(ctx, project)
//	f.ExpectReconciled(ctx, reconciler, project)
//	f.Clock.Step(time.Minute)
//	f.ExpectDeleted(ctx, reconciler, project)
//
// The reconcilers' client reads without a cache, for nothing has to be waited for
// then, but it has only what a manager's cache would have of an object; see [AsCache].
// What Reconcile lists by a field can be selected at kube-apiserver too. What needs the
// cache's own indexes are the map functions of watches, which are tested with a fake
// client; see [Cached].
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
	"github.com/agentplatform/agentplatform/controllers/cached"
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/internal/keyring"
	"github.com/agentplatform/agentplatform/internal/plan"
	"github.com/agentplatform/agentplatform/internal/testenv/kube"
	"github.com/agentplatform/agentplatform/internal/testenv/sqlitetest"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlite"
)

// Fixture is a namespace of a cluster with a store, and the base of reconcilers
// that work on both.
type Fixture struct {
	// Base is for reconcilers. Its client is Cluster as a cache has it, its reader
	// Cluster, its store Store, its clock Clock.
	*object.Base
	// Admin is the administrator's client, of which nothing is recorded.
	Admin client.Client
	// Cluster is the reconcilers' client: it records calls and fails them.
	Cluster *Cluster
	// Store is the reconcilers' store: it can be away.
	Store *Store
	// Clock begins at the time of now, for conditions carry the real one.
	Clock *clocktesting.FakeClock
	// Events are those that were recorded.
	Events *Events
	// Keys derive connectors' secrets; KeyID is the one that serves.
	Keys  *keyring.Keys
	KeyID string
	// Namespace is the spec's own.
	Namespace string
}

// New makes a fixture that lasts until the spec ends.
func New() *Fixture {
	GinkgoHelper()
	plane := kube.Start(GinkgoTB())
	f := &Fixture{
		Admin: plane.Client, Cluster: newCluster(plane), Store: newStore(), Clock: clocktesting.NewFakeClock(time.Now()),
		Events: &Events{}, Keys: &keyring.Keys{}, Namespace: plane.Namespace(GinkgoTB()),
	}
	f.Base = &object.Base{
		Client: AsCache(f.Cluster, cached.Options()), Reader: f.Cluster, Store: f.Store, Events: f.Events, PlatformID: uuid.New(),
		PlatformPlan: plan.Default(), Clock: f.Clock,
	}
	ring, err := keyring.New()
	Expect(err).NotTo(HaveOccurred())
	f.KeyID = ring.IDs(keyring.Derivation)[0]
	Expect(f.Keys.Set(ring, []string{f.KeyID, ring.IDs(keyring.Sealing)[0]})).To(Succeed())
	f.Store.takeKeys(ring)
	return f
}

// Key is the primary key of an object.
func (f *Fixture) Key(o v1alpha1.ConditionedObject) store.Key {
	GinkgoHelper()
	projectID := f.ProjectID(f.Namespace)
	id, err := v1alpha1.ObjectID(projectID, o)
	Expect(err).NotTo(HaveOccurred())
	return store.Key{ProjectID: projectID, ID: id}
}

// Store is a store on SQLite that can be away.
type Store struct {
	store.Store
	// Database is the same file, for what no method of the store tells, or does.
	Database *sql.Conn

	there, away store.Store
}

// newStore opens a store; the one that is away is a closed one.
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

// takeKeys makes the keys of a ring current.
func (s *Store) takeKeys(ring keyring.Ring) {
	GinkgoHelper()
	ctx, held := context.Background(), ring.Fingerprints()
	var known []store.PlatformKey
	for _, of := range []string{keyring.Derivation, keyring.Sealing} {
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

// GoAway lets every call fail until ComeBack.
func (s *Store) GoAway() { s.Store = s.away }

// ComeBack ends GoAway.
func (s *Store) ComeBack() { s.Store = s.there }

// Version changes with every transaction that wrote something.
func (s *Store) Version(ctx context.Context) (version int64) {
	GinkgoHelper()
	Expect(s.Database.QueryRowContext(ctx, "PRAGMA data_version").Scan(&version)).To(Succeed())
	return version
}
