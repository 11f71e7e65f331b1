// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/controllers"
	"github.com/agentplatform/agentplatform/internal/testenv/kube"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlite"
)

func TestControllers(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "controllers")
}

// platform is a manager on a real kube-apiserver and a real store.
type platform struct {
	client  client.Client
	store   store.Store
	cluster *rest.Config
	plane   *kube.ControlPlane
}

// start runs a manager until the spec ends.
func start() *platform {
	GinkgoHelper()
	return startOn(func(context.Context, store.Store, string) {})
}

// startOn runs a manager on a store that prepare has filled for the cluster of
// that uid.
func startOn(prepare func(ctx context.Context, db store.Store, clusterUID string)) *platform {
	GinkgoHelper()
	plane := kube.Start(GinkgoTB())
	ctx, stop := context.WithCancel(context.Background())
	db, err := sqlite.Open(ctx, sqlite.Options{Path: filepath.Join(GinkgoT().TempDir(), "test.db")})
	Expect(err).NotTo(HaveOccurred())
	Expect(db.Migrate(ctx)).To(Succeed())
	mgr, err := controllers.NewManager(plane.Config, controllers.ManagerOptions{HealthAddr: "0", MetricsAddr: "0"})
	Expect(err).NotTo(HaveOccurred())
	keys, err := controllers.EnsureKeys(ctx, plane.Client, metav1.NamespaceDefault)
	Expect(err).NotTo(HaveOccurred())
	prepare(ctx, db, keys.ClusterUID)
	Expect(controllers.Register(mgr, controllers.Options{
		Store: db, DerivationKey: keys.Derivation, Sealer: keys.Sealer, Image: "agentplatform:dev", ClusterUID: keys.ClusterUID,
		DispatchURL: "http://dispatch:8081", GatewayURL: "https://hooks.example.com/",
	})).To(Succeed())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	DeferCleanup(func() {
		stop()
		Expect(<-ended).To(Succeed())
		Expect(db.Close()).To(Succeed())
	})
	return &platform{client: plane.Client, store: db, cluster: plane.Config, plane: plane}
}
