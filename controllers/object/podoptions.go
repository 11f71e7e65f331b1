// SPDX-License-Identifier: Apache-2.0

package object

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/agentplatform/agentplatform/internal/egress"
)

// DispatchCA is the ConfigMap, in each project's namespace, with the authorities
// that the dispatch port's certificate may be of, and DispatchCAKey its key.
const (
	DispatchCA    = "agentplatform-dispatch-ca"
	DispatchCAKey = "ca.crt"

	// PortMetrics is the port of runner pods that Prometheus asks.
	PortMetrics = "metrics"

	dispatchCAFolder = "/etc/agentplatform/dispatch"
)

// AnnotationPlatform of a pool says what of the platform is in its pods: an image,
// flags and a shape, as a digest.
const AnnotationPlatform = "agentplatform.dev/platform"

// PodOptions are the operator's part of build and runner pods. It reaches them as
// arguments only: their environment is empty, so that nothing of a tenant's can
// stand in for a flag.
type PodOptions struct {
	// Image is the image of the pods.
	Image string
	// DispatchURL is where they reach the gateway's internal port.
	DispatchURL string
	// TrustDispatchCA: they trust the authorities in DispatchCA, not the system's.
	TrustDispatchCA bool
	// Egress is what they may reach beside dispatch.
	Egress egress.Flags
}

// ConnectDispatch tells a container of a pod where dispatch is and whom to trust.
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
