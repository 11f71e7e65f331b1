// SPDX-License-Identifier: Apache-2.0

package object

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// runnerUser is the user of build and runner pods.
const runnerUser int64 = 65532

// NetworkReady returns an error while a project's namespace may have no pods: what
// stands around them is not there.
func NetworkReady(project *v1alpha1.Project) error {
	if project.Status.IsTrue(v1alpha1.ConditionNetworkReady) {
		return nil
	}
	return &MissingError{Kind: project.ObjectKind(), Name: project.Name, Unready: true}
}

// Restrict makes a pod fit a namespace that enforces the restricted standard,
// and leaves it nothing of the cluster's: no token, no service variables.
func Restrict(spec *corev1.PodSpec) {
	yes, no, user := true, false, runnerUser
	spec.AutomountServiceAccountToken = &no
	spec.EnableServiceLinks = &no
	spec.SecurityContext = &corev1.PodSecurityContext{
		RunAsNonRoot: &yes, RunAsUser: &user, RunAsGroup: &user, FSGroup: &user,
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			containers[i].ImagePullPolicy = corev1.PullIfNotPresent
			containers[i].TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
			containers[i].SecurityContext = &corev1.SecurityContext{
				AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			}
		}
	}
}

// SecretVolume is a volume of a Secret's files.
func SecretVolume(name, secret string) corev1.Volume {
	mode := int32(0o440)
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: secret, DefaultMode: &mode},
	}}
}
