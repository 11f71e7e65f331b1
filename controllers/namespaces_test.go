// SPDX-License-Identifier: Apache-2.0

package controllers_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers"
	"github.com/agentplatform/agentplatform/internal/namespaces"
	"github.com/agentplatform/agentplatform/internal/testenv/kube"
	"github.com/agentplatform/agentplatform/store"
)

// listener records the requests of a client, and the rejected ones.
type listener struct {
	next http.RoundTripper

	mu            sync.Mutex
	paths, denied []string
}

// RoundTrip passes the request on.
func (l *listener) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := l.next.RoundTrip(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.paths = append(l.paths, r.URL.Path)
	if err == nil && response.StatusCode == http.StatusForbidden {
		l.denied = append(l.denied, r.Method+" "+r.URL.Path)
	}
	return response, err
}

// outside returns the requests for objects outside of the namespace and the platform's own objects.
func (l *listener) outside(namespace string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for _, path := range l.paths {
		// Discovery: /api, /apis, /apis/<group>/<version>.
		discovers := strings.Count(path, "/") <= 3 && !strings.HasPrefix(path, "/api/v1/")
		own := strings.Contains(path, "/namespaces/"+kube.SystemNamespace+"/") || path == "/api/v1/namespaces/kube-system"
		inside := strings.Contains(path+"/", "/namespaces/"+namespace+"/") // the namespace with its plan, and its objects
		if !discovers && !own && !inside {
			out = append(out, path)
		}
	}
	return out
}

var _ = Describe("A manager with permissions in one namespace", func() {
	It("works there and requests no other namespace", func(ctx SpecContext) {
		plane := kube.Start(GinkgoTB())
		mine, other := plane.Namespace(GinkgoTB()), plane.Namespace(GinkgoTB())
		plane.Grant(GinkgoTB(), "limited", "agentplatform-manager", mine)
		user := plane.User(GinkgoTB(), "limited")
		heard := &listener{}
		user.Wrap(func(next http.RoundTripper) http.RoundTripper {
			heard.next = next
			return heard
		})
		elsewhere := newProject(other)
		Expect(plane.Client.Create(ctx, elsewhere)).To(Succeed())

		p := startAs(user, controllers.ManagerOptions{
			LeaderElect: true, SystemNamespace: kube.SystemNamespace, Namespaces: namespaces.Set{mine},
		}, func(ctx context.Context, db store.Store, platformID uuid.UUID) {
			for _, namespace := range []string{mine, other} {
				key := store.Key{ProjectID: v1alpha1.ProjectID(platformID, namespace), ID: uuid.New()}
				Expect(db.ClaimID(ctx, key, store.ObjectRef{
					Namespace: namespace, Kind: store.KindEnvironment, Name: "lost", ObjectUID: uuid.NewString(), Generation: 1,
				})).To(Succeed())
			}
		})
		project, environment := newProject(mine), &v1alpha1.Environment{ObjectMeta: metav1.ObjectMeta{Namespace: mine, Name: "dev"}}
		connector := &v1alpha1.Connector{ObjectMeta: metav1.ObjectMeta{Namespace: mine, Name: "ask"}, Spec: v1alpha1.ConnectorSpec{
			Environment: "dev", Mode: v1alpha1.ModeSync, Webhook: &v1alpha1.WebhookConnector{},
		}}
		for _, o := range []client.Object{connector, environment, project} {
			Expect(p.client.Create(ctx, o)).To(Succeed())
		}
		p.eventually(ctx, connector, ready(connector))
		shown := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: mine, Name: connector.Status.SecretName}}
		p.eventually(ctx, shown, func() bool { return len(shown.Data["secret"]) > 0 })

		By("treating only visible objects as deleted")
		Eventually(func() ([]string, error) {
			rows, err := p.store.ListProjected(ctx)
			var left []string
			for _, row := range rows {
				if row.Ref.Name == "lost" {
					left = append(left, row.Ref.Namespace)
				}
			}
			return left, err
		}).WithContext(ctx).WithTimeout(20 * time.Second).Should(Equal([]string{other}))

		Expect(plane.Client.Get(ctx, client.ObjectKeyFromObject(elsewhere), elsewhere)).To(Succeed())
		Expect(elsewhere.Status.ID).To(BeEmpty())
		Expect(heard.outside(mine)).To(BeEmpty())
		Expect(heard.denied).To(BeEmpty())
	}, SpecTimeout(2*time.Minute))
})

func newProject(namespace string) *v1alpha1.Project {
	return &v1alpha1.Project{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.ProjectName}}
}
