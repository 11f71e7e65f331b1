// SPDX-License-Identifier: Apache-2.0

// Package environmenttest has the controller of Environments with its runner pools and the commits that they
// follow, for tests of these packages.
package environmenttest

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/controllers/environment"
	"github.com/agentplatform/agentplatform/controllers/gitfollower"
	"github.com/agentplatform/agentplatform/controllers/runnerpool"
	"github.com/agentplatform/agentplatform/store"
)

// maxQueued is more than the number of environments that a spec queues.
const maxQueued = 100

// Scene is a namespace with the controller of Environments.
type Scene struct {
	*controllertest.Fixture
	// R reconciles Environments, and Runners their pools. Heads has the heads of the branches that they
	// follow.
	R       *environment.Reconciler
	Runners *runnerpool.Reconciler
	Heads   *gitfollower.Heads
	// Changed has the environments that were queued. Without a manager, no controller takes them.
	Changed chan event.GenericEvent
}

// New returns a scene without a project.
func New() *Scene {
	GinkgoHelper()
	return On(controllertest.New())
}

// On returns the scene of a fixture.
func On(f *controllertest.Fixture) *Scene {
	changed, heads := make(chan event.GenericEvent, maxQueued), gitfollower.NewHeads()
	runners := &runnerpool.Reconciler{
		Base: f.Base, Store: f.Store, Keys: f.Keys, Pools: runnerpool.NewPools(0), Changed: changed,
		Pods: base.PodOptions{Image: "platform:1", DispatchURL: "http://dispatch:8081"},
	}
	return &Scene{Fixture: f, Runners: runners, Heads: heads, Changed: changed, R: &environment.Reconciler{
		Base: f.Base, Store: f.Store, Pool: runners, Git: &gitfollower.Follower{Base: f.Base, Store: f.Store, Heads: heads}, Changed: changed,
	}}
}

// NewWithProject returns a scene with a project that may have pods.
func NewWithProject(ctx context.Context, changes ...func(*v1alpha1.Project)) *Scene {
	GinkgoHelper()
	s := New()
	s.ExpectProject(ctx, changes...)
	return s
}

// ChildrenOfDev are the children of the environment "dev".
var ChildrenOfDev = []string{"Secret dev-runner-token", "Secret dev-runner-config", "Deployment dev-runner"}

// ApplyAndReconcile applies an environment, reconciles it and returns the time until the next reconcile.
func (s *Scene) ApplyAndReconcile(ctx context.Context, e *v1alpha1.Environment) time.Duration {
	GinkgoHelper()
	s.ExpectApplied(ctx, e)
	return s.ExpectReconciled(ctx, s.R, e).RequeueAfter
}

// Pool returns the pool of an environment.
func (s *Scene) Pool(ctx context.Context, e *v1alpha1.Environment) *appsv1.Deployment {
	GinkgoHelper()
	pool := &appsv1.Deployment{ObjectMeta: s.At(e.Name + "-runner")}
	s.ExpectExists(ctx, pool)
	return pool
}

// StartRunners sets the number of ready runners with the current configuration, like Kubernetes'
// Deployment controller.
func (s *Scene) StartRunners(ctx context.Context, e *v1alpha1.Environment, ready int32) {
	GinkgoHelper()
	pool := s.Pool(ctx, e)
	wanted := ptr.Deref(pool.Spec.Replicas, 1)
	pool.Status = appsv1.DeploymentStatus{
		ObservedGeneration: pool.Generation, Replicas: wanted, UpdatedReplicas: wanted, ReadyReplicas: ready, AvailableReplicas: ready,
	}
	s.ExpectStatus(ctx, pool)
}

// ExpectReady applies an environment and starts its runners.
func (s *Scene) ExpectReady(ctx context.Context, e *v1alpha1.Environment) *v1alpha1.Environment {
	GinkgoHelper()
	s.ApplyAndReconcile(ctx, e)
	s.StartRunners(ctx, e, e.Spec.Runner.Replicas())
	s.ExpectReconciled(ctx, s.R, e)
	Expect(controllertest.State(e)).To(Equal("Ready=True/Succeeded observed"))
	return e
}

// Queued returns the environments that were queued since its last call.
func (s *Scene) Queued() (names []string) {
	for {
		select {
		case e := <-s.Changed:
			names = append(names, e.Object.GetName())
		default:
			return names
		}
	}
}

// Row returns the row of an environment.
func (s *Scene) Row(ctx context.Context, e *v1alpha1.Environment) store.Environment {
	GinkgoHelper()
	row, err := s.Store.Environment(ctx, s.Key(e))
	Expect(err).NotTo(HaveOccurred())
	return row
}

// CreatePod creates a runner pod of an environment with a status.
func (s *Scene) CreatePod(ctx context.Context, e *v1alpha1.Environment, status corev1.PodStatus) *corev1.Pod {
	GinkgoHelper()
	pod := &corev1.Pod{ObjectMeta: s.At(e.Name + "-pod"), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "runner", Image: "a"}}}}
	pod.Labels = s.Pool(ctx, e).Spec.Template.Labels
	s.ExpectApplied(ctx, pod)
	pod.Status = status
	s.ExpectStatus(ctx, pod)
	return pod
}
