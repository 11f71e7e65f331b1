// SPDX-License-Identifier: Apache-2.0

package controllertest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/agentplatform/agentplatform/internal/testenv/kube"
)

// Call is a call to kube-apiserver.
type Call struct {
	// Verb is get, list, create, update, patch, apply, delete or "delete all". For a subresource it has
	// the subresource too, as in "patch status".
	Verb string
	// Kind and Name identify the object. A call for all objects has no name.
	Kind, Name string
}

// String returns the call in the format of expectations.
func (c Call) String() string { return fmt.Sprintf("%s %s %s", c.Verb, c.Kind, c.Name) }

// Reads reports whether the call only reads.
func (c Call) Reads() bool { return c.Verb == "list" || c.hasVerb("get") }

// hasVerb reports whether the call has this verb, for an object or a subresource.
func (c Call) hasVerb(verb string) bool { return c.Verb == verb || strings.HasPrefix(c.Verb, verb+" ") }

// Cluster is a client that records its calls and can make them fail. It is safe for concurrent use.
type Cluster struct {
	client.WithWatch

	mu    sync.Mutex
	calls []Call
	fail  func(Call) error
}

func newCluster(plane *kube.ControlPlane) *Cluster {
	GinkgoHelper()
	direct, err := client.NewWithWatch(plane.Config, client.Options{Scheme: plane.Scheme})
	Expect(err).NotTo(HaveOccurred())
	c := &Cluster{}
	c.WithWatch = interceptor.NewClient(direct, c.interceptors())
	return c
}

// Fail makes every call fail for which with returns an error, before the call reaches kube-apiserver.
// nil ends this.
func (c *Cluster) Fail(with func(Call) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail = with
}

// Calls returns the calls since its last call.
func (c *Cluster) Calls() []Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls := c.calls
	c.calls = nil
	return calls
}

// Writes returns the calls of Calls that may change something, without applies. A controller applies a
// child to check it, and an apply that changes something gives the child a new resourceVersion.
func (c *Cluster) Writes() []Call {
	return slices.DeleteFunc(c.Calls(), func(call Call) bool { return call.Reads() || call.Verb == "apply" })
}

func (c *Cluster) recordCall(call Call) error {
	c.mu.Lock()
	c.calls = append(c.calls, call)
	fail := c.fail
	c.mu.Unlock()
	if fail == nil {
		return nil
	}
	return fail(call)
}

// recordObject records a call for an object.
func (c *Cluster) recordObject(verb string, o client.Object) error {
	gvk, err := apiutil.GVKForObject(o, c.Scheme())
	if err != nil {
		return err
	}
	return c.recordCall(Call{verb, gvk.Kind, o.GetName()})
}

// applied has the identity of an apply configuration of the controllers.
type applied interface {
	GetKind() string
	GetName() string
}

func (c *Cluster) interceptors() interceptor.Funcs {
	funcs := interceptor.Funcs{
		Get: func(ctx context.Context, next client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			gvk, err := apiutil.GVKForObject(o, c.Scheme())
			if err == nil {
				err = c.recordCall(Call{"get", gvk.Kind, key.Name})
			}
			if err != nil {
				return err
			}
			return next.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, next client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			gvk, err := apiutil.GVKForObject(list, c.Scheme())
			if err == nil {
				err = c.recordCall(Call{Verb: "list", Kind: gvk.Kind})
			}
			if err != nil {
				return err
			}
			return next.List(ctx, list, opts...)
		},
	}
	c.addWrites(&funcs)
	c.addSubresources(&funcs)
	return funcs
}

// addWrites adds the calls that may change an object.
func (c *Cluster) addWrites(funcs *interceptor.Funcs) {
	funcs.Create = func(ctx context.Context, next client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		if err := c.recordObject("create", o); err != nil {
			return err
		}
		return next.Create(ctx, o, opts...)
	}
	funcs.Delete = func(ctx context.Context, next client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
		if err := c.recordObject("delete", o); err != nil {
			return err
		}
		return next.Delete(ctx, o, opts...)
	}
	funcs.DeleteAllOf = func(ctx context.Context, next client.WithWatch, o client.Object, opts ...client.DeleteAllOfOption) error {
		if err := c.recordObject("delete all", o); err != nil {
			return err
		}
		return next.DeleteAllOf(ctx, o, opts...)
	}
	funcs.Patch = func(ctx context.Context, next client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
		if err := c.recordObject("patch", o); err != nil {
			return err
		}
		return next.Patch(ctx, o, patch, opts...)
	}
	funcs.Apply = func(ctx context.Context, next client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
		if err := c.recordApply("apply", o); err != nil {
			return err
		}
		return next.Apply(ctx, o, opts...)
	}
	funcs.Update = func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.UpdateOption) error {
		return c.recordUpdate("update", o)
	}
}

// addSubresources adds the calls for a subresource, such as status.
func (c *Cluster) addSubresources(funcs *interceptor.Funcs) {
	funcs.SubResourceGet = func(
		ctx context.Context, next client.Client, part string, o, sub client.Object, opts ...client.SubResourceGetOption,
	) error {
		if err := c.recordObject("get "+part, o); err != nil {
			return err
		}
		return next.SubResource(part).Get(ctx, o, sub, opts...)
	}
	funcs.SubResourceCreate = func(
		ctx context.Context, next client.Client, part string, o, sub client.Object, opts ...client.SubResourceCreateOption,
	) error {
		if err := c.recordObject("create "+part, o); err != nil {
			return err
		}
		return next.SubResource(part).Create(ctx, o, sub, opts...)
	}
	funcs.SubResourcePatch = func(
		ctx context.Context, next client.Client, part string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption,
	) error {
		if err := c.recordObject("patch "+part, o); err != nil {
			return err
		}
		return next.SubResource(part).Patch(ctx, o, patch, opts...)
	}
	funcs.SubResourceApply = func(
		ctx context.Context, next client.Client, part string, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption,
	) error {
		if err := c.recordApply("apply "+part, o); err != nil {
			return err
		}
		return next.SubResource(part).Apply(ctx, o, opts...)
	}
	funcs.SubResourceUpdate = func(
		_ context.Context, _ client.Client, part string, o client.Object, _ ...client.SubResourceUpdateOption,
	) error {
		return c.recordUpdate("update "+part, o)
	}
}

// recordApply records an apply.
func (c *Cluster) recordApply(verb string, o runtime.ApplyConfiguration) error {
	of, known := o.(applied)
	if !known {
		return fmt.Errorf("an apply of a %T is not recorded", o)
	}
	return c.recordCall(Call{verb, of.GetKind(), of.GetName()})
}

// recordUpdate records an update and rejects it like kube-apiserver, because no role of the platform has this
// verb for objects of a project.
func (c *Cluster) recordUpdate(verb string, o client.Object) error {
	if err := c.recordObject(verb, o); err != nil {
		return err
	}
	return fmt.Errorf("no controller has the right to %s: %T %q", verb, o, o.GetName())
}
