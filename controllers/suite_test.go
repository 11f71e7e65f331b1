// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers"
	"github.com/agentplatform/agentplatform/controllers/platformkeys"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/pause"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/internal/testenv/kube"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlite"
)

func TestControllers_Suite(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "controllers")
}

// platform is a manager on a real kube-apiserver and a real store.
type platform struct {
	client     client.Client
	store      store.Store
	cluster    *rest.Config
	plane      *kube.ControlPlane
	platformID uuid.UUID
	keys       platformkeys.Secret
}

// start runs a manager until the spec ends.
func start() *platform {
	GinkgoHelper()
	return startOn(func(context.Context, store.Store, uuid.UUID) {})
}

// startOn runs a manager on a store that prepare has filled for the platform with this ID. The manager
// has only the permissions of its role.
func startOn(prepare func(ctx context.Context, db store.Store, platformID uuid.UUID)) *platform {
	GinkgoHelper()
	plane := kube.Start(GinkgoTB())
	plane.Grant(GinkgoTB(), "manager", "agentplatform-manager")
	return startAs(plane.User(GinkgoTB(), "manager"), controllers.ManagerOptions{SystemNamespace: kube.SystemNamespace}, prepare)
}

// startAs runs a manager as a user.
func startAs(
	user *rest.Config, opts controllers.ManagerOptions, prepare func(ctx context.Context, db store.Store, platformID uuid.UUID),
) *platform {
	GinkgoHelper()
	plane := kube.Start(GinkgoTB())
	ctx, stop := context.WithCancel(context.Background())
	db, err := sqlite.Open(ctx, sqlite.Options{Path: filepath.Join(GinkgoT().TempDir(), "test.db")})
	Expect(err).NotTo(HaveOccurred())
	Expect(db.Migrate(ctx)).To(Succeed())
	mgr, err := controllers.NewManager(user, opts)
	Expect(err).NotTo(HaveOccurred())
	direct, err := client.New(user, client.Options{Scheme: plane.Scheme})
	Expect(err).NotTo(HaveOccurred())
	secret := platformkeys.Secret{Client: direct, Namespace: opts.SystemNamespace}
	platformID, err := secret.Ensure(ctx, db, uuid.Nil)
	Expect(err).NotTo(HaveOccurred())
	uid, err := controllers.ClusterUID(ctx, direct)
	Expect(err).NotTo(HaveOccurred())
	lease := &controllers.Lease{Store: db, ClusterUID: uid, PlatformID: platformID, Logger: slog.New(slog.DiscardHandler)}
	Expect(lease.Await(ctx)).To(Succeed())
	keys := newKeeper(secret, db, "manager")
	Expect(keys.Begin(ctx)).To(Succeed())
	prepare(ctx, db, platformID)
	Expect(controllers.Register(ctx, mgr, controllers.Options{
		Store: db.ForCluster(uid), Hints: db, Lease: lease, PlatformID: platformID, Keys: keys.Follower.Keys, KeyKeeper: keys, Image: "agentplatform:dev",
		DispatchURL: "https://dispatch.example.svc:8081", GatewayURL: "https://hooks.example.com/", Namespaces: opts.Namespaces,
		SystemNamespace: opts.SystemNamespace, DispatchTLSSecret: "agentplatform-dispatch-tls", APITLSSecret: "agentplatform-api-tls",
		Egress: egress.Flags{Allow: "git=10.20.0.0/16,model=10.0.0.0/8,tool=192.168.7.0/24", Deny: "10.96.0.0/12"},
	})).To(Succeed())
	collectGarbage(ctx, mgr, plane.Client)
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	DeferCleanup(func() {
		stop()
		Expect(<-ended).To(Succeed())
		Expect(db.Close()).To(Succeed())
	})
	return &platform{client: plane.Client, store: db, cluster: plane.Config, plane: plane, platformID: platformID, keys: secret}
}

// newKeeper returns the keeper of a process with this name.
func newKeeper(secret platformkeys.Secret, db store.Store, process string) *platformkeys.Keeper {
	logger := slog.New(slog.DiscardHandler)
	return &platformkeys.Keeper{Secret: secret, Store: db, Logger: logger, Follower: &secrets.Follower{
		Read: secret.Read, Register: db, Process: process, Keys: &secrets.Keys{}, Logger: logger, Pause: shortPause,
	}}
}

// shortPause makes a manager check its keys more often than in production.
func shortPause(ctx context.Context) error {
	return pause.For(ctx, 50*time.Millisecond)
}

// ready and stalled check an object that eventually has read.
func ready(o v1alpha1.ConditionedObject) func() bool {
	return func() bool { return v1alpha1.IsReady(o) }
}

func stalled(o v1alpha1.ConditionedObject) func() bool {
	return func() bool { return v1alpha1.IsStalled(o) }
}

// collectGarbage deletes the children of deleted objects like Kubernetes' garbage collector, which the
// test's control plane does not have.
func collectGarbage(ctx context.Context, mgr ctrl.Manager, c client.Client) {
	GinkgoHelper()
	for _, owner := range []client.Object{&v1alpha1.Project{}, &v1alpha1.Environment{}, &v1alpha1.Deployment{}, &v1alpha1.Connector{}} {
		informer, err := mgr.GetCache().GetInformer(ctx, owner)
		Expect(err).NotTo(HaveOccurred())
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{DeleteFunc: func(gone any) {
			if last, ok := gone.(toolscache.DeletedFinalStateUnknown); ok {
				gone = last.Obj
			}
			if owner, ok := gone.(client.Object); ok {
				deleteChildren(ctx, c, owner)
			}
		}})
		Expect(err).NotTo(HaveOccurred())
	}
}

// deleteChildren ignores errors: a test waits for the results instead.
func deleteChildren(ctx context.Context, c client.Client, owner client.Object) {
	for _, list := range []client.ObjectList{
		&corev1.SecretList{}, &corev1.ConfigMapList{}, &appsv1.DeploymentList{}, &batchv1.JobList{}, &networkingv1.NetworkPolicyList{},
	} {
		if c.List(ctx, list, client.InNamespace(owner.GetNamespace())) != nil {
			return
		}
		_ = apimeta.EachListItem(list, func(o runtime.Object) error {
			child, ok := o.(client.Object)
			if !ok || !metav1.IsControlledBy(child, owner) {
				return nil
			}
			return client.IgnoreNotFound(c.Delete(ctx, child, client.PropagationPolicy(metav1.DeletePropagationBackground)))
		})
	}
}
