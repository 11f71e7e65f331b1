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

	"github.com/agentplatform/agentplatform/controllers/base"
)

// Fault is an error of kube-apiserver.
type Fault struct {
	Name string
	// Answer returns the error of a call, or nil if the fault does not apply to it.
	Answer func(Call) error
	// Final reports that the reconciler must not retry.
	Final bool
	// OfCreates reports that the fault applies only to creates. The reconciler of an object without
	// children makes none.
	OfCreates bool
}

var resource = schema.GroupResource{Group: "example.com", Resource: "things"}

// terminating returns kube-apiserver's error for a create in a namespace that is being deleted.
func terminating() error {
	err := apierrors.NewForbidden(resource, "a", errors.New("namespace is being terminated"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

// unlessRead applies to calls that write.
func unlessRead(err error) func(Call) error {
	return func(c Call) error {
		if c.Reads() {
			return nil
		}
		return err
	}
}

// alwaysFail applies to every call.
func alwaysFail(err error) func(Call) error { return func(Call) error { return err } }

// Faults are the errors that a call may return.
var Faults = []Fault{
	{Name: "a conflict", Answer: unlessRead(apierrors.NewConflict(resource, "a", errors.New("somebody else wrote")))},
	{Name: "too many requests", Answer: alwaysFail(apierrors.NewTooManyRequests("later", 1))},
	{Name: "an internal error", Answer: alwaysFail(apierrors.NewInternalError(errors.New("etcd is away")))},
	{Name: "a timeout of the server", Answer: alwaysFail(apierrors.NewServerTimeout(resource, "get", 1))},
	{Name: "no answer at all", Answer: alwaysFail(&url.Error{Op: "Get", URL: "https://kubernetes", Err: syscall.ECONNRESET})},
	{Name: "a quota", Answer: unlessRead(apierrors.NewForbidden(resource, "a", errors.New("exceeded quota: few")))},
	{Name: "a missing right", Answer: alwaysFail(apierrors.NewForbidden(resource, "a", errors.New(`User "manager" cannot do that`)))},
	{Name: "an invalid field", Answer: unlessRead(apierrors.NewInvalid(schema.GroupKind{Kind: "Thing"}, "a", nil))},
	{Name: "a patch of a deleted object", Final: true, Answer: func(c Call) error {
		if !c.hasVerb("patch") && !c.hasVerb("apply") {
			return nil
		}
		return apierrors.NewNotFound(resource, c.Name)
	}},
	{Name: "a namespace that goes", Final: true, OfCreates: true, Answer: func(c Call) error {
		if !c.hasVerb("create") {
			return nil
		}
		return terminating()
	}},
}

// mostCalls is more than the number of calls of a reconcile.
const mostCalls = 60

// ExpectSurvives fails the first call of the first reconcile of an object, then the second call of the
// next one, and so on, until a reconcile has no more calls to fail. Each failure must be retried, and
// the final state must be correct: the object has exactly the given children.
//
// A fault that applies to no call proves nothing, so it is a failure too. Only for an object without
// children, a fault of creates must not apply.
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
		Expect(result.RequeueAfter).To(BeNumerically("<=", base.MaxRetryInterval), fault.Name)
		Expect(err != nil || result.RequeueAfter > 0 || fault.Final).To(BeTrue(), "%s, call %d: it is tried again", fault.Name, number+1)
	}
	Fail("a reconciliation has more calls than that")
}
