// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// shop is a service that keeps a ledger of its writes. A GET waits until the shop opens.
type shop struct {
	url    string
	opened chan struct{}

	mutex  sync.Mutex
	ledger []string
	from   []string // addresses of the GETs
}

func startShop() *shop {
	GinkgoHelper()
	listener, err := net.Listen("tcp", net.JoinHostPort(envOr("E2E_NODE_ADDRESS", "10.244.0.1"), "0"))
	Expect(err).NotTo(HaveOccurred())
	s := &shop{url: "http://" + listener.Addr().String(), opened: make(chan struct{})}
	server := httptest.NewUnstartedServer(s)
	server.Listener = listener
	server.Start()
	DeferCleanup(server.Close)
	return s
}

func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.mutex.Lock()
	if r.Method == http.MethodGet {
		host, _, _ := strings.Cut(r.RemoteAddr, ":")
		s.from = append(s.from, host)
	} else {
		s.ledger = append(s.ledger, r.URL.Path+" "+string(body))
	}
	s.mutex.Unlock()
	if r.Method == http.MethodGet {
		select {
		case <-s.opened:
		case <-r.Context().Done():
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprint(w, `{"id": 9007199254740993}`)
}

// writes returns the writes so far.
func (s *shop) writes() []string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return append([]string(nil), s.ledger...)
}

// reads returns the addresses that sent a GET.
func (s *shop) reads() []string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return append([]string(nil), s.from...)
}

const (
	refundTool = `
def refund(order):
    """Refunds an order.

    Args:
      order (integer): Number of the order.
    """
    booked = [http.post(env("SHOP_URL") + "/" + step, json = {"order": order, "at": time.now()}) for step in ["check", "book"]]
    http.get(env("SHOP_URL") + "/state", timeout = 300)
    booked.append(http.post(env("SHOP_URL") + "/notify", json = {"order": order, "key": uuid.new()}))
    return {"ids": [b["json"]["id"] for b in booked]}
`
	refundModel = `
steps:
  - {turn: 1, tool_calls: [{name: orders_refund, arguments: {order: 9007199254740995}}]}
  - {match: 'tool orders_refund: (?P<result>.*)', text: '${result}'}
`
)

var _ = Describe("A script", func() {
	It("sends each request once although its runner is killed between two of them", perInstallation, func(ctx SpecContext) {
		t, s := newTeam(ctx, 2), startShop()
		environment := &v1alpha1.Environment{ObjectMeta: t.at("dev")}
		eventually(ctx, environment, ready(environment))
		t.setVariables(ctx, environment, fmt.Sprintf(`[{"name": "SHOP_URL", "value": %q, "sensitive": false}]`, s.url))
		files := agents("scripts")
		files["agents/refund.yaml"] = ptr.To("name: refund\nmodel: scripted/refund\ntools: [orders.refund]\n")
		files["models/refund.yaml"] = ptr.To(refundModel)
		files["tools/orders.star"] = ptr.To(refundTool)
		head := commit(ctx, "scripts", files)
		DeferCleanup(func(ctx SpecContext) {
			commit(ctx, "Remove scripts", map[string]*string{"agents/refund.yaml": nil, "models/refund.yaml": nil, "tools/orders.star": nil})
		})
		d := t.deploy(ctx, "scripts", head)
		eventually(ctx, d, func() bool { return d.Status.Live })
		t.replaced(ctx, 2)

		accepted := t.hook(ctx, "events", v1alpha1.ModeInbound, "refund").post(ctx, cluster.gateway, `{}`)
		Expect(accepted.Status).To(Equal(http.StatusOK), "%s", accepted.Body)
		Eventually(ctx, s.reads).WithTimeout(patience).WithPolling(interval).Should(HaveLen(1))
		var runner corev1.Pod
		Eventually(ctx, func() string { // a pod works before its status has its address
			for _, pod := range pods(ctx, t.namespace, client.MatchingLabels{"app.kubernetes.io/component": "runner"}) {
				if pod.Status.PodIP == s.reads()[0] {
					runner = pod
				}
			}
			return runner.Name
		}).WithTimeout(patience).WithPolling(interval).ShouldNot(BeEmpty())
		signal(ctx, syscall.SIGKILL, runner)
		Eventually(ctx, s.reads).WithTimeout(patience).WithPolling(interval).Should(HaveLen(2), "another runner continues")
		close(s.opened)
		ended := t.ends(ctx, accepted.RunIDs[0])
		Expect(ended.Status).To(Equal("completed"), "%v", ended.Error)
		Expect(*ended.Output).To(Equal(`{"ids":[9007199254740993,9007199254740993,9007199254740993]}`))
		ledger := s.writes()
		Expect(ledger).To(HaveLen(3))
		for i, path := range []string{"/check", "/book", "/notify"} {
			Expect(ledger[i]).To(HavePrefix(path + ` {`))
			Expect(ledger[i]).To(ContainSubstring(`9007199254740995`))
		}
		say("killed between the second and the third write; the shop got %v", ledger)
	}, SpecTimeout(6*time.Minute))
})
