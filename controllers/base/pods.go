// SPDX-License-Identifier: Apache-2.0

package base

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/egress"
)

// runnerUser is the user ID of build and runner pods.
const runnerUser int64 = 65532

// NetworkReady returns an error while a project's namespace must not have pods: its NetworkPolicies are
// missing, or the project has an unsupported spec. Work without pods continues.
func NetworkReady(project *v1alpha1.Project) error {
	if project.Status.IsTrue(v1alpha1.ConditionNetworkReady) && len(project.Unsupported()) == 0 {
		return nil
	}
	return &MissingError{Kind: project.ObjectKind(), Name: project.Name, Unready: true}
}

// SetSecurity makes a pod meet the restricted Pod Security Standard. The pod gets no service account token
// and no service variables.
func SetSecurity(spec *corev1.PodSpec) {
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

// SecretVolume returns a volume with the files of a Secret.
func SecretVolume(name, secret string) corev1.Volume {
	mode := int32(0o440)
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		Secret: &corev1.SecretVolumeSource{SecretName: secret, DefaultMode: &mode},
	}}
}

// RunnerConfig returns the name of the Secret with the configuration of an environment's runners.
func RunnerConfig(environment string) string { return ChildName(environment, "runner-config") }

// waitingProblems are the reasons of waiting containers that do not resolve themselves within seconds.
var waitingProblems = sets.New(
	"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable",
	"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "CrashLoopBackOff",
)

// PodProblem returns why a pod does not run, as reported by Kubernetes, or "" if no problem is known.
func PodProblem(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return "no node can run the pod: " + c.Message
		}
	}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		wait, last := s.State.Waiting, s.LastTerminationState.Terminated
		if wait == nil && !s.Ready && s.RestartCount > 0 && last != nil {
			return fmt.Sprintf("container %q was restarted %d times; %s", s.Name, s.RestartCount, TerminationMessage(s.Name, last))
		}
		if wait == nil || !waitingProblems.Has(wait.Reason) {
			continue
		}
		problem := fmt.Sprintf("container %q: %s: %s", s.Name, wait.Reason, wait.Message)
		if last != nil {
			problem += "; " + TerminationMessage(s.Name, last)
		}
		return problem
	}
	if pod.Status.Phase == corev1.PodFailed && pod.Status.Reason != "" {
		return strings.TrimSpace("the pod was stopped: " + pod.Status.Reason + ": " + pod.Status.Message)
	}
	return ""
}

// TerminationMessage describes how a container ended, with its last log lines.
func TerminationMessage(container string, end *corev1.ContainerStateTerminated) string {
	text := fmt.Sprintf("%s: %s (exit code %d)", container, end.Reason, end.ExitCode)
	if words := strings.TrimSpace(end.Message); words != "" {
		text += ": " + words
	}
	return text
}

// WatchPods queues the objects of pods of a component whose problem changed. A label of the pod names
// its object.
func WatchPods(to *builder.Builder, of, label string) *builder.Builder {
	named := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, pod client.Object) []ctrl.Request {
		return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: pod.GetNamespace(), Name: pod.GetLabels()[label]}}}
	})
	return to.Watches(&corev1.Pod{}, named, builder.WithPredicates(
		predicate.NewPredicateFuncs(func(o client.Object) bool {
			return o.GetLabels()[LabelComponent] == of && o.GetLabels()[label] != ""
		}),
		predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool { return PodProblem(e.Object.(*corev1.Pod)) != "" },
			DeleteFunc: func(e event.DeleteEvent) bool { return PodProblem(e.Object.(*corev1.Pod)) != "" },
			UpdateFunc: func(e event.UpdateEvent) bool {
				return PodProblem(e.ObjectOld.(*corev1.Pod)) != PodProblem(e.ObjectNew.(*corev1.Pod))
			},
		},
	))
}

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
