// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

const (
	// clusterImage is the image that hack/platform.sh loads into the cluster. gitURL is the address of the cluster's Git
	// server.
	clusterImage = "agentplatform:dev"
	gitURL       = "http://gitserver.demo-git.svc/agents.git"
	// clusterPatience bounds anything of a cluster, clusterLook is how often it is looked at.
	clusterPatience = 3 * time.Minute
	clusterLook     = 20 * time.Millisecond
	// liveAim and zeroAim limit the ratio of each time to its yardstick.
	liveAim, zeroAim = 3, 3
)

// BenchmarkClusterLive measures the time from the push of a commit, including the notification of the gateway, until the commit
// is live. The yardstick is a Job of the same image that does nothing, from its creation to its completion. hack/bench.sh
// prepares the cluster.
func BenchmarkClusterLive(b *testing.B) {
	s := newInstallation(b)
	s.push("first")
	s.change(func(spec *v1alpha1.EnvironmentSpec) {
		spec.Git = v1alpha1.EnvironmentGit{AutoDeploy: true, IntervalSeconds: ptr.To(int32(3600))} // which no round waits for
	})
	s.pushed("second")
	alternate(b, func() []Figure {
		job := took(s.job)
		live := took(func() { s.pushed(uuid.NewString()) })
		return []Figure{Cost("cluster/pushed until live", "ms", live, job, liveAim)}
	})
}

// BenchmarkClusterZero measures the time of a sync webhook's response in an environment without runners. The yardstick is a
// Deployment of the same image, from its scaling to 1 until its pod is ready.
func BenchmarkClusterZero(b *testing.B) {
	s := newInstallation(b)
	d := &v1alpha1.Deployment{ObjectMeta: s.at("first"), Spec: v1alpha1.DeploymentSpec{
		Environment: "dev", Source: v1alpha1.DeploymentSource{Git: &v1alpha1.DeploymentGitSource{Commit: v1alpha1.GitCommit(s.push("first"))}},
	}}
	s.create(d)
	s.until(d, func() bool { return d.Status.Live })
	url, idle := s.hook(), s.idle()
	alternate(b, func() []Figure {
		s.none(idle)
		// It has none at once while it does not scale.
		s.change(func(spec *v1alpha1.EnvironmentSpec) {
			spec.Runner.MinReplicas, spec.Runner.MaxReplicas = ptr.To(int32(0)), nil
		})
		s.noPods("dev-runner")
		s.change(func(spec *v1alpha1.EnvironmentSpec) { spec.Runner.MaxReplicas = ptr.To(int32(1)) })

		ready := took(func() { s.scale(idle, 1) })
		answered := took(func() { s.post(url, `{"name":"Ada"}`, http.StatusOK, "Hello Ada") })
		return []Figure{Cost("cluster/first answer from zero", "ms", answered, ready, zeroAim)}
	})
}

// installation is the platform on a real cluster, with a namespace that has a project with one
// environment, dev.
type installation struct {
	*testing.B
	client.Client
	namespace, project string
	gateway, git       string // base URLs
	environment        *v1alpha1.Environment
}

func newInstallation(b *testing.B) *installation {
	b.Helper()
	require.NotEmpty(b, os.Getenv("KUBECONFIG"), "these need the platform on a cluster, run `make bench`")
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	require.NoError(b, err)
	config.QPS, config.Burst = 500, 1000
	known := runtime.NewScheme()
	require.NoError(b, scheme.AddToScheme(known))
	require.NoError(b, v1alpha1.AddToScheme(known))
	c, err := client.New(config, client.Options{Scheme: known})
	require.NoError(b, err)
	s := &installation{B: b, Client: c, namespace: "bench-" + uuid.NewString()[:8]}
	s.gateway, s.git = s.service("agentplatform-system", "agentplatform-gateway"), s.service("demo-git", "gitserver")

	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
	s.create(namespace)
	b.Cleanup(func() { require.NoError(b, c.Delete(context.WithoutCancel(b.Context()), namespace)) })
	project := &v1alpha1.Project{ObjectMeta: s.at(v1alpha1.ProjectName), Spec: v1alpha1.ProjectSpec{Git: &v1alpha1.ProjectGit{URL: gitURL}}}
	s.environment = &v1alpha1.Environment{ObjectMeta: s.at("dev"), Spec: v1alpha1.EnvironmentSpec{Runner: v1alpha1.RunnerPool{MinReplicas: ptr.To(int32(1))}}}
	s.create(project)
	s.create(s.environment)
	s.until(project, func() bool { return v1alpha1.IsReady(project) })
	s.until(s.environment, func() bool { return v1alpha1.IsReady(s.environment) })
	s.project = project.Status.ID
	return s
}

// service is the base URL of a Service.
func (s *installation) service(namespace, name string) string {
	service := &corev1.Service{}
	require.NoError(s, s.Get(s.Context(), client.ObjectKey{Namespace: namespace, Name: name}, service))
	return "http://" + service.Spec.ClusterIP
}

func (s *installation) at(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: s.namespace, Name: name}
}

func (s *installation) create(o client.Object) { require.NoError(s, s.Create(s.Context(), o)) }

// until reads an object until it is as wanted.
func (s *installation) until(o client.Object, is func() bool) {
	require.Eventually(s, func() bool {
		return s.Get(s.Context(), client.ObjectKeyFromObject(o), o) == nil && is()
	}, clusterPatience, clusterLook, "%T %s is %+v", o, o.GetName(), o)
}

// change changes the environment.
func (s *installation) change(how func(*v1alpha1.EnvironmentSpec)) {
	require.NoError(s, s.Get(s.Context(), client.ObjectKeyFromObject(s.environment), s.environment))
	before := s.environment.DeepCopy()
	how(&s.environment.Spec)
	require.NoError(s, s.Patch(s.Context(), s.environment, client.MergeFrom(before)))
}

// push commits a change of the agent `hello`, and returns the commit.
func (s *installation) push(what string) string {
	agent := fmt.Sprintf("# %s\nname: hello\nmodel: scripted/hello\nsystem_prompt: Greet.\ntools: [current_time]\n", what)
	body, err := json.Marshal(map[string]any{"message": what, "files": map[string]string{"agents/hello.yaml": agent}})
	require.NoError(s, err)
	return strings.TrimSpace(s.post(s.git+"/agents.git/commit", string(body), http.StatusOK, ""))
}

// pushed pushes a change, notifies the gateway, and waits until the change is live.
func (s *installation) pushed(what string) {
	commit := s.push(what)
	s.post(s.gateway+"/git/"+s.project, `{"ref":"refs/heads/main"}`, http.StatusAccepted, "")
	s.until(s.environment, func() bool { return s.environment.Status.LiveCommit == commit })
}

// post posts JSON, requires the given status and text in the response, and returns the response.
func (s *installation) post(url, body string, status int, has string) string {
	req, err := http.NewRequestWithContext(s.Context(), http.MethodPost, url, bytes.NewReader([]byte(body)))
	require.NoError(s, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-Gitea-Event", "push") // which webhooks of connectors do not look at
	resp, err := http.DefaultClient.Do(req)
	require.NoError(s, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	require.NoError(s, err)
	require.Equal(s, status, resp.StatusCode, "%s", answer)
	require.Contains(s, string(answer), has)
	return string(answer)
}

// hook creates a sync connector of the agent `hello` and returns its URL.
func (s *installation) hook() string {
	c := &v1alpha1.Connector{ObjectMeta: s.at("ask"), Spec: v1alpha1.ConnectorSpec{
		ID: v1alpha1.UUID(uuid.NewString()), Environment: "dev", Mode: v1alpha1.ModeSync, Webhook: &v1alpha1.WebhookConnector{Authentication: v1alpha1.AuthenticationNone},
	}}
	l := &v1alpha1.ConnectorLink{ObjectMeta: s.at("ask-hello"), Spec: v1alpha1.ConnectorLinkSpec{Connector: "ask", Agent: "hello"}}
	s.create(c)
	s.create(l)
	s.until(c, func() bool { return v1alpha1.IsReady(c) })
	s.until(l, func() bool { return v1alpha1.IsReady(l) })
	return s.gateway + "/hooks/" + s.project + "/" + c.Status.ID
}

// pod returns a pod spec with the platform's image and the security restrictions of the platform's pods.
func pod(args ...string) corev1.PodSpec {
	return corev1.PodSpec{
		AutomountServiceAccountToken: ptr.To(false),
		SecurityContext: &corev1.PodSecurityContext{
			RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To(int64(65532)), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		Containers: []corev1.Container{{
			Name: "main", Image: clusterImage, ImagePullPolicy: corev1.PullIfNotPresent, Command: append([]string{"runner"}, args...),
			SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			},
		}},
	}
}

// job has a pod print the runner's help, and waits until it has.
func (s *installation) job() {
	spec := pod("--help")
	spec.RestartPolicy = corev1.RestartPolicyNever
	job := &batchv1.Job{ObjectMeta: s.at("nothing-" + uuid.NewString()[:8]), Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: spec}}}
	s.create(job)
	s.until(job, func() bool { return job.Status.Succeeded == 1 && job.Status.CompletionTime != nil })
}

// idle returns a Deployment without pods. Its pods would be runners that cannot reach a gateway.
func (s *installation) idle() *appsv1.Deployment {
	of := map[string]string{"app": "idle"}
	d := &appsv1.Deployment{ObjectMeta: s.at("idle"), Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: of},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: of}, Spec: pod("serve", "--dispatch-url=http://127.0.0.1:1", "--token-file=/etc/hostname"),
		},
	}}
	s.create(d)
	return d
}

// scale scales a Deployment and waits until its pods are ready.
func (s *installation) scale(d *appsv1.Deployment, replicas int32) {
	before := d.DeepCopy()
	d.Spec.Replicas = &replicas
	require.NoError(s, s.Patch(s.Context(), d, client.MergeFrom(before)))
	s.until(d, func() bool { return d.Status.ObservedGeneration == d.Generation && d.Status.ReadyReplicas == replicas })
}

// none removes a Deployment's pods.
func (s *installation) none(d *appsv1.Deployment) {
	s.scale(d, 0)
	s.noPods(d.Name)
}

// noPods waits until a Deployment is to have no pods, and has none.
func (s *installation) noPods(name string) {
	d := &appsv1.Deployment{ObjectMeta: s.at(name)}
	s.until(d, func() bool { return *d.Spec.Replicas == 0 && d.Status.Replicas == 0 })
	selector := labels.SelectorFromSet(d.Spec.Selector.MatchLabels)
	require.Eventually(s, func() bool {
		list := &corev1.PodList{}
		err := s.List(s.Context(), list, client.InNamespace(s.namespace), client.MatchingLabelsSelector{Selector: selector})
		return err == nil && meta.LenList(list) == 0
	}, clusterPatience, clusterLook, "pods of %s", name)
}
