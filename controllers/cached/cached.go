// SPDX-License-Identifier: Apache-2.0

// Package cached says what a manager's cache holds: which kinds, which objects of them,
// and what of an object. A controller that reads what is stripped here reads nothing, so
// the tests of all controllers read as from such a cache.
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
	"github.com/agentplatform/agentplatform/controllers/object"
)

// Options let a manager cache our own kinds, and of the others what the
// platform made, without what no controller reads. Of Secrets it caches names,
// labels and owners, of all of them: a Secret that an object names, or a child that
// somebody deleted, is noticed at once. Values are read when they are needed.
func Options() cache.Options {
	ours := func(strip toolscache.TransformFunc) cache.ByObject {
		return cache.ByObject{Label: labels.SelectorFromSet(labels.Set{object.LabelManagedBy: object.ManagedBy}), Transform: strip}
	}
	return cache.Options{ByObject: map[client.Object]cache.ByObject{
		&v1alpha1.Project{}: {Transform: stripMeta}, &v1alpha1.Environment{}: {Transform: stripMeta},
		&v1alpha1.Deployment{}: {Transform: stripMeta},
		// Who wrote a key, or made a mirror of code, stands in its managed fields.
		&v1alpha1.APIKey{}: {Transform: stripAnnotations}, &v1alpha1.Connector{}: {Transform: stripConnector},
		&v1alpha1.ConnectorLink{}: {Transform: stripAnnotations},
		&corev1.Secret{}:          {Transform: stripMeta},
		&corev1.ConfigMap{}:       ours(stripMeta), &networkingv1.NetworkPolicy{}: ours(stripMeta),
		&corev1.Pod{}: ours(stripPod), &batchv1.Job{}: ours(stripJob), &appsv1.Deployment{}: ours(stripPool),
	}}
}

// Kinds are lists of all kinds that a manager caches; of others' kinds, their
// metadata.
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

// stripMeta leaves of an object's metadata what names it and says whose it is.
func stripMeta(in any) (any, error) {
	if o, ok := in.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	return stripAnnotations(in)
}

// stripAnnotations: an object may have 256 KiB of annotations that no controller reads.
func stripAnnotations(in any) (any, error) {
	return keepAnnotation(in, "")
}

// keepAnnotation leaves of an object's annotations the one that its controllers read.
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

// stripConnector leaves the grace period of the last rotation.
func stripConnector(in any) (any, error) {
	return keepAnnotation(in, v1alpha1.AnnotationRotationGrace)
}

// stripPod leaves a pod's status.
func stripPod(in any) (any, error) {
	if pod, ok := in.(*corev1.Pod); ok {
		pod.Spec = corev1.PodSpec{}
	}
	return stripMeta(in)
}

// stripJob leaves a Job's status and deadline.
func stripJob(in any) (any, error) {
	if job, ok := in.(*batchv1.Job); ok {
		job.Spec = batchv1.JobSpec{ActiveDeadlineSeconds: job.Spec.ActiveDeadlineSeconds}
	}
	return stripMeta(in)
}

// stripPool leaves a pool's status, how many replicas it has and what of the platform.
func stripPool(in any) (any, error) {
	pool, ok := in.(*appsv1.Deployment)
	if !ok {
		return in, nil
	}
	pool.Spec = appsv1.DeploymentSpec{Replicas: pool.Spec.Replicas}
	pool.SetManagedFields(nil)
	return keepAnnotation(in, object.AnnotationPlatform)
}
