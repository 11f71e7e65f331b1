// SPDX-License-Identifier: Apache-2.0

package apikey_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/apikey"
	"github.com/agentplatform/agentplatform/controllers/base"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/internal/keys"
	"github.com/agentplatform/agentplatform/store"
)

var _ = Describe("An APIKey", func() {
	It("goes from created to revoked, with one audit log entry for each", func(ctx SpecContext) {
		s := newScene()
		k := s.key("ci")
		Expect(s.reconciled(ctx, k)).To(Equal(base.MaxRetryInterval))
		Expect(State(k)).To(Equal("Ready=False/ProjectMissing Reconciling"))
		Expect(s.told(ctx)).To(BeEmpty(), "the project has no log yet")
		s.ExpectProject(ctx)
		Expect(s.ExpectReconciled(ctx, s.r, k).RequeueAfter).To(BeZero(), "nothing ends it")
		Expect(State(k)).To(Equal("Ready=True/Succeeded observed"))
		Expect(s.told(ctx)).To(Equal([]string{"createAPIKey ci"}))
		s.ExpectAtRest(ctx, s.r, k)

		By("changing its display name, which is not audited")
		k.Spec.DisplayName = "CI"
		s.reconciled(ctx, k)
		Expect(State(k)).To(Equal("Ready=True/Succeeded observed"))

		k.Spec.Revoked = true
		Expect(s.reconciled(ctx, k)).To(BeZero())
		Expect(State(k)).To(Equal("Ready=True/Revoked observed"), "that is as asked")
		s.ExpectAtRest(ctx, s.r, k)
		Expect(s.told(ctx)).To(Equal([]string{"createAPIKey ci", "revokeAPIKey ci"}))
	})

	It("is revoked whatever the state of its project, with one audit log entry", func(ctx SpecContext) {
		s := newScene()
		k := s.key("never-in-force")
		s.reconciled(ctx, k)
		Expect(State(k)).To(Equal("Ready=False/ProjectMissing Reconciling"))
		k.Spec.Revoked = true
		Expect(s.reconciled(ctx, k)).To(BeZero())
		Expect(State(k)).To(Equal("Ready=True/Revoked observed"))
		s.ExpectAtRest(ctx, s.r, k)
		Expect(s.told(ctx)).To(Equal([]string{"createAPIKey never-in-force", "revokeAPIKey never-in-force"}))

		project := s.ExpectProject(ctx)
		inForce := s.key("in-force")
		s.reconciled(ctx, inForce)
		s.ExpectGone(ctx, project)
		s.ExpectReconciled(ctx, s.r, inForce)
		Expect(State(inForce)).To(Equal("Ready=False/ProjectMissing Reconciling observed"))
		inForce.Spec.Revoked = true
		s.reconciled(ctx, inForce)
		Expect(State(inForce)).To(Equal("Ready=True/Revoked observed"))
		s.ExpectAtRest(ctx, s.r, inForce)
		Expect(s.told(ctx)[2:]).To(Equal([]string{"createAPIKey in-force", "revokeAPIKey in-force"}))
	})

	It("shows only states with an audit log entry", func(ctx SpecContext) {
		s := newScene()
		s.ExpectProject(ctx)
		k := s.key("ci")
		s.reconciled(ctx, k)
		k.Spec.Revoked = true
		s.ExpectApplied(ctx, k)
		s.Store.GoAway()
		s.ExpectReconcileFails(ctx, s.r, k)
		Expect(State(k)).To(Equal("Ready=Unknown/StoreUnavailable Reconciling"))
		s.Store.ComeBack()
		s.ExpectReconciled(ctx, s.r, k)
		Expect(State(k)).To(Equal("Ready=True/Revoked observed"))
		Expect(s.told(ctx)).To(Equal([]string{"createAPIKey ci", "revokeAPIKey ci"}))
	})

	It("expires a second after its time", func(ctx SpecContext) {
		s := newScene()
		s.ExpectProject(ctx)
		end := metav1.NewTime(s.Clock.Now().Add(time.Hour).Truncate(time.Second))
		k := s.key("ci", func(k *v1alpha1.APIKey) { k.Spec.ExpiresAt = ptr.To(end) })
		wait := s.reconciled(ctx, k)
		Expect(wait).To(Equal(end.Sub(s.Clock.Now()) + time.Second))
		Expect(State(k)).To(Equal("Ready=True/Succeeded observed"))
		s.Clock.Step(wait)
		Expect(s.ExpectReconciled(ctx, s.r, k).RequeueAfter).To(BeZero())
		Expect(State(k)).To(Equal("Ready=True/Expired observed"))
		s.ExpectAtRest(ctx, s.r, k)

		k.Spec.ExpiresAt = ptr.To(metav1.NewTime(end.Add(2 * time.Hour)))
		s.reconciled(ctx, k)
		Expect(State(k)).To(Equal("Ready=True/Succeeded observed"))
	})

	It("expires a year after its creation if it has groups", func(ctx SpecContext) {
		s := newScene()
		s.ExpectProject(ctx)
		k := s.key("ci", func(k *v1alpha1.APIKey) { k.Spec.Owner.Groups = []string{"dev", "system:masters"} })
		wait := s.reconciled(ctx, k)
		Expect(s.Clock.Now().Add(wait)).To(BeTemporally("==", k.CreationTimestamp.Add(v1alpha1.GroupsLifetime+time.Second)))
		Expect(Message(k)).To(ContainSubstring("system:masters"))
		s.Clock.Step(wait)
		s.ExpectReconciled(ctx, s.r, k)
		Expect(State(k)).To(Equal("Ready=True/Expired observed"))
		Expect(Message(k)).To(ContainSubstring("a year"))
	})

	It("is stalled by an unknown permission, and still reports its expiry", func(ctx SpecContext) {
		s := newScene()
		s.ExpectProject(ctx)
		end := metav1.NewTime(s.Clock.Now().Add(time.Hour).Truncate(time.Second))
		k := s.key("ci", func(k *v1alpha1.APIKey) {
			k.Spec.ExpiresAt, k.Spec.Access = ptr.To(end), v1alpha1.AccessSelected
			k.Spec.Permissions = []v1alpha1.Permission{"environments.view", "environment.veiw"}
		})
		Expect(s.reconciled(ctx, k)).To(BeNumerically(">", 0))
		Expect(State(k)).To(Equal("Ready=False/PermissionUnknown Stalled observed"))
		s.Clock.Step(2 * time.Hour)
		s.ExpectReconciled(ctx, s.r, k)
		Expect(State(k)).To(Equal("Ready=True/Expired observed"))
	})

	It("reports missing environments until they exist", func(ctx SpecContext) {
		s := newScene()
		s.ExpectProject(ctx)
		s.ExpectEnvironment(ctx, "dev")
		end := metav1.NewTime(s.Clock.Now().Add(time.Hour).Truncate(time.Second))
		k := s.key("ci", func(k *v1alpha1.APIKey) {
			k.Spec.ExpiresAt, k.Spec.EnvironmentAccess = ptr.To(end), v1alpha1.AccessSelected
			k.Spec.Environments = []v1alpha1.EnvironmentName{"dev", "stagign"}
		})
		Expect(s.reconciled(ctx, k)).To(BeNumerically(">", 0))
		Expect(State(k)).To(Equal("Ready=False/ReferenceMissing Reconciling"))
		Expect(Message(k)).To(And(ContainSubstring(`"stagign"`), Not(ContainSubstring(`"dev"`))))
		s.ExpectAtRest(ctx, s.r, k)

		made := s.ExpectEnvironment(ctx, "stagign")
		s.ExpectReconciled(ctx, s.r, k)
		Expect(State(k)).To(Equal("Ready=True/Succeeded observed"))
		s.ExpectGone(ctx, made)
		s.ExpectReconciled(ctx, s.r, k)
		Expect(State(k)).To(ContainSubstring("Ready=False/ReferenceMissing"))
		s.Clock.Step(2 * time.Hour)
		s.ExpectReconciled(ctx, s.r, k)
		Expect(State(k)).To(Equal("Ready=True/Expired observed"))
	})

	It("is removed from the store with its object", func(ctx SpecContext) {
		s := newScene()
		s.ExpectProject(ctx)
		k := s.key("ci")
		s.reconciled(ctx, k)
		_, err := s.Store.Holder(ctx, s.Key(k))
		Expect(err).NotTo(HaveOccurred())
		s.ExpectDeleted(ctx, s.r, k)
		_, err = s.Store.Holder(ctx, s.Key(k))
		Expect(err).To(MatchError(store.ErrNotFound))
	})

	for _, fault := range Faults {
		It("survives "+fault.Name, func(ctx SpecContext) {
			s := newScene()
			s.ExpectProject(ctx)
			k := s.key("ci")
			s.ExpectApplied(ctx, k)
			s.ExpectSurvives(ctx, fault, s.r, k)
			Expect(v1alpha1.IsReady(k)).To(BeTrue())
		})
	}
})

func TestAPIKey_Suite(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "apikey")
}

// scene is a namespace with a reconciler of API keys.
type scene struct {
	*Fixture
	r *apikey.Reconciler
}

func newScene() *scene {
	GinkgoHelper()
	f := New()
	return &scene{Fixture: f, r: &apikey.Reconciler{Base: f.Base, Audit: f.Store}}
}

// key returns an API key that Anna owns.
func (s *scene) key(name string, changes ...func(*v1alpha1.APIKey)) *v1alpha1.APIKey {
	made := keys.Generate()
	k := &v1alpha1.APIKey{ObjectMeta: s.At(name), Spec: v1alpha1.APIKeySpec{
		Hash: made.Hash(), KeyID: made.ID(), Owner: v1alpha1.KeyOwner{Kind: v1alpha1.OwnerUser, Name: "anna"},
	}}
	for _, change := range changes {
		change(k)
	}
	return k
}

// reconciled applies a key, reconciles it and returns the time until the next reconcile.
func (s *scene) reconciled(ctx context.Context, k *v1alpha1.APIKey) time.Duration {
	GinkgoHelper()
	s.ExpectApplied(ctx, k)
	return s.ExpectReconciled(ctx, s.r, k).RequeueAfter
}

// told returns the operations in the audit log, oldest first.
func (s *scene) told(ctx context.Context) (operations []string) {
	GinkgoHelper()
	entries, err := s.Store.ListAudit(ctx, store.AuditQuery{ProjectID: s.ProjectID(s.Namespace), Limit: 100})
	Expect(err).NotTo(HaveOccurred())
	for _, e := range entries {
		operations = append([]string{e.Operation + " " + e.Object.Name}, operations...)
	}
	return operations
}
