// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

var _ = Describe("What the platform made", func() {
	var t *team
	BeforeEach(func(ctx SpecContext) { t = newTeam(ctx, 1) })

	It("is made again at once when somebody deletes it", func(ctx SpecContext) {
		environment := &v1alpha1.Environment{ObjectMeta: t.at("dev")}
		eventually(ctx, environment, ready(environment))
		t.hook(ctx, "ask", v1alpha1.ModeSync, "hello")
		children := map[string]client.Object{
			"dev-runner": &appsv1.Deployment{}, "dev-runner-config": &corev1.Secret{}, "dev-runner-token": &corev1.Secret{},
			"ask-connector": &corev1.Secret{},
		}
		gone := map[string]types.UID{}
		for name, child := range children {
			Expect(cluster.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: name}, child)).To(Succeed())
			gone[name] = child.GetUID()
			Expect(cluster.Delete(ctx, child)).To(Succeed())
		}
		for name, child := range children {
			eventually(ctx, child, func() bool { return child.GetUID() != gone[name] })
		}
		eventually(ctx, environment, ready(environment))
	}, SpecTimeout(3*time.Minute))

	It("tells why it does not start", func(ctx SpecContext) {
		environment := &v1alpha1.Environment{ObjectMeta: t.at("dev")}
		eventually(ctx, environment, ready(environment))
		before := environment.DeepCopy()
		environment.Spec.Runner.NodeSelector = map[string]string{"example.com/no-such": "node"}
		Expect(cluster.Patch(ctx, environment, client.MergeFrom(before))).To(Succeed())
		eventually(ctx, environment, func() bool {
			runners := environment.Status.Condition(v1alpha1.ConditionRunnersReady)
			return runners != nil && runners.Reason == v1alpha1.ReasonRunnersFailing
		})
		say("%s", environment.Status.Condition(v1alpha1.ConditionRunnersReady).Message)
		blocked := t.deploy(ctx, "blocked", push(ctx, "v1"))
		eventually(ctx, blocked, func() bool { return blocked.BuildProblem() != "" })
		say("%s", blocked.BuildProblem())
		Expect(blocked.BuildProblem()).To(ContainSubstring("node"))
		job := &batchv1.Job{}
		Expect(cluster.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: "blocked-build"}, job)).To(Succeed())
		Expect(job.Spec.TTLSecondsAfterFinished).To(HaveValue(BeNumerically(">", 0)))
	}, SpecTimeout(3*time.Minute))

	It("is pruned, except for live, open and the newest deployments", func(ctx SpecContext) {
		own := t.deploy(ctx, "of-a-user", push(ctx, "v1"))
		eventually(ctx, own, func() bool { return own.Status.Live })
		for i := range 25 {
			d := &v1alpha1.Deployment{ObjectMeta: t.at(fmt.Sprintf("made-%02d", i)), Spec: v1alpha1.DeploymentSpec{
				Environment: "dev", Source: v1alpha1.DeploymentSource{Git: &v1alpha1.DeploymentGitSource{Commit: "0123456789012345678901234567890123456789"}},
			}}
			d.Labels = map[string]string{"app.kubernetes.io/managed-by": "agentplatform"}
			t.create(ctx, d)
		}
		list := &v1alpha1.DeploymentList{}
		Eventually(ctx, func() ([]string, error) {
			err := cluster.List(ctx, list, client.InNamespace(t.namespace))
			var names []string
			for _, d := range list.Items {
				names = append(names, d.Name)
			}
			return names, err
		}).WithTimeout(patience).WithPolling(interval).Should(And(HaveLen(21), ContainElements("of-a-user", "made-24")))
		Expect(cluster.Get(ctx, client.ObjectKeyFromObject(own), own)).To(Succeed())
		Expect(own.Status.Live).To(BeTrue())
		Expect(own.Status.Phase).To(Equal(v1alpha1.DeploymentDeployed))
	}, SpecTimeout(5*time.Minute))
})
