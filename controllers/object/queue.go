// SPDX-License-Identifier: Apache-2.0

package object

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
)

const (
	// firstRetry is the pause after a first failure; each further one is twice as
	// long, up to Later.
	firstRetry = 50 * time.Millisecond
	// DefaultWorkers is how many objects of a kind are reconciled at once.
	DefaultWorkers = 8
)

// ControllerOptions are how all controllers work through their queues: several
// objects at once, namespace by namespace in turn, with retries that are never
// more than Later apart.
func (b *Base) ControllerOptions() controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: max(b.Workers, 1),
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](firstRetry, Later),
		NewQueue: func(name string, limiter workqueue.TypedRateLimiter[ctrl.Request]) workqueue.TypedRateLimitingInterface[ctrl.Request] {
			fair := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[ctrl.Request]{Name: name, Queue: newTurns()})
			delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[ctrl.Request]{Name: name, Queue: fair})
			return workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
				workqueue.TypedRateLimitingQueueConfig[ctrl.Request]{Name: name, DelayingQueue: delaying})
		},
	}
}

// turns is the order of a work queue in which namespaces take turns: however many
// objects of one namespace wait, the next of another waits for one of each at most.
// The work queue locks around it.
type turns struct {
	// waiting are the requests of a namespace, the oldest first; none is empty.
	waiting map[string][]ctrl.Request
	// order are the namespaces of waiting, the next first.
	order  []string
	length int
}

func newTurns() *turns { return &turns{waiting: map[string][]ctrl.Request{}} }

// Touch implements workqueue.Queue: who waits stays in place.
func (t *turns) Touch(ctrl.Request) {}

// Push implements workqueue.Queue.
func (t *turns) Push(r ctrl.Request) {
	if len(t.waiting[r.Namespace]) == 0 {
		t.order = append(t.order, r.Namespace)
	}
	t.waiting[r.Namespace] = append(t.waiting[r.Namespace], r)
	t.length++
}

// Len implements workqueue.Queue.
func (t *turns) Len() int { return t.length }

// Pop implements workqueue.Queue; it is not called on an empty one.
func (t *turns) Pop() ctrl.Request {
	namespace := t.order[0]
	t.order = t.order[1:]
	r := t.waiting[namespace][0]
	if rest := t.waiting[namespace][1:]; len(rest) > 0 {
		t.waiting[namespace] = rest
		t.order = append(t.order, namespace)
	} else {
		delete(t.waiting, namespace)
	}
	t.length--
	return r
}
