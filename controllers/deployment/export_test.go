// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
)

// Goes tells the reporter of deployments that are deleted.
func (r *Reporter) Goes() handler.EventHandler { return r.goes() }

// UntoldWith are the deployments that are looked at when a Secret changes.
func (r *Reporter) UntoldWith(ctx context.Context, secret client.Object) []ctrl.Request {
	return r.untoldWith(ctx, secret)
}
