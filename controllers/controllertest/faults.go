// SPDX-License-Identifier: Apache-2.0

package controllertest

import (
	"context"
	"errors"
	"net/url"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/agentplatform/agentplatform/controllers/object"
)

// Fault is an answer of kube-apiserver, or none.
type Fault struct {
	Name string
	// Answer is the error of a call; nil where it is none that this call may get.
	Answer func(Call) error
	// Final says that nothing is to be tried again.
	Final bool
	// OfCreates says that creates alone meet the fault. The reconciler of an object
	// that has no children makes none.
	OfCreates bool
}

var resource = schema.GroupResource{Group: "example.com", Resource: "things"}

// terminating is how kube-apiserver refuses a create in a namespace that goes.
func terminating() error {
	err := apierrors.NewForbidden(resource, "a", errors.New("namespace is being terminated"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

// unlessRead answers calls that write.
func unlessRead(err error) func(Call) error {
	return func(c Call) error {
		if c.Reads() {
			return nil
		}
		return err
	}
}

// always answers every call.
func always(err error) func(Call) error { return func(Call) error { return err } }

// Faults are what a call may run into.
var Faults = []Fault{
	{Name: "a conflict", Answer: unlessRead(apierrors.NewConflict(resource, "a", errors.New("somebody else wrote")))},
	{Name: "too many requests", Answer: always(apierrors.NewTooManyRequests("later", 1))},
	{Name: "an internal error", Answer: always(apierrors.NewInternalError(errors.New("etcd is away")))},
	{Name: "a timeout of the server", Answer: always(apierrors.NewServerTimeout(resource, "get", 1))},
	{Name: "no answer at all", Answer: always(&url.Error{Op: "Get", URL: "https://kubernetes", Err: syscall.ECONNRESET})},
	{Name: "a quota", Answer: unlessRead(apierrors.NewForbidden(resource, "a", errors.New("exceeded quota: few")))},
	{Name: "a missing right", Answer: always(apierrors.NewForbidden(resource, "a", errors.New(`User "manager" cannot do that`)))},
	{Name: "an invalid field", Answer: unlessRead(apierrors.NewInvalid(schema.GroupKind{Kind: "Thing"}, "a", nil))},
	{Name: "a patch of what is gone", Final: true, Answer: func(c Call) error {
		if !c.asks("patch") && !c.asks("apply") {
			return nil
		}
		return apierrors.NewNotFound(resource, c.Name)
	}},
	{Name: "a namespace that goes", Final: true, OfCreates: true, Answer: func(c Call) error {
		if !c.asks("create") {
			return nil
		}
		return terminating()
	}},
}

// mostCalls is more than a reconciliation has.
const mostCalls = 60

// ExpectSurvives lets the first call of a first reconciliation of an object fail,
// then the second of the next one, and so on until one has no call that is left to
// fail. Whatever fails is tried again, and in the end all is as it would be: the
// object's children are those given, each of them once.
//
// A fault that no call meets proves nothing, so it fails too. Only an object without
// children need not meet a fault of creates, and then it must not.
func (f *Fixture) ExpectSurvives(ctx context.Context, fault Fault, r reconcile.Reconciler, o client.Object, children ...string) {
	GinkgoHelper()
	for number := range mostCalls {
		made, failed := 0, false
		f.Cluster.Fail(func(c Call) error {
			err := fault.Answer(c)
			if err == nil {
				return nil
			}
			made++
			if made != number+1 {
				return nil
			}
			failed = true
			return err
		})
		result, err := r.Reconcile(ctx, f.Request(o))
		f.Cluster.Fail(nil)
		if !failed {
			Expect(err).NotTo(HaveOccurred(), "%s: nothing failed", fault.Name)
			f.ExpectExists(ctx, o)
			Expect(f.Children(ctx, f.Controller(ctx, o))).To(ConsistOf(children), fault.Name)
			Expect(number > 0).To(Equal(!fault.OfCreates || len(children) > 0), "%s: calls that met it: %d", fault.Name, number)
			return
		}
		Expect(result.RequeueAfter).To(BeNumerically("<=", object.Later), fault.Name)
		Expect(err != nil || result.RequeueAfter > 0 || fault.Final).To(BeTrue(), "%s, call %d: it is tried again", fault.Name, number+1)
	}
	Fail("a reconciliation has more calls than that")
}
