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

func TestEnvironment(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "environment")
}

// scene is a namespace with a reconciler of environments.
type scene struct {
	*Fixture
	r *environment.Reconciler
	// wakes are the environments that the reconciler woke.
	wakes <-chan event.GenericEvent
}

func bare() *scene {
	GinkgoHelper()
	f := New()
	r := &environment.Reconciler{Base: f.Base, Store: f.Store, Keys: f.Keys, Pods: object.PodOptions{Image: "platform:1", DispatchURL: "http://dispatch:8081"}, Heads: environment.NewHeads(), Pools: environment.NewPools(0)}
	return &scene{Fixture: f, r: r, wakes: r.Wakes()}
}

// newScene has a project that may have pods.
func newScene(ctx context.Context, changes ...func(*v1alpha1.Project)) *scene {
	GinkgoHelper()
	s := bare()
	s.ExpectProject(ctx, changes...)
	return s
}

// children are those of the environment "dev".
var children = []string{"Secret dev-runner-token", "Secret dev-runner-config", "Deployment dev-runner"}

// reconciled applies an environment, reconciles it and returns when it is looked
// at again.
func (s *scene) reconciled(ctx context.Context, e *v1alpha1.Environment) time.Duration {
	GinkgoHelper()
	s.ExpectApplied(ctx, e)
	return s.ExpectReconciled(ctx, s.r, e).RequeueAfter
}

// pool is the pool of an environment.
func (s *scene) pool(ctx context.Context, e *v1alpha1.Environment) *appsv1.Deployment {
	GinkgoHelper()
	pool := &appsv1.Deployment{ObjectMeta: s.At(e.Name + "-runner")}
	s.ExpectExists(ctx, pool)
	return pool
}

// started lets as many runners of a pool be ready, of its configuration of now, as
// the controller of Kubernetes' Deployments would.
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

// woken are the environments that were woken since the last time.
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

// stored is what the store has of an environment.
func (s *scene) stored(ctx context.Context, e *v1alpha1.Environment) store.Environment {
	GinkgoHelper()
	row, err := s.Store.Environment(ctx, s.Key(e))
	Expect(err).NotTo(HaveOccurred())
	return row
}

// pod makes a runner pod of an environment, with a status.
func (s *scene) pod(ctx context.Context, e *v1alpha1.Environment, status corev1.PodStatus) *corev1.Pod {
	GinkgoHelper()
	pod := &corev1.Pod{ObjectMeta: s.At(e.Name + "-pod"), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "runner", Image: "a"}}}}
	pod.Labels = s.pool(ctx, e).Spec.Template.Labels
	s.ExpectApplied(ctx, pod)
	pod.Status = status
	s.ExpectStatus(ctx, pod)
	return pod
}
