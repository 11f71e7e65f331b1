// SPDX-License-Identifier: Apache-2.0

package base

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/agentplatform/agentplatform/internal/egress"
)

// DispatchCA is the ConfigMap in each project's namespace with the CAs of the dispatch port.
// DispatchCAKey is its key.
const (
	DispatchCA    = "agentplatform-dispatch-ca"
	DispatchCAKey = "ca.crt"

	// PortMetrics is the metrics port of runner pods.
	PortMetrics = "metrics"

	dispatchCAFolder = "/etc/agentplatform/dispatch"
)

// AnnotationPlatform of a pool is a digest of the platform's part of its pods: image, flags and pod
// format.
const AnnotationPlatform = "agentplatform.dev/platform"

// PodOptions are the operator's settings for build and runner pods. Pods get them only as arguments.
// Their environment is empty, so that a tenant cannot replace a flag.
type PodOptions struct {
	// Image is the image of the pods.
	Image string
	// DispatchURL is the URL of the gateway's internal port.
	DispatchURL string
	// TrustDispatchCA makes the pods trust the CAs in DispatchCA instead of the system's CAs.
	TrustDispatchCA bool
	// Egress lists the destinations that the pods can reach besides dispatch.
	Egress egress.Flags
}

// ConnectDispatch adds the URL of dispatch and its CA to a container of a pod.
func (o PodOptions) ConnectDispatch(spec *corev1.PodSpec, c *corev1.Container) {
	c.Args = append(c.Args, "--dispatch-url="+o.DispatchURL)
	if !o.TrustDispatchCA {
		return
	}
	const volume = "dispatch-ca"
	c.Args = append(c.Args, "--dispatch-ca-file="+dispatchCAFolder+"/"+DispatchCAKey)
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: dispatchCAFolder, ReadOnly: true})
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: DispatchCA}},
	}})
}
