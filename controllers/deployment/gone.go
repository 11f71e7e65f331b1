// SPDX-License-Identifier: Apache-2.0

package deployment

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
	"github.com/agentplatform/agentplatform/controllers/object"
)

// goes is the event handler that notes a deployment which is deleted while its commit is pending at
// the provider, and queues its name: nobody else would end that. What is deleted while no manager
// runs stays pending.
func (r *Reporter) goes() handler.EventHandler {
	return handler.Funcs{
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, queue workqueue.TypedRateLimitingInterface[ctrl.Request]) {
			if d, ok := e.Object.(*v1alpha1.Deployment); ok && r.went(d) {
				queue.Add(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(d)})
			}
		},
	}
}

// went notes a deployment that is gone, where its commit is pending.
func (r *Reporter) went(seen *v1alpha1.Deployment) (noted bool) {
	if !isPending(seen) {
		return false
	}
	d := seen.DeepCopy()
	d.DeletionTimestamp = nil
	if !d.Status.Phase.Terminal() {
		now := metav1.NewTime(r.Now().Truncate(time.Second))
		d.Status.Phase, d.Status.EndedAt = v1alpha1.DeploymentCancelled, &now
	}
	r.gone.Store(client.ObjectKeyFromObject(d), d)
	return true
}

// endGone tells the provider that a deployment which is gone was cancelled, or how else it ended, and
// returns when to try again. With its project goes what it could be told by.
func (r *Reporter) endGone(ctx context.Context, name types.NamespacedName) (ctrl.Result, error) {
	d, ok := r.gone.Load(name)
	if !ok {
		return ctrl.Result{}, nil
	}
	nowhere := func(context.Context, *v1alpha1.Deployment, v1alpha1.DeploymentCommitStatus) (bool, error) {
		return false, nil
	}
	again, err := r.tell(ctx, d.(*v1alpha1.Deployment), nowhere)
	if errors.Is(err, object.ErrProjectMissing) {
		again, err = ctrl.Result{}, nil
	}
	if again.RequeueAfter == 0 && err == nil {
		r.gone.CompareAndDelete(name, d)
	}
	return again, err
}
