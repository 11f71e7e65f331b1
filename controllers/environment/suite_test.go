// SPDX-License-Identifier: Apache-2.0

package environment_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/controllers/environment"
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/store"
)

func TestEnvironment_Suite(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "environment")
}

// scene is a namespace with a reconciler of environments.
type scene struct {
	*Fixture
	r *environment.Reconciler
	// wakes has the environments that the reconciler queued.
	wakes <-chan event.GenericEvent
}

func bare() *scene {
	GinkgoHelper()
	f := New()
	r := &environment.Reconciler{Base: f.Base, Store: f.Store, Keys: f.Keys, Pods: object.PodOptions{Image: "platform:1", DispatchURL: "http://dispatch:8081"}, Heads: environment.NewHeads(), Pools: environment.NewPools(0)}
	return &scene{Fixture: f, r: r, wakes: r.Wakes()}
}

// newScene returns a scene with a project that may have pods.
func newScene(ctx context.Context, changes ...func(*v1alpha1.Project)) *scene {
	GinkgoHelper()
	s := bare()
	s.ExpectProject(ctx, changes...)
	return s
}

// children are the children of the environment "dev".
var children = []string{"Secret dev-runner-token", "Secret dev-runner-config", "Deployment dev-runner"}

// reconciled applies an environment, reconciles it and returns the time until the next reconcile.
func (s *scene) reconciled(ctx context.Context, e *v1alpha1.Environment) time.Duration {
	GinkgoHelper()
	s.ExpectApplied(ctx, e)
	return s.ExpectReconciled(ctx, s.r, e).RequeueAfter
}

// pool returns the pool of an environment.
func (s *scene) pool(ctx context.Context, e *v1alpha1.Environment) *appsv1.Deployment {
	GinkgoHelper()
	pool := &appsv1.Deployment{ObjectMeta: s.At(e.Name + "-runner")}
	s.ExpectExists(ctx, pool)
	return pool
}

// started sets the number of ready runners with the current configuration, like Kubernetes' Deployment
// controller.
func (s *scene) started(ctx context.Context, e *v1alpha1.Environment, ready int32) {
	GinkgoHelper()
	pool := s.pool(ctx, e)
	wanted := ptr.Deref(pool.Spec.Replicas, 1)
	pool.Status = appsv1.DeploymentStatus{
		ObservedGeneration: pool.Generation, Replicas: wanted, UpdatedReplicas: wanted, ReadyReplicas: ready, AvailableReplicas: ready,
	}
	s.ExpectStatus(ctx, pool)
}

// ready applies an environment and starts its runners.
func (s *scene) ready(ctx context.Context, e *v1alpha1.Environment) *v1alpha1.Environment {
	GinkgoHelper()
	s.reconciled(ctx, e)
	s.started(ctx, e, e.Spec.Runner.Replicas())
	s.ExpectReconciled(ctx, s.r, e)
	Expect(State(e)).To(Equal("Ready=True/Succeeded observed"))
	return e
}

// woken returns the environments that were queued since its last call.
func (s *scene) woken() (names []string) {
	for {
		select {
		case e := <-s.wakes:
			names = append(names, e.Object.GetName())
		default:
			return names
		}
	}
}

// stored returns the row of an environment.
func (s *scene) stored(ctx context.Context, e *v1alpha1.Environment) store.Environment {
	GinkgoHelper()
	row, err := s.Store.Environment(ctx, s.Key(e))
	Expect(err).NotTo(HaveOccurred())
	return row
}

// pod creates a runner pod of an environment with a status.
func (s *scene) pod(ctx context.Context, e *v1alpha1.Environment, status corev1.PodStatus) *corev1.Pod {
	GinkgoHelper()
	pod := &corev1.Pod{ObjectMeta: s.At(e.Name + "-pod"), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "runner", Image: "a"}}}}
	pod.Labels = s.pool(ctx, e).Spec.Template.Labels
	s.ExpectApplied(ctx, pod)
	pod.Status = status
	s.ExpectStatus(ctx, pod)
	return pod
}
