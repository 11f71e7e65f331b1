// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// UntoldWith are the deployments that are looked at when a Secret changes.
func (r *Reporter) UntoldWith(ctx context.Context, secret client.Object) []ctrl.Request {
	return r.untoldWith(ctx, secret)
}
