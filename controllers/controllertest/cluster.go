// SPDX-License-Identifier: Apache-2.0

package controllertest

import (
	"context"
	"fmt"
	"slices"
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
	// Verb is get, list, create, patch, apply, delete or "patch status".
	Verb string
	// Kind and Name are those of the object; a list has no name.
	Kind, Name string
}

// String is the call as an expectation writes it.
func (c Call) String() string { return fmt.Sprintf("%s %s %s", c.Verb, c.Kind, c.Name) }

// Reads says that the call asks for no change.
func (c Call) Reads() bool { return c.Verb == "get" || c.Verb == "list" }

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

// Writes are those of Calls that may change something. An apply is none: it is how
// a controller looks whether a child is as it shall be, and one that changes
// something gives the child another resourceVersion.
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
	funcs := c.writes()
	funcs.Get = func(ctx context.Context, next client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		gvk, err := apiutil.GVKForObject(o, c.Scheme())
		if err == nil {
			err = c.record(Call{"get", gvk.Kind, key.Name})
		}
		if err != nil {
			return err
		}
		return next.Get(ctx, key, o, opts...)
	}
	funcs.List = func(ctx context.Context, next client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		gvk, err := apiutil.GVKForObject(list, c.Scheme())
		if err == nil {
			err = c.record(Call{Verb: "list", Kind: gvk.Kind})
		}
		if err != nil {
			return err
		}
		return next.List(ctx, list, opts...)
	}
	return funcs
}

// writes are the calls that may change something.
func (c *Cluster) writes() interceptor.Funcs {
	return interceptor.Funcs{
		Create: func(ctx context.Context, next client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := c.object("create", o); err != nil {
				return err
			}
			return next.Create(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, next client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if err := c.object("delete", o); err != nil {
				return err
			}
			return next.Delete(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, next client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := c.object("patch", o); err != nil {
				return err
			}
			return next.Patch(ctx, o, patch, opts...)
		},
		Apply: func(ctx context.Context, next client.WithWatch, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			of, known := o.(applied)
			if !known {
				return fmt.Errorf("an apply of a %T is not recorded", o)
			}
			if err := c.record(Call{"apply", of.GetKind(), of.GetName()}); err != nil {
				return err
			}
			return next.Apply(ctx, o, opts...)
		},
		SubResourcePatch: func(
			ctx context.Context, next client.Client, subresource string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption,
		) error {
			if err := c.object("patch "+subresource, o); err != nil {
				return err
			}
			return next.SubResource(subresource).Patch(ctx, o, patch, opts...)
		},
		Update: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.UpdateOption) error {
			return fmt.Errorf("no controller has the right to update: %T %q", o, o.GetName())
		},
	}
}
