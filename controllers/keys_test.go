// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/platformkeys"
	"github.com/agentplatform/agentplatform/internal/namespaces"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/internal/testenv/kube"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlite"
)

// keyScene is a store and the Secret of its keys, without a manager.
type keyScene struct {
	secret platformkeys.Secret
	db     store.Store
}

func newKeyScene(ctx context.Context) keyScene {
	GinkgoHelper()
	plane := kube.Start(GinkgoTB())
	db, err := sqlite.Open(ctx, sqlite.Options{Path: filepath.Join(GinkgoT().TempDir(), "test.db")})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(db.Close()).To(Succeed()) })
	Expect(db.Migrate(ctx)).To(Succeed())
	return keyScene{secret: platformkeys.Secret{Client: plane.Client, Namespace: plane.Namespace(GinkgoTB())}, db: db}
}

// begun puts the first keys into use, with one manager as their holder.
func (s keyScene) begun(ctx context.Context) *platformkeys.Keeper {
	GinkgoHelper()
	platform, err := s.secret.Ensure(ctx, s.db, uuid.Nil)
	Expect(err).NotTo(HaveOccurred())
	Expect(s.db.HoldCluster(ctx, "cluster", platform)).To(Succeed())
	keeper := newKeeper(s.secret, s.db, "manager")
	Expect(keeper.Begin(ctx)).To(Succeed())
	return keeper
}

// ring returns the ring in the Secret.
func (s keyScene) ring(ctx context.Context) secrets.Ring {
	GinkgoHelper()
	ring, err := s.secret.Read(ctx)
	Expect(err).NotTo(HaveOccurred())
	return ring
}

func (s keyScene) object(ctx context.Context) *corev1.Secret {
	GinkgoHelper()
	o := &corev1.Secret{}
	Expect(s.secret.Client.Get(ctx, client.ObjectKey{Namespace: s.secret.Namespace, Name: secrets.SecretName}, o)).To(Succeed())
	return o
}

// change writes another ring to the Secret, like an operator.
func (s keyScene) change(ctx context.Context, ring secrets.Ring) {
	GinkgoHelper()
	o := s.object(ctx)
	data, err := ring.Data()
	Expect(err).NotTo(HaveOccurred())
	for entry, content := range data {
		o.Data[entry] = content
	}
	Expect(s.secret.Client.Update(ctx, o)).To(Succeed())
}

func (s keyScene) state(ctx context.Context, id string) secrets.KeyStatus {
	GinkgoHelper()
	states, err := secrets.ParseKeyStatus(s.object(ctx).Annotations[secrets.KeyStatusAnnotation])
	Expect(err).NotTo(HaveOccurred())
	for _, state := range states {
		if state.ID == id {
			return state
		}
	}
	return secrets.KeyStatus{}
}

// process returns a follower that reads the same keys and creates none.
func (s keyScene) process(name string) *secrets.Follower {
	return &secrets.Follower{
		Read: s.secret.Read, Register: s.db, Process: name, Keys: &secrets.Keys{}, Logger: slog.New(slog.DiscardHandler),
		Pause: func(context.Context) error { return context.Canceled },
	}
}

var _ = Describe("The platform's keys", func() {
	It("are created only for an empty store", func(ctx SpecContext) {
		s := newKeyScene(ctx)
		facade := s.process("facade")
		Expect(facade.Await(ctx)).To(MatchError(context.Canceled), "it waits")
		_, err := s.secret.Read(ctx)
		Expect(err).To(MatchError(secrets.ErrKeysAbsent), "and has made none")

		keeper := s.begun(ctx)
		Expect(facade.Await(ctx)).To(Succeed())
		id, err := s.secret.Ensure(ctx, s.db, uuid.Nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(id).NotTo(Equal(uuid.Nil))

		lost := s.object(ctx)
		Expect(s.secret.Client.Delete(ctx, lost)).To(Succeed())
		_, err = s.secret.Ensure(ctx, s.db, uuid.Nil)
		var missing *store.MissingKeysError
		Expect(err).To(MatchError(And(ContainSubstring("restore the Secret"), ContainSubstring(id.String()))))
		Expect(errors.As(err, &missing)).To(BeTrue())
		Expect(missing.Missing).To(HaveLen(2))
		Expect(keeper.UpdateKeys(ctx)).To(MatchError(secrets.ErrKeysAbsent))
		Expect(facade.Refresh(ctx)).To(MatchError(secrets.ErrKeysAbsent))
		Expect(facade.Keys.SealingKey()).NotTo(BeEmpty(), "those read before stay in use")
		_, err = s.secret.Read(ctx)
		Expect(err).To(MatchError(secrets.ErrKeysAbsent))

		By("rejecting other keys with its name")
		other, err := secrets.NewRing()
		Expect(err).NotTo(HaveOccurred())
		data, err := other.Data()
		Expect(err).NotTo(HaveOccurred())
		Expect(s.secret.Client.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.secret.Namespace, Name: secrets.SecretName}, Data: data,
		})).To(Succeed())
		Expect(errors.As(newKeeper(s.secret, s.db, "another manager").Begin(ctx), &missing)).To(BeTrue())
		Expect(errors.As(s.process("another facade").Await(ctx), &missing)).To(BeTrue())

		By("accepting the old ones again")
		old, err := secrets.ParseRing(lost.Data)
		Expect(err).NotTo(HaveOccurred())
		s.change(ctx, old)
		Expect(keeper.UpdateKeys(ctx)).To(Succeed())
	})

	It("come into use after every live process has them", func(ctx SpecContext) {
		s := newKeyScene(ctx)
		keeper, facade := s.begun(ctx), s.process("facade")
		Expect(facade.Await(ctx)).To(Succeed())
		ring := s.ring(ctx)
		oldDerivation, oldSealing := ring.IDs(secrets.Derivation)[0], ring.IDs(secrets.Sealing)[0]
		ring, derivation, err := ring.WithNewKey(secrets.Derivation)
		Expect(err).NotTo(HaveOccurred())
		ring, sealing, err := ring.WithNewKey(secrets.Sealing)
		Expect(err).NotTo(HaveOccurred())
		s.change(ctx, ring)

		Expect(keeper.UpdateKeys(ctx)).To(Succeed())
		Expect(s.state(ctx, derivation)).To(Equal(secrets.KeyStatus{ID: derivation, State: secrets.KeyNew, Lacking: []string{"facade"}}))
		Expect(s.state(ctx, oldDerivation).State).To(Equal(secrets.KeyCurrent))
		Expect(keeper.Follower.Keys.SealingKey()).To(Equal(oldSealing))

		Expect(facade.Refresh(ctx)).To(Succeed())
		Expect(facade.Keys.SealingKey()).To(Equal(oldSealing))
		Expect(keeper.UpdateKeys(ctx)).To(Succeed())
		Expect(s.state(ctx, derivation).State).To(Equal(secrets.KeyCurrent))
		Expect(s.state(ctx, oldDerivation).State).To(Equal(secrets.KeyFormer))
		Expect(keeper.Follower.Keys.SealingKey()).To(Equal(sealing))
		Expect(facade.Refresh(ctx)).To(Succeed())
		Expect(facade.Keys.SealingKey()).To(Equal(sealing))

		By("recording them in the audit log")
		entries, err := s.db.ListAudit(ctx, store.AuditQuery{Limit: 10})
		Expect(err).NotTo(HaveOccurred())
		var added []string
		for _, e := range entries {
			Expect(e.Operation).To(Equal("addPlatformKey"))
			Expect(e.Actor.Name).NotTo(BeEmpty())
			added = append(added, e.Object.ID)
		}
		Expect(added).To(ConsistOf(oldDerivation, oldSealing, derivation, sealing), "once each")
	})

	It("seal values again, and a revoked one is removed when it is no longer needed", func(ctx SpecContext) {
		s := newKeyScene(ctx)
		keeper := s.begun(ctx)
		old := s.ring(ctx).IDs(secrets.Sealing)[0]
		key := store.Key{ProjectID: uuid.New(), ID: uuid.New()}
		field := secrets.CredentialsField(key.ProjectID, key.ID)
		sealed, by, err := keeper.Follower.Keys.Seal(field, []byte("CANARY"))
		Expect(err).NotTo(HaveOccurred())
		Expect(by).To(Equal(old))
		Expect(s.db.PutConnector(ctx, store.Connector{
			Ref: store.ObjectRef{Namespace: "a", Kind: store.KindConnector, Name: "crm", ObjectUID: "1", Generation: 1},
			ID:  key.ID, ProjectID: key.ProjectID, EnvironmentID: uuid.New(), Name: "crm", Type: "webhook", Mode: "outbound",
			Sealed: sealed, SealedKey: by, SecretVersion: 1,
		})).To(Succeed())

		ring, sealing, err := s.ring(ctx).WithNewKey(secrets.Sealing)
		Expect(err).NotTo(HaveOccurred())
		s.change(ctx, ring.WithRevoked(old, 0))
		Expect(keeper.UpdateKeys(ctx)).To(Succeed())
		row, err := s.db.Connector(ctx, key)
		Expect(err).NotTo(HaveOccurred())
		Expect(row.SealedKey).To(Equal(sealing))
		Expect(keeper.Follower.Keys.Open(field, row.Sealed)).To(BeEquivalentTo("CANARY"))
		Expect(keeper.UpdateKeys(ctx)).To(Succeed())
		Expect(s.ring(ctx).IDs(secrets.Sealing)).To(Equal([]string{sealing}))
		Expect(s.ring(ctx).Revoked()).To(BeEmpty())
		Expect(s.state(ctx, old)).To(BeZero())
		Expect(keeper.UpdateKeys(ctx)).To(Succeed(), "it is not missed")
	})

	It("ignore a revoked key that never existed", func(ctx SpecContext) {
		s := newKeyScene(ctx)
		keeper := s.begun(ctx)
		audited := func() int {
			entries, err := s.db.ListAudit(ctx, store.AuditQuery{Limit: 10})
			Expect(err).NotTo(HaveOccurred())
			return len(entries)
		}
		before := audited()
		s.change(ctx, s.ring(ctx).WithRevoked("derivation-00000000", time.Hour))
		for range 3 {
			Expect(keeper.UpdateKeys(ctx)).To(Succeed())
			Expect(s.ring(ctx).Revoked()).To(BeEmpty())
		}
		Expect(audited()).To(Equal(before))
	})

	It("leave connectors of another manager alone", func(ctx SpecContext) {
		s := newKeyScene(ctx)
		keeper := s.begun(ctx)
		anew := make(chan event.GenericEvent, 10)
		keeper.Changed, keeper.Namespaces = anew, namespaces.Set{"ours"}
		old := s.ring(ctx).IDs(secrets.Derivation)[0]
		for _, namespace := range []string{"ours", "theirs"} {
			Expect(s.db.PutConnector(ctx, store.Connector{
				Ref: store.ObjectRef{Namespace: namespace, Kind: store.KindConnector, Name: "ask", ObjectUID: namespace, Generation: 1},
				ID:  uuid.New(), ProjectID: uuid.New(), EnvironmentID: uuid.New(), Name: "ask", Type: "webhook", Mode: "sync",
				SecretVersion: 1, SecretKey: old, SecretDigest: secrets.Digest("old"),
			})).To(Succeed())
		}
		ring, _, err := s.ring(ctx).WithNewKey(secrets.Derivation)
		Expect(err).NotTo(HaveOccurred())
		s.change(ctx, ring.WithRevoked(old, time.Hour))
		Expect(keeper.UpdateKeys(ctx)).To(Succeed())
		Expect((<-anew).Object.GetNamespace()).To(Equal("ours"))
		Expect(anew).To(BeEmpty())
	})

	It("keep a revoked key while secrets derive from it", func(ctx SpecContext) {
		s := newKeyScene(ctx)
		keeper := s.begun(ctx)
		anew := make(chan event.GenericEvent, 10)
		keeper.Changed = anew
		old := s.ring(ctx).IDs(secrets.Derivation)[0]
		row := store.Connector{
			Ref: store.ObjectRef{Namespace: "a", Kind: store.KindConnector, Name: "ask", ObjectUID: "1", Generation: 1},
			ID:  uuid.New(), ProjectID: uuid.New(), EnvironmentID: uuid.New(), Name: "ask", Type: "webhook", Mode: "sync",
			SecretVersion: 1, SecretKey: old, SecretDigest: secrets.Digest("old"),
		}
		Expect(s.db.PutConnector(ctx, row)).To(Succeed())
		ring, _, err := s.ring(ctx).WithNewKey(secrets.Derivation)
		Expect(err).NotTo(HaveOccurred())
		s.change(ctx, ring.WithRevoked(old, time.Hour))
		Expect(keeper.UpdateKeys(ctx)).To(Succeed())
		Expect((<-anew).Object.GetName()).To(Equal("ask"))
		Expect(s.ring(ctx).IDs(secrets.Derivation)).To(HaveLen(2))
		Expect(s.state(ctx, old).Needed).To(BeEquivalentTo(1))

		entries, err := s.db.ListAudit(ctx, store.AuditQuery{Limit: 1})
		Expect(err).NotTo(HaveOccurred())
		Expect(entries[0].Operation + " " + entries[0].Object.ID).To(Equal("revokePlatformKey " + old))
		row.SecretKey, err = s.db.DerivationKey(ctx, row.Key(), 1)
		Expect(err).NotTo(HaveOccurred())
		row.SecretDigest = secrets.Digest("anew")
		Expect(s.db.PutConnector(ctx, row)).To(Succeed())
		Expect(keeper.UpdateKeys(ctx)).To(Succeed())
		Expect(s.ring(ctx).IDs(secrets.Derivation)).To(Equal([]string{row.SecretKey}))
	})

	It("change under a running manager, which derives the secrets of a leaked key again", func(ctx SpecContext) {
		p := start()
		s := keyScene{secret: platformkeys.Secret{Client: p.client, Namespace: p.keys.Namespace}, db: p.store} // like an operator
		ns := p.plane.Namespace(GinkgoTB())
		at := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }
		connector := &v1alpha1.Connector{ObjectMeta: at("ask"), Spec: v1alpha1.ConnectorSpec{
			Environment: "dev", Mode: v1alpha1.ModeSync, Webhook: &v1alpha1.WebhookConnector{},
		}}
		for _, o := range []client.Object{
			&v1alpha1.Project{ObjectMeta: at("project")}, &v1alpha1.Environment{ObjectMeta: at("dev")}, connector,
		} {
			Expect(p.client.Create(ctx, o)).To(Succeed())
		}
		p.eventually(ctx, connector, ready(connector))
		shown := &corev1.Secret{ObjectMeta: at(connector.Status.SecretName)}
		p.eventually(ctx, shown, func() bool { return len(shown.Data["secret"]) > 0 })
		leaked := string(shown.Data["secret"])
		old := s.ring(ctx).IDs(secrets.Derivation)
		ring, _, err := s.ring(ctx).WithNewKey(secrets.Derivation)
		Expect(err).NotTo(HaveOccurred())
		for _, id := range old {
			ring = ring.WithRevoked(id, 24*time.Hour)
		}
		s.change(ctx, ring)
		p.eventually(ctx, shown, func() bool { return string(shown.Data["secret"]) != leaked })
		key := store.Key{ProjectID: v1alpha1.ProjectID(p.platformID, ns), ID: uuid.MustParse(connector.Status.ID)}
		route, err := p.store.Route(ctx, key)
		Expect(err).NotTo(HaveOccurred())
		Expect(route.Connector.Secrets).To(HaveLen(2))
		Expect(route.Connector.Secrets[0].SHA256).To(Equal(secrets.Digest(string(shown.Data["secret"]))))
		Expect(route.Connector.Secrets[1].SHA256).To(Equal(secrets.Digest(leaked)))
		Expect(route.Connector.Secrets[1].NotAfter).NotTo(BeNil())
		Eventually(ctx, func() []string { return s.ring(ctx).IDs(secrets.Derivation) }).Should(HaveLen(1))
	})
})
