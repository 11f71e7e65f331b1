// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// collectGarbage deletes the children of deleted objects like Kubernetes' garbage collector, which the
// test's control plane does not have.
func collectGarbage(ctx context.Context, mgr ctrl.Manager, c client.Client) {
	GinkgoHelper()
	for _, owner := range []client.Object{&v1alpha1.Project{}, &v1alpha1.Environment{}, &v1alpha1.Deployment{}, &v1alpha1.Connector{}} {
		informer, err := mgr.GetCache().GetInformer(ctx, owner)
		Expect(err).NotTo(HaveOccurred())
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{DeleteFunc: func(gone any) {
			if last, ok := gone.(toolscache.DeletedFinalStateUnknown); ok {
				gone = last.Obj
			}
			if owner, ok := gone.(client.Object); ok {
				deleteChildren(ctx, c, owner)
			}
		}})
		Expect(err).NotTo(HaveOccurred())
	}
}

// deleteChildren ignores errors: a test waits for the results instead.
func deleteChildren(ctx context.Context, c client.Client, owner client.Object) {
	for _, list := range []client.ObjectList{
		&corev1.SecretList{}, &corev1.ConfigMapList{}, &appsv1.DeploymentList{}, &batchv1.JobList{}, &networkingv1.NetworkPolicyList{},
	} {
		if c.List(ctx, list, client.InNamespace(owner.GetNamespace())) != nil {
			return
		}
		_ = apimeta.EachListItem(list, func(o runtime.Object) error {
			child, ok := o.(client.Object)
			if !ok || !metav1.IsControlledBy(child, owner) {
				return nil
			}
			return client.IgnoreNotFound(c.Delete(ctx, child, client.PropagationPolicy(metav1.DeletePropagationBackground)))
		})
	}
}
