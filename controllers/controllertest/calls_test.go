// SPDX-License-Identifier: Apache-2.0

package controllertest_test

import (
	"context"
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	. "github.com/agentplatform/agentplatform/controllers/controllertest"
)

var errRefused = errors.New("refused")

// writes has all client calls that may change something, by their recorded form.
var writes = map[string]func(context.Context, client.Client, *corev1.Secret) error{
	"create Secret a": func(ctx context.Context, c client.Client, s *corev1.Secret) error { return c.Create(ctx, s) },
	"update Secret a": func(ctx context.Context, c client.Client, s *corev1.Secret) error { return c.Update(ctx, s) },
	"delete Secret a": func(ctx context.Context, c client.Client, s *corev1.Secret) error { return c.Delete(ctx, s) },
	"delete all Secret ": func(ctx context.Context, c client.Client, _ *corev1.Secret) error {
		return c.DeleteAllOf(ctx, &corev1.Secret{})
	},
	"patch Secret a": func(ctx context.Context, c client.Client, s *corev1.Secret) error { return c.Patch(ctx, s, nothing) },
	"apply Secret a": func(ctx context.Context, c client.Client, _ *corev1.Secret) error {
		return c.Apply(ctx, configuration())
	},
	"create part Secret a": func(ctx context.Context, c client.Client, s *corev1.Secret) error {
		return c.SubResource("part").Create(ctx, s, s)
	},
	"update part Secret a": func(ctx context.Context, c client.Client, s *corev1.Secret) error {
		return c.SubResource("part").Update(ctx, s)
	},
	"patch status Secret a": func(ctx context.Context, c client.Client, s *corev1.Secret) error {
		return c.Status().Patch(ctx, s, nothing)
	},
	"apply part Secret a": func(ctx context.Context, c client.Client, _ *corev1.Secret) error {
		return c.SubResource("part").Apply(ctx, configuration())
	},
}

// nothing is a patch without changes.
var nothing = client.RawPatch("application/merge-patch+json", []byte(`{}`))

// configuration is an apply configuration.
func configuration() runtime.ApplyConfiguration {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("v1")
	u.SetKind("Secret")
	u.SetName("a")
	return client.ApplyConfigurationFromUnstructured(u)
}

var _ = Describe("Cluster", func() {
	It("records every call that may change something, and can make it fail", func(ctx SpecContext) {
		f := New()
		for recorded, call := range writes {
			f.Cluster.Fail(func(c Call) error {
				Expect(c.Reads()).To(BeFalse(), recorded)
				return errRefused
			})
			Expect(call(ctx, f.Cluster, f.Secret("a", nil))).To(MatchError(errRefused), recorded)
			Expect(f.Cluster.Calls()).To(HaveExactElements(HaveField("String()", recorded)))
		}
	})

	It("knows the calls that only read", func(ctx SpecContext) {
		f := New()
		Expect(f.Cluster.List(ctx, &corev1.SecretList{}, client.InNamespace(f.Namespace))).To(Succeed())
		Expect(client.IgnoreNotFound(f.Cluster.Get(ctx, client.ObjectKey{Namespace: f.Namespace, Name: "a"}, &corev1.Secret{}))).To(Succeed())
		Expect(f.Cluster.SubResource("part").Get(ctx, f.Secret("a", nil), &corev1.Secret{})).NotTo(Succeed())
		Expect(f.Cluster.Writes()).To(BeEmpty())
	})
})

var _ = Describe("ExpectSurvives", func() {
	It("fails for a fault that applies to no call", func(ctx SpecContext) {
		f := New()
		project := f.Project()
		f.ExpectApplied(ctx, project)
		idle := reconcile.Func(func(context.Context, ctrl.Request) (ctrl.Result, error) { return ctrl.Result{}, nil })
		for _, fault := range Faults {
			failures := InterceptGomegaFailures(func() { f.ExpectSurvives(ctx, fault, idle, project) })
			if fault.OfCreates {
				Expect(failures).To(BeEmpty(), fault.Name)
				continue
			}
			Expect(failures).To(ContainElement(ContainSubstring(fault.Name+": calls that met it: 0")), fault.Name)
		}
	})
})
