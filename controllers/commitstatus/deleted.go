// SPDX-License-Identifier: Apache-2.0

package commitstatus

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
)

// deletionHandler returns the event handler for deleted deployments. If the commit status of one is pending, the
// handler records the deployment and queues its name, because only this controller can end that status.
// A deployment that is deleted while no manager runs keeps its pending commit status.
func (r *Reconciler) deletionHandler() handler.EventHandler {
	return handler.Funcs{
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			if d, ok := e.Object.(*v1alpha1.Deployment); ok && r.recordDeleted(d) {
				queue.Add(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(d)})
			}
		},
	}
}

// recordDeleted records a deleted deployment if its commit status is pending.
func (r *Reconciler) recordDeleted(seen *v1alpha1.Deployment) (noted bool) {
	if !isPending(seen) {
		return false
	}
	d := seen.DeepCopy()
	d.DeletionTimestamp = nil
	if !d.Status.Phase.Terminal() {
		now := metav1.NewTime(r.Now().Truncate(time.Second))
		d.Status.Phase, d.Status.EndedAt = v1alpha1.DeploymentCancelled, &now
	}
	r.deleted.Store(client.ObjectKeyFromObject(d), d)
	return true
}

// endDeletedStatus ends the commit status of a deleted deployment as cancelled, or with its actual outcome, and
// returns the retry interval. If the project is deleted too, its credentials no longer exist.
func (r *Reconciler) endDeletedStatus(ctx context.Context, name types.NamespacedName) (ctrl.Result, error) {
	d, ok := r.deleted.Load(name)
	if !ok {
		return ctrl.Result{}, nil
	}
	nowhere := func(context.Context, *v1alpha1.Deployment, v1alpha1.DeploymentCommitStatus) (bool, error) {
		return false, nil
	}
	again, err := r.sendStatus(ctx, d.(*v1alpha1.Deployment), nowhere)
	if errors.Is(err, base.ErrProjectMissing) {
		again, err = ctrl.Result{}, nil
	}
	if again.RequeueAfter == 0 && err == nil {
		r.deleted.CompareAndDelete(name, d)
	}
	return again, err
}
