// SPDX-License-Identifier: Apache-2.0

package controllertest

import (
	"context"
	"fmt"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// Events records events instead of sending them.
type Events struct {
	mu   sync.Mutex
	sent []string
}

// Eventf implements events.EventRecorder.
func (e *Events) Eventf(_, _ runtime.Object, kind, reason, _, note string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.sent = append(e.sent, kind+" "+reason+": "+fmt.Sprintf(note, args...))
}

// Sent returns the events since its last call, each as "<type> <reason>: <note>".
func (e *Events) Sent() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	sent := e.sent
	e.sent = nil
	return sent
}

// ExpectApplied creates objects, or updates existing ones.
func (f *Fixture) ExpectApplied(ctx context.Context, objects ...client.Object) {
	GinkgoHelper()
	for _, o := range objects {
		if o.GetUID() == "" {
			Expect(f.Admin.Create(ctx, o)).To(Succeed(), "%T %s", o, o.GetName())
			continue
		}
		current := o.DeepCopyObject().(client.Object)
		Expect(f.Admin.Get(ctx, client.ObjectKeyFromObject(o), current)).To(Succeed())
		o.SetResourceVersion(current.GetResourceVersion())
		Expect(f.Admin.Update(ctx, o)).To(Succeed(), "%T %s", o, o.GetName())
	}
}

// ExpectStatus writes the status of an object, as Kubernetes' own controllers do.
func (f *Fixture) ExpectStatus(ctx context.Context, o client.Object) {
	GinkgoHelper()
	Expect(f.Admin.Status().Update(ctx, o)).To(Succeed(), "%T %s", o, o.GetName())
}

// ExpectExists reads an object.
func (f *Fixture) ExpectExists(ctx context.Context, o client.Object) {
	GinkgoHelper()
	Expect(f.Admin.Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed(), "%T %s", o, o.GetName())
}

// ExpectNotFound expects that an object does not exist or is being deleted.
func (f *Fixture) ExpectNotFound(ctx context.Context, o client.Object) {
	GinkgoHelper()
	err := f.Admin.Get(ctx, client.ObjectKeyFromObject(o), o)
	gone := apierrors.IsNotFound(err) || err == nil && o.GetDeletionTimestamp() != nil
	Expect(gone).To(BeTrue(), "%T %s is there: %v", o, o.GetName(), err)
}

// ExpectReconciled reconciles an object and reads it again. It expects an unchanged spec, because no
// controller writes specs.
func (f *Fixture) ExpectReconciled(ctx context.Context, r reconcile.Reconciler, o client.Object) ctrl.Result {
	GinkgoHelper()
	asked := o.GetGeneration()
	result, err := r.Reconcile(ctx, f.Request(o))
	Expect(err).NotTo(HaveOccurred(), "%T %s", o, o.GetName())
	f.ExpectExists(ctx, o)
	Expect(o.GetGeneration()).To(Equal(asked), "%T %s: somebody wrote its spec", o, o.GetName())
	return result
}

// ExpectReconcileFails expects that reconciling an object fails, and reads it again.
func (f *Fixture) ExpectReconcileFails(ctx context.Context, r reconcile.Reconciler, o client.Object) {
	GinkgoHelper()
	_, err := r.Reconcile(ctx, f.Request(o))
	Expect(err).To(HaveOccurred(), "%T %s", o, o.GetName())
	f.ExpectExists(ctx, o)
}

// ExpectAtRest reconciles an object in its final state and expects that nothing changes: no object of
// the namespace, no status, no event. It returns the result. It reconciles once before, because the
// first apply after a create changes the managed fields.
func (f *Fixture) ExpectAtRest(ctx context.Context, r reconcile.Reconciler, o client.Object) ctrl.Result {
	GinkgoHelper()
	f.ExpectReconciled(ctx, r, o)
	before := f.Versions(ctx)
	f.Cluster.Calls()
	f.Events.Sent()
	result := f.ExpectReconciled(ctx, r, o)
	Expect(f.Cluster.Writes()).To(BeEmpty(), "calls that write, at rest")
	Expect(f.Versions(ctx)).To(Equal(before), "versions of objects, at rest")
	Expect(f.Events.Sent()).To(BeEmpty(), "events, at rest")
	return result
}

// ExpectDeleted deletes an object and notifies its reconciler, like the watch.
func (f *Fixture) ExpectDeleted(ctx context.Context, r reconcile.Reconciler, o v1alpha1.ConditionedObject) {
	GinkgoHelper()
	object := o.(client.Object)
	Expect(f.Admin.Delete(ctx, object)).To(Succeed())
	Expect(f.deletedRequest(ctx, object)).To(Equal(f.Request(object)), "what the watch of deletions queues")
	_, err := r.Reconcile(ctx, f.Request(object))
	Expect(err).NotTo(HaveOccurred())
}

// ExpectDeletionFails notifies a reconciler of a deletion, and expects that it fails.
func (f *Fixture) ExpectDeletionFails(ctx context.Context, r reconcile.Reconciler, o v1alpha1.ConditionedObject) {
	GinkgoHelper()
	_, err := r.Reconcile(ctx, f.deletedRequest(ctx, o.(client.Object)))
	Expect(err).To(HaveOccurred())
}

// ExpectReplaced re-creates a deployment just before a reconciler writes its status, and returns the new
// object.
func (f *Fixture) ExpectReplaced(ctx context.Context, r reconcile.Reconciler, d *v1alpha1.Deployment) *v1alpha1.Deployment {
	GinkgoHelper()
	replacement := f.Deployment(d.Name)
	f.Cluster.Fail(func(c Call) error {
		if c.Verb == "patch status" && replacement.UID == "" {
			f.ExpectGone(ctx, d)
			f.ExpectApplied(ctx, replacement)
		}
		return nil
	})
	_, err := r.Reconcile(ctx, f.Request(d))
	Expect(err).NotTo(HaveOccurred())
	f.Cluster.Fail(nil)
	f.ExpectExists(ctx, replacement)
	Expect(replacement.UID).NotTo(Or(BeEmpty(), Equal(d.UID)))
	return replacement
}

// deletedRequest returns the request that the watch queues for a deletion.
func (f *Fixture) deletedRequest(ctx context.Context, o client.Object) ctrl.Request {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
	defer queue.ShutDown()
	f.Deleted().Delete(ctx, event.DeleteEvent{Object: o}, queue)
	request, _ := queue.Get()
	return request
}

// Request returns the request to reconcile an object.
func (f *Fixture) Request(o client.Object) ctrl.Request {
	return ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)}
}

// kinds are the kinds that reconcilers write.
var kinds = []client.ObjectList{
	&v1alpha1.ProjectList{}, &v1alpha1.EnvironmentList{}, &v1alpha1.DeploymentList{},
	&v1alpha1.ConnectorList{}, &v1alpha1.ConnectorLinkList{}, &v1alpha1.APIKeyList{},
	&corev1.SecretList{}, &corev1.ConfigMapList{}, &networkingv1.NetworkPolicyList{}, &appsv1.DeploymentList{}, &batchv1.JobList{},
}

// forEachObject calls do for every object of the namespace that reconcilers may have written.
func (f *Fixture) forEachObject(ctx context.Context, do func(name string, o client.Object)) {
	GinkgoHelper()
	for _, kind := range kinds {
		list := kind.DeepCopyObject().(client.ObjectList)
		Expect(f.Admin.List(ctx, list, client.InNamespace(f.Namespace))).To(Succeed())
		Expect(meta.EachListItem(list, func(item runtime.Object) error {
			o := item.(client.Object)
			gvk, err := apiutil.GVKForObject(o, f.Admin.Scheme())
			do(gvk.Kind+" "+o.GetName(), o)
			return err
		})).To(Succeed())
	}
}

// Versions returns the resourceVersions of all objects of the namespace, by "<kind> <name>".
func (f *Fixture) Versions(ctx context.Context) map[string]string {
	GinkgoHelper()
	out := map[string]string{}
	f.forEachObject(ctx, func(name string, o client.Object) { out[name] = string(o.GetUID()) + "@" + o.GetResourceVersion() })
	return out
}

// Controller returns the UID of the controller of an object's children: the object itself, or the
// namespace for a Project.
func (f *Fixture) Controller(ctx context.Context, o client.Object) types.UID {
	GinkgoHelper()
	if _, isProject := o.(*v1alpha1.Project); !isProject {
		return o.GetUID()
	}
	namespace := &corev1.Namespace{}
	Expect(f.Admin.Get(ctx, client.ObjectKey{Name: f.Namespace}, namespace)).To(Succeed())
	return namespace.UID
}

// Children returns the objects that an owner controls, each as "<kind> <name>".
func (f *Fixture) Children(ctx context.Context, owner types.UID) []string {
	GinkgoHelper()
	var out []string
	f.forEachObject(ctx, func(name string, o client.Object) {
		if ref := metav1.GetControllerOf(o); ref != nil && ref.UID == owner {
			out = append(out, name)
		}
	})
	return out
}

// State returns the state of an object as kstatus reads it, such as "Ready=False/SecretMissing
// Reconciling" or "Ready=True/Succeeded observed". "observed" means that the current generation was
// observed.
func State(o v1alpha1.ConditionedObject) string {
	var out []string
	status := o.CommonStatus()
	if c := status.Condition(v1alpha1.ConditionReady); c != nil {
		out = append(out, fmt.Sprintf("Ready=%s/%s", c.Status, c.Reason))
	}
	for _, kind := range []string{v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
		if status.IsTrue(kind) {
			out = append(out, kind)
		}
	}
	if status.ObservedGeneration == o.GetGeneration() {
		out = append(out, "observed")
	}
	return strings.Join(out, " ")
}

// Message returns the message of the condition Ready.
func Message(o v1alpha1.ConditionedObject) string {
	GinkgoHelper()
	ready := o.CommonStatus().Condition(v1alpha1.ConditionReady)
	Expect(ready).NotTo(BeNil())
	return ready.Message
}
