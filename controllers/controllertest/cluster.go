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
	// Verb is get, list, create, update, patch, apply, delete or "delete all". That of
	// a call about a subresource names it too, as "patch status" does.
	Verb string
	// Kind and Name are those of the object; that of all objects has no name.
	Kind, Name string
}

// String is the call as an expectation writes it.
func (c Call) String() string { return fmt.Sprintf("%s %s %s", c.Verb, c.Kind, c.Name) }

// Reads says that the call asks for no change.
func (c Call) Reads() bool { return c.Verb == "list" || c.asks("get") }

// asks says that the call is one of that verb, about an object or a subresource.
func (c Call) asks(verb string) bool { return c.Verb == verb || strings.HasPrefix(c.Verb, verb+" ") }

// Cluster is a client that records its calls, and lets those fail that a test
// chooses. It is safe for concurrent use.
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
	c.WithWatch = interceptor.NewClient(direct, c.funcs())
	return c
}

// Fail lets every call fail for which with returns an error, before it reaches
// kube-apiserver; nil lets none fail.
func (c *Cluster) Fail(with func(Call) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail = with
}

// Calls are the calls since the last time that it was asked for them.
func (c *Cluster) Calls() []Call {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls := c.calls
	c.calls = nil
	return calls
}

// Writes are those of Calls that may change something. The apply of an object is
// left out: a controller applies a child to see whether it is as it should be, and
// an apply that changes something gives the child another resourceVersion.
func (c *Cluster) Writes() []Call {
	return slices.DeleteFunc(c.Calls(), func(call Call) bool { return call.Reads() || call.Verb == "apply" })
}

func (c *Cluster) record(call Call) error {
	c.mu.Lock()
	c.calls = append(c.calls, call)
	fail := c.fail
	c.mu.Unlock()
	if fail == nil {
		return nil
	}
	return fail(call)
}

// object records a call about an object.
func (c *Cluster) object(verb string, o client.Object) error {
	gvk, err := apiutil.GVKForObject(o, c.Scheme())
	if err != nil {
		return err
	}
	return c.record(Call{verb, gvk.Kind, o.GetName()})
}

// applied is what an apply configuration of ours tells of itself.
type applied interface {
	GetKind() string
	GetName() string
}

func (c *Cluster) funcs() interceptor.Funcs {
	funcs := interceptor.Funcs{
		Get: func(ctx context.Context, next client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			gvk, err := apiutil.GVKForObject(o, c.Scheme())
			if err == nil {
				err = c.record(Call{"get", gvk.Kind, key.Name})
			}
			if err != nil {
				return err
			}
			return next.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, next client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			gvk, err := apiutil.GVKForObject(list, c.Scheme())
			if err == nil {
				err = c.record(Call{Verb: "list", Kind: gvk.Kind})
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
		if err := c.object("create", o); err != nil {
			return err
		}
		return next.Create(ctx, o, opts...)
	}
	funcs.Delete = func(ctx context.Context, next client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
		if err := c.object("delete", o); err != nil {
			return err
		}
		return next.Delete(ctx, o, opts...)
	}
	funcs.DeleteAllOf = func(ctx context.Context, next client.WithWatch, o client.Object, opts ...client.DeleteAllOfOption) error {
		if err := c.object("delete all", o); err != nil {
			return err
		}
		return next.DeleteAllOf(ctx, o, opts...)
	}
	funcs.Patch = func(ctx context.Context, next client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
		if err := c.object("patch", o); err != nil {
			return err
		}
		return next.Patch(ctx, o, patch, opts...)
	}
	funcs.Apply = func(ctx context.Context, next client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
		if err := c.apply("apply", o); err != nil {
			return err
		}
		return next.Apply(ctx, o, opts...)
	}
	funcs.Update = func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.UpdateOption) error {
		return c.update("update", o)
	}
}

// addSubresources adds the calls about a part of an object, such as its status.
func (c *Cluster) addSubresources(funcs *interceptor.Funcs) {
	funcs.SubResourceGet = func(
		ctx context.Context, next client.Client, part string, o, sub client.Object, opts ...client.SubResourceGetOption,
	) error {
		if err := c.object("get "+part, o); err != nil {
			return err
		}
		return next.SubResource(part).Get(ctx, o, sub, opts...)
	}
	funcs.SubResourceCreate = func(
		ctx context.Context, next client.Client, part string, o, sub client.Object, opts ...client.SubResourceCreateOption,
	) error {
		if err := c.object("create "+part, o); err != nil {
			return err
		}
		return next.SubResource(part).Create(ctx, o, sub, opts...)
	}
	funcs.SubResourcePatch = func(
		ctx context.Context, next client.Client, part string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption,
	) error {
		if err := c.object("patch "+part, o); err != nil {
			return err
		}
		return next.SubResource(part).Patch(ctx, o, patch, opts...)
	}
	funcs.SubResourceApply = func(
		ctx context.Context, next client.Client, part string, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption,
	) error {
		if err := c.apply("apply "+part, o); err != nil {
			return err
		}
		return next.SubResource(part).Apply(ctx, o, opts...)
	}
	funcs.SubResourceUpdate = func(
		_ context.Context, _ client.Client, part string, o client.Object, _ ...client.SubResourceUpdateOption,
	) error {
		return c.update("update "+part, o)
	}
}

// apply records an apply.
func (c *Cluster) apply(verb string, o runtime.ApplyConfiguration) error {
	of, known := o.(applied)
	if !known {
		return fmt.Errorf("an apply of a %T is not recorded", o)
	}
	return c.record(Call{verb, of.GetKind(), of.GetName()})
}

// update records an update and refuses it, as kube-apiserver would: no role of ours
// has that verb for objects of a project.
func (c *Cluster) update(verb string, o client.Object) error {
	if err := c.object(verb, o); err != nil {
		return err
	}
	return fmt.Errorf("no controller has the right to %s: %T %q", verb, o, o.GetName())
}
