// SPDX-License-Identifier: Apache-2.0

package base

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller"
)

const (
	// firstBackoff is the backoff after a first failure. It doubles with each failure, up to MaxRetryInterval.
	firstBackoff = 50 * time.Millisecond
	// DefaultWorkers is the number of objects of a kind that are reconciled concurrently.
	DefaultWorkers = 8
)

// ControllerOptions returns the options of all controllers: several workers, a queue that is fair per
// namespace, and retries at most MaxRetryInterval apart.
func (b *Base) ControllerOptions() controller.Options {
	return controller.Options{
		MaxConcurrentReconciles: max(b.Workers, 1),
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](firstBackoff, MaxRetryInterval),
		NewQueue: func(name string, limiter workqueue.TypedRateLimiter[ctrl.Request]) workqueue.TypedRateLimitingInterface[ctrl.Request] {
			fair := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[ctrl.Request]{Name: name, Queue: newFairQueue()})
			delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[ctrl.Request]{Name: name, Queue: fair})
			return workqueue.NewTypedRateLimitingQueueWithConfig(limiter,
				workqueue.TypedRateLimitingQueueConfig[ctrl.Request]{Name: name, DelayingQueue: delaying})
		},
	}
}

// fairQueue is a work queue that serves namespaces round robin. An object waits for at most one object of
// each other namespace, plus the earlier ones of its own. The work queue holds a lock around all calls.
type fairQueue struct {
	// waiting has the requests of each namespace, oldest first. No list is empty.
	waiting map[string][]ctrl.Request
	// order has the namespaces of waiting, next one first.
	order  []string
	length int
}

func newFairQueue() *fairQueue { return &fairQueue{waiting: map[string][]ctrl.Request{}} }

// Touch implements workqueue.Queue. A queued request keeps its position.
func (t *fairQueue) Touch(ctrl.Request) {}

// Push implements workqueue.Queue.
func (t *fairQueue) Push(r ctrl.Request) {
	if len(t.waiting[r.Namespace]) == 0 {
		t.order = append(t.order, r.Namespace)
	}
	t.waiting[r.Namespace] = append(t.waiting[r.Namespace], r)
	t.length++
}

// Len implements workqueue.Queue.
func (t *fairQueue) Len() int { return t.length }

// Pop implements workqueue.Queue. The caller makes sure that the queue is not empty.
func (t *fairQueue) Pop() ctrl.Request {
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
