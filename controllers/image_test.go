// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/controllers"
)

var _ = Describe("The image of build and runner pods", func() {
	It("is the image in the spec of this process's own container", func(ctx SpecContext) {
		t := start().empty()
		pod := &corev1.Pod{ObjectMeta: t.at("agentplatform-manager-x"), Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "sidecar", Image: "mesh:v1"}, {Name: "manager", Image: "registry.example.com/agentplatform@sha256:" + digest},
		}}}
		Expect(t.client.Create(ctx, pod)).To(Succeed())
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{
			{Name: "manager", Image: "agentplatform:dev", ImageID: "containerd://sha256:" + digest},
		}
		Expect(t.client.Status().Update(ctx, pod)).To(Succeed())
		name := client.ObjectKeyFromObject(pod)
		Expect(controllers.OwnImage(ctx, t.client, name, "manager")).To(Equal("registry.example.com/agentplatform@sha256:" + digest))

		By("explaining the remedy if it cannot be found")
		_, err := controllers.OwnImage(ctx, t.client, name, "all")
		Expect(err).To(MatchError(And(ContainSubstring(`no container "all"`), ContainSubstring("--container-name"), ContainSubstring("--image"))))
		name.Name = "another"
		_, err = controllers.OwnImage(ctx, t.client, name, "manager")
		Expect(apierrors.IsNotFound(err)).To(BeTrue())
		Expect(err).To(MatchError(ContainSubstring("--image")))
	})
})

const digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
