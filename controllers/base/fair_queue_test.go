// SPDX-License-Identifier: Apache-2.0

package base

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
)

func request(namespace, name string) ctrl.Request {
	return ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

// 5,000 objects of one namespace delay the only object of another namespace by one object.
func TestQueue_IsFairPerNamespace(t *testing.T) {
	t.Parallel()
	queue := (&Base{Workers: 1}).ControllerOptions().NewQueue("test", nil)
	defer queue.ShutDown()
	for i := range 5000 {
		queue.Add(request("large", fmt.Sprint(i)))
	}
	queue.Add(request("small", "a"))
	queue.Add(request("small", "b"))
	queue.Add(request("small", "a")) // warm up
	require.Equal(t, 5002, queue.Len())

	var order []string
	for range 5 {
		r, _ := queue.Get()
		order = append(order, r.String())
		queue.Done(r)
	}
	require.Equal(t, []string{"large/0", "small/a", "large/1", "small/b", "large/2"}, order)
	for range 4997 {
		r, _ := queue.Get()
		require.Equal(t, "large", r.Namespace)
		queue.Done(r)
	}
	require.Zero(t, queue.Len())

	queue.Add(request("small", "a"))
	r, _ := queue.Get()
	require.Equal(t, request("small", "a"), r, "a namespace that had nothing to do comes again")
}

// An object that has failed for hours is retried within Later.
func TestQueue_BoundsRetryInterval(t *testing.T) {
	t.Parallel()
	limiter := (&Base{}).ControllerOptions().RateLimiter
	failing := request("a", "b")
	last := limiter.When(failing)
	require.Equal(t, firstBackoff, last)
	for range 60 {
		next := limiter.When(failing)
		require.GreaterOrEqual(t, next, last)
		require.LessOrEqual(t, next, MaxRetryInterval)
		last = next
	}
	require.Equal(t, MaxRetryInterval, last)
}
