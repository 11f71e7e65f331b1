// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

// children lists the children that the controllers create, with their owners.
var children = []struct {
	owner       v1alpha1.ConditionedObject
	kind, child string
}{
	{&v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: "project"}}, "NetworkPolicy", "agentplatform-build"},
	{&v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: "project"}}, "NetworkPolicy", "agentplatform-runner"},
	{&v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Name: "project"}}, "ConfigMap", "agentplatform-dispatch-ca"},
	{&v1alpha1.Environment{ObjectMeta: metav1.ObjectMeta{Name: "dev"}}, "Secret", "dev-runner-token"},
	{&v1alpha1.Environment{ObjectMeta: metav1.ObjectMeta{Name: "dev"}}, "Secret", "dev-runner-config"},
	{&v1alpha1.Environment{ObjectMeta: metav1.ObjectMeta{Name: "dev"}}, "Deployment", "dev-runner"},
	{&v1alpha1.Connector{ObjectMeta: metav1.ObjectMeta{Name: "ask"}}, "Secret", "ask-connector"},
	{&v1alpha1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "v1"}}, "Secret", "v1-build-token"},
	{&v1alpha1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "v1"}}, "Job", buildJob},
}

// buildJob is the owner of the build's token.
const buildJob = "v1-build"

// planted is the token in Secrets that another user created.
const planted = "planted-by-a-stranger"

// foreign returns an object of a child's kind that another user created.
func foreign(kind string, meta metav1.ObjectMeta) client.Object {
	labels := map[string]string{"app": "foreign"}
	pod := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "foreign"}}},
	}
	switch kind {
	case "Secret":
		return &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{base.TokenKey: []byte(planted)}}
	case "ConfigMap":
		return &corev1.ConfigMap{ObjectMeta: meta}
	case "NetworkPolicy":
		return &networkingv1.NetworkPolicy{ObjectMeta: meta, Spec: networkingv1.NetworkPolicySpec{
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		}}
	case "Deployment":
		return &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: pod,
		}}
	case "Job":
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		return &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Template: pod}}
	}
	Fail("no foreign object of kind " + kind)
	return nil
}

// collision is a child whose name another object has.
type collision struct {
	*team
	what    string
	owner   v1alpha1.ConditionedObject
	foreign client.Object
}

// collide creates the foreign object and then all owners.
func (p *platform) collide(ctx context.Context, i int, labels map[string]string) collision {
	GinkgoHelper()
	row := children[i]
	t := p.empty()
	c := collision{
		team: t, what: fmt.Sprintf("%s %s of %s, labels %v", row.kind, row.child, row.owner.ObjectKind(), labels),
		owner: row.owner.DeepCopyObject().(v1alpha1.ConditionedObject),
	}
	c.owner.SetNamespace(t.namespace)
	meta := t.at(row.child)
	meta.Labels = labels
	c.foreign = foreign(row.kind, meta)
	Expect(p.client.Create(ctx, c.foreign)).To(Succeed(), c.what)
	t.populate(ctx)
	DeferCleanup(t.clear)
	Expect(p.client.Create(ctx, &v1alpha1.Connector{ObjectMeta: t.at("ask"), Spec: v1alpha1.ConnectorSpec{
		Environment: "dev", Mode: v1alpha1.ModeInbound, Webhook: &v1alpha1.WebhookConnector{},
	}})).To(Succeed())
	t.deploy(ctx, "v1", "main")
	return c
}

// clear deletes the platform's objects, because managers of other specs see them too.
func (t *team) clear(ctx context.Context) {
	GinkgoHelper()
	for _, o := range []client.Object{&v1alpha1.Deployment{}, &v1alpha1.Connector{}, &v1alpha1.Environment{}, &v1alpha1.Project{}} {
		Expect(t.client.DeleteAllOf(ctx, o, client.InNamespace(t.namespace))).To(Succeed())
	}
}

// refused waits until the owner reports the conflict, and checks the report.
func (c collision) refused(ctx context.Context) {
	GinkgoHelper()
	By(c.what)
	owner := c.owner.(client.Object)
	c.eventually(ctx, owner, func() bool {
		stalled := c.owner.CommonStatus().Condition(v1alpha1.ConditionStalled)
		return stalled != nil && stalled.Reason == v1alpha1.ReasonNameCollision
	})
	message := c.owner.CommonStatus().Condition(v1alpha1.ConditionStalled).Message
	Expect(message).To(ContainSubstring(fmt.Sprintf("%q exists and does not belong to this object", c.foreign.GetName())))
	Expect(message).To(ContainSubstring("delete or rename it"))

	now := c.foreign.DeepCopyObject().(client.Object)
	Expect(c.client.Get(ctx, client.ObjectKeyFromObject(now), now)).To(Succeed())
	Expect(now.GetResourceVersion()).To(Equal(c.foreign.GetResourceVersion()), "it is left as it was")
	_, err := c.store.Token(ctx, secrets.Digest(planted))
	Expect(err).To(MatchError(store.ErrNotFound), "a planted token is not trusted")
}

// heals deletes the foreign object and waits for the child.
func (c collision) heals(ctx context.Context) {
	GinkgoHelper()
	By(c.what + ", gone")
	Expect(c.client.Delete(ctx, c.foreign, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
	owner := c.owner.(client.Object)
	before := owner.DeepCopyObject().(client.Object)
	owner.SetAnnotations(map[string]string{"example.com/look": "again"}) // sooner than the interval
	Expect(c.client.Patch(ctx, owner, client.MergeFrom(before))).To(Succeed())
	c.eventually(ctx, c.foreign, func() bool {
		by := metav1.GetControllerOf(c.foreign)
		// The build's token is deleted with its Job, and the Job with the Deployment.
		if by != nil && c.owner.ObjectKind() == "Project" {
			return by.Kind == "Namespace" && by.Name == c.namespace // policies outlive the Project
		}
		return by != nil && (by.UID == owner.GetUID() || by.Kind == "Job" && by.Name == buildJob)
	})
	c.eventually(ctx, owner, func() bool { return !v1alpha1.IsStalled(c.owner) })
}

// ours returns the objects of all kinds in the cluster that the platform's objects control.
func (t *team) ours(ctx context.Context) (found []string) {
	GinkgoHelper()
	known, err := discovery.NewDiscoveryClientForConfig(t.cluster)
	Expect(err).NotTo(HaveOccurred())
	lists, err := known.ServerPreferredNamespacedResources()
	Expect(err).NotTo(HaveOccurred())
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list"}}, lists) {
		group, err := schema.ParseGroupVersion(list.GroupVersion)
		Expect(err).NotTo(HaveOccurred())
		for _, resource := range list.APIResources {
			items := &metav1.PartialObjectMetadataList{}
			items.SetGroupVersionKind(group.WithKind(resource.Kind + "List"))
			Expect(t.client.List(ctx, items, client.InNamespace(t.namespace))).To(Succeed())
			for _, item := range items.Items {
				if ref := metav1.GetControllerOf(&item); ref != nil && ref.APIVersion == v1alpha1.GroupVersion.String() {
					found = append(found, ref.Kind+"/"+resource.Kind+"/"+item.Name)
				}
			}
		}
	}
	return found
}

var _ = Describe("Children", func() {
	It("are adopted only if their owner created them", func(ctx SpecContext) {
		p := start()
		var collisions []collision
		for i := range children {
			for _, labels := range []map[string]string{nil, base.Labels("runner", "dev")} {
				collisions = append(collisions, p.collide(ctx, i, labels))
			}
		}
		for _, c := range collisions {
			c.refused(ctx)
		}
		for _, c := range collisions {
			c.heals(ctx)
		}

		By("covering all children")
		var want []string
		for _, row := range children {
			if row.child == buildJob+"-token" || row.owner.ObjectKind() == "Project" {
				continue // controlled by the Job or the namespace, as heals has checked
			}
			want = append(want, row.owner.ObjectKind()+"/"+row.kind+"/"+row.child)
		}
		Eventually(ctx, func() []string { return collisions[0].ours(ctx) }).WithTimeout(30*time.Second).
			Should(ConsistOf(want), "a child that is missing in the table of children above is not tested")
	}, SpecTimeout(3*time.Minute))

	It("of an earlier object with the same name are not trusted until they are deleted", func(ctx SpecContext) {
		t := start().empty()
		yes := true
		meta := t.at("dev-runner-token")
		meta.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "Environment", Name: "dev", UID: "earlier", Controller: &yes,
		}}
		secret := foreign("Secret", meta)
		Expect(t.client.Create(ctx, secret)).To(Succeed())
		t.populate(ctx)
		environment := &v1alpha1.Environment{ObjectMeta: t.at("dev")}
		t.eventually(ctx, environment, func() bool {
			waits := environment.Status.Condition(v1alpha1.ConditionReconciling)
			return waits != nil && waits.Message == (&base.LeftoverError{Kind: "Secret", Name: "dev-runner-token"}).Error()
		})
		Expect(t.client.Delete(ctx, secret)).To(Succeed())
		t.eventually(ctx, secret, func() bool { return metav1.IsControlledBy(secret, environment) })
	}, SpecTimeout(time.Minute))
})
