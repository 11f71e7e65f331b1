// SPDX-License-Identifier: Apache-2.0

// Package cached configures the informer cache of the manager: which kinds, which of their objects, and
// which fields. Stripped fields read as empty in every controller, so the tests of all controllers use
// this cache configuration too.
package cached

import (
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
)

// Options returns the cache configuration. The cache has all objects of the platform's kinds, and only
// the objects of other kinds that the platform created, without fields that no controller reads. It has
// the names, labels and owners of all Secrets, so that controllers notice changes of referenced Secrets
// and deleted children at once. Controllers read the values of Secrets when they need them.
func Options() cache.Options {
	ours := func(strip toolscache.TransformFunc) cache.ByObject {
		return cache.ByObject{Label: labels.SelectorFromSet(labels.Set{base.LabelManagedBy: base.ManagedBy}), Transform: strip}
	}
	return cache.Options{ByObject: map[client.Object]cache.ByObject{
		&v1alpha1.Project{}: {Transform: stripMeta}, &v1alpha1.Environment{}: {Transform: stripMeta},
		&v1alpha1.Deployment{}: {Transform: stripMeta},
		// Controllers read from managedFields who wrote a key or changed a mirror of code.
		&v1alpha1.APIKey{}: {Transform: stripAnnotations}, &v1alpha1.Connector{}: {Transform: stripConnector},
		&v1alpha1.ConnectorLink{}: {Transform: stripAnnotations},
		&corev1.Secret{}:          {Transform: stripMeta},
		&corev1.ConfigMap{}:       ours(stripMeta), &networkingv1.NetworkPolicy{}: ours(stripMeta),
		&corev1.Pod{}: ours(stripPod), &batchv1.Job{}: ours(stripJob), &appsv1.Deployment{}: ours(stripPool),
	}}
}

// Kinds returns a list object for each cached kind. For kinds of other groups, it is a metadata list.
func Kinds() []client.ObjectList {
	kinds := []client.ObjectList{
		&v1alpha1.ProjectList{}, &v1alpha1.EnvironmentList{}, &v1alpha1.DeploymentList{}, &v1alpha1.ConnectorList{},
		&v1alpha1.ConnectorLinkList{}, &v1alpha1.APIKeyList{},
	}
	for _, of := range []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("SecretList"), corev1.SchemeGroupVersion.WithKind("ConfigMapList"),
		corev1.SchemeGroupVersion.WithKind("PodList"), batchv1.SchemeGroupVersion.WithKind("JobList"),
		appsv1.SchemeGroupVersion.WithKind("DeploymentList"), networkingv1.SchemeGroupVersion.WithKind("NetworkPolicyList"),
	} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(of)
		kinds = append(kinds, list)
	}
	return kinds
}

// stripMeta removes all metadata except identity, labels and owners.
func stripMeta(in any) (any, error) {
	if o, ok := in.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	return stripAnnotations(in)
}

// stripAnnotations removes all annotations. An object may have 256 KiB of annotations that no
// controller reads.
func stripAnnotations(in any) (any, error) {
	return keepAnnotation(in, "")
}

// keepAnnotation removes all annotations except one.
func keepAnnotation(in any, name string) (any, error) {
	if o, ok := in.(metav1.Object); ok {
		value, has := o.GetAnnotations()[name]
		o.SetAnnotations(nil)
		if has {
			o.SetAnnotations(map[string]string{name: value})
		}
	}
	return in, nil
}

// stripConnector removes all annotations except the grace period of the last rotation.
func stripConnector(in any) (any, error) {
	return keepAnnotation(in, v1alpha1.AnnotationRotationGrace)
}

// stripPod removes all fields of a pod except metadata and status.
func stripPod(in any) (any, error) {
	if pod, ok := in.(*corev1.Pod); ok {
		pod.Spec = corev1.PodSpec{}
	}
	return stripMeta(in)
}

// stripJob removes all fields of a Job except metadata, status and deadline.
func stripJob(in any) (any, error) {
	if job, ok := in.(*batchv1.Job); ok {
		job.Spec = batchv1.JobSpec{ActiveDeadlineSeconds: job.Spec.ActiveDeadlineSeconds}
	}
	return stripMeta(in)
}

// stripPool removes all fields of a pool except metadata, status, the number of replicas and the
// platform annotation.
func stripPool(in any) (any, error) {
	pool, ok := in.(*appsv1.Deployment)
	if !ok {
		return in, nil
	}
	pool.Spec = appsv1.DeploymentSpec{Replicas: pool.Spec.Replicas}
	pool.SetManagedFields(nil)
	return keepAnnotation(in, base.AnnotationPlatform)
}
