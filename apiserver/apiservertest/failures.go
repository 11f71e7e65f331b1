// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"context"
	"net"
	"syscall"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver"
)

// UseStore replaces the store of the facade.
func (p *Project) UseStore(s apiserver.Store) {
	of := p.Server
	of.Service.Store, of.Agents.Store, of.Runs.Store, of.Costs.Store, of.Deployments.Store = s, s, s, s, s
	of.Connectors.Store, of.ConnectorRuns.Store, of.Replays.Store, of.Rejections.Store = s, s, s, s
}

// OnRead calls judge with each environment, connector and link that the facade reads. reads returns the number of calls.
func (p *Project) OnRead(judge func(o v1alpha1.ConditionedObject)) (reads func() int) {
	n, working := 0, p.Server.Service.Client
	p.Server.Service.Client = interceptor.NewClient(working.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := c.Get(ctx, key, o, opts...); err != nil {
				return err
			}
			switch o := o.(type) {
			case *v1alpha1.Environment, *v1alpha1.Connector, *v1alpha1.ConnectorLink:
				n++
				judge(o.(v1alpha1.ConditionedObject))
			}
			return nil
		},
	})
	return func() int { return n }
}

// ConnectorResource is the resource of connectors in Kubernetes.
var ConnectorResource = schema.GroupResource{Group: v1alpha1.GroupVersion.Group, Resource: "connectors"}

// ErrConnectionRefused is the error of a dialer if a server is down.
var ErrConnectionRefused = &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}

// FailWrites calls fail before each creation and deletion of the facade, which fails with the returned error. The returned
// function ends this.
func (p *Project) FailWrites(fail func(verb string, o client.Object) error) func() {
	working := p.Server.Service.Client
	p.Server.Service.Client = interceptor.NewClient(working.(client.WithWatch), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := fail("create", o); err != nil {
				return err
			}
			return c.Create(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if err := fail("delete", o); err != nil {
				return err
			}
			return c.Delete(ctx, o, opts...)
		},
	})
	return func() { p.Server.Service.Client = working }
}
