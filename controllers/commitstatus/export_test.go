// SPDX-License-Identifier: Apache-2.0

package commitstatus

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
)

// DeletionHandler returns the event handler for deleted deployments.
func (r *Reconciler) DeletionHandler() handler.EventHandler { return r.deletionHandler() }

// UnreportedWith returns the deployments that a Secret's change queues.
func (r *Reconciler) UnreportedWith(ctx context.Context, secret client.Object) []ctrl.Request {
	return r.unreportedWith(ctx, secret)
}
