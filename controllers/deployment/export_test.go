// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
)

// Goes returns the event handler for deleted deployments.
func (r *Reporter) Goes() handler.EventHandler { return r.deletionHandler() }

// UntoldWith returns the deployments that a Secret's change queues.
func (r *Reporter) UntoldWith(ctx context.Context, secret client.Object) []ctrl.Request {
	return r.unreportedWith(ctx, secret)
}
