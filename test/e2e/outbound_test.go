// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// receiver is a destination of results. It responds with its statuses in order and repeats the last one.
type receiver struct {
	url string

	mutex    sync.Mutex
	statuses []int
	got      []delivered
}

// delivered is a received request.
type delivered struct {
	headers http.Header
	body    []byte
}

func startReceiver(statuses ...int) *receiver {
	GinkgoHelper()
	listener, err := net.Listen("tcp", net.JoinHostPort(envOr("E2E_NODE_ADDRESS", "10.244.0.1"), "0"))
	Expect(err).NotTo(HaveOccurred())
	r := &receiver{url: "http://" + listener.Addr().String() + "/results", statuses: statuses}
	server := httptest.NewUnstartedServer(r)
	server.Listener = listener
	server.Start()
	DeferCleanup(server.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return // the sender retries
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.got = append(r.got, delivered{request.Header, body})
	status := r.statuses[0]
	if len(r.statuses) > 1 {
		r.statuses = r.statuses[1:]
	}
	w.WriteHeader(status)
}

// came returns the requests received so far.
func (r *receiver) came() []delivered {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return append([]delivered(nil), r.got...)
}

// outbound creates an outbound connector that sends the results of `hello`.
func (t *team) outbound(ctx context.Context, name, url string) *v1alpha1.Connector {
	GinkgoHelper()
	c := &v1alpha1.Connector{ObjectMeta: t.at(name), Spec: v1alpha1.ConnectorSpec{
		Environment: "dev", Mode: v1alpha1.ModeOutbound, HeadersSecretRef: &v1alpha1.SecretReference{Name: "headers"},
		Webhook: &v1alpha1.WebhookConnector{
			URL: url, Retry: &v1alpha1.DeliveryRetry{MaxAttempts: ptr.To(int32(3)), ScheduleSeconds: []int32{0, 1}},
		},
	}}
	l := &v1alpha1.ConnectorLink{ObjectMeta: t.at(name + "-hello"), Spec: v1alpha1.ConnectorLinkSpec{
		Connector: v1alpha1.ConnectorName(name), Agent: "hello", Outbound: &v1alpha1.OutboundLink{SourceConnectors: []v1alpha1.ConnectorName{"events"}},
	}}
	t.create(ctx, c)
	t.create(ctx, l)
	eventually(ctx, c, ready(c))
	eventually(ctx, l, ready(l))
	return c
}

// delivery is a connector run of an outbound connector.
type delivery struct {
	ID       string  `json:"id"`
	RunID    string  `json:"run_id"`
	Status   string  `json:"status"`
	Error    *string `json:"error"`
	Attempts []struct {
		StatusCode *int    `json:"status_code"`
		ErrorClass *string `json:"error_class"`
	} `json:"attempts"`
}

// ended waits until the newest delivery of a connector has ended.
func (t *team) ended(ctx context.Context, c *v1alpha1.Connector, runID string) (d delivery) {
	GinkgoHelper()
	runs := cluster.api + "/v1/projects/" + t.project.String() + "/connectors/" + c.Status.ID + "/runs"
	get := func(url string, into any) {
		status, body := call(ctx, http.MethodGet, url, http.Header{"Authorization": {"Bearer " + t.key}}, nil)
		Expect(status).To(Equal(http.StatusOK), "%s", body)
		Expect(json.Unmarshal(body, into)).To(Succeed())
	}
	Eventually(ctx, func() bool {
		var list struct{ Items []delivery }
		get(runs+"?trigger_type=outbound", &list)
		for _, item := range list.Items {
			if item.RunID == runID && item.Status != "pending" && item.Status != "running" {
				get(runs+"/"+item.ID, &d)
				return true
			}
		}
		return false
	}).WithTimeout(patience).WithPolling(time.Second).Should(BeTrue(), "the delivery of run %s ends", runID)
	return d
}

var _ = Describe("The result of a run", func() {
	It("is sent, signed, and tried again until it is taken", perInstallation, func(ctx SpecContext) {
		t := newTeam(ctx, 1)
		t.create(ctx, &corev1.Secret{ObjectMeta: t.at("headers"), StringData: map[string]string{"X-Team": "payments"}})
		t.live(ctx, "v1")
		events, other := t.hook(ctx, "events", v1alpha1.ModeInbound, "hello"), t.hook(ctx, "other", v1alpha1.ModeSync, "hello")
		taken := startReceiver(http.StatusServiceUnavailable, http.StatusOK)
		results := t.outbound(ctx, "results", taken.url)
		gone := startReceiver(http.StatusGone, http.StatusOK)
		gives := t.outbound(ctx, "gone", gone.url)
		metadata := t.outbound(ctx, "metadata", "http://169.254.169.254/latest")

		Expect(other.post(ctx, cluster.gateway, `{}`).Status).To(Equal(http.StatusOK), "whose results are not asked for")
		run := events.post(ctx, cluster.gateway, `{}`).RunIDs[0]
		d := t.ended(ctx, results, run)
		Expect(d.Status).To(Equal("completed"), "%+v", d)
		Expect(d.Attempts).To(HaveLen(2))
		came := taken.came()
		Expect(came).To(HaveLen(2))
		secret := &corev1.Secret{}
		Expect(cluster.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: results.Status.SecretName}, secret)).To(Succeed())
		verifier, err := standardwebhooks.NewWebhook(string(secret.Data["signing_secret"]))
		Expect(err).NotTo(HaveOccurred())
		for _, request := range came {
			Expect(verifier.Verify(request.body, request.headers)).To(Succeed())
			Expect(request.headers.Get("X-Service-Delivery")).To(Equal(d.ID))
			Expect(request.headers.Get("X-Team")).To(Equal("payments"))
			Expect(string(request.body)).To(ContainSubstring(`"output":"hello from v1"`))
		}

		By("not being sent to where nobody may send")
		d = t.ended(ctx, metadata, run)
		Expect(d.Status).To(Equal("failed"), "%+v", d)
		Expect(*d.Attempts[0].ErrorClass).To(Equal("forbidden_address"))

		By("being answered 410: the connector is paused, until somebody says otherwise")
		Expect(t.ended(ctx, gives, run).Status).To(Equal("failed"))
		eventually(ctx, gives, func() bool {
			delivering := gives.Status.Condition(v1alpha1.ConditionDelivering)
			return delivering != nil && delivering.Reason == v1alpha1.ReasonPaused
		})
		Expect(t.ended(ctx, gives, events.post(ctx, cluster.gateway, `{}`).RunIDs[0]).Status).To(Equal("skipped"))
		status, body := call(ctx, http.MethodPatch, cluster.api+"/v1/projects/"+t.project.String()+"/connectors/"+gives.Status.ID,
			http.Header{"Authorization": {"Bearer " + t.key}, "Content-Type": {"application/json"}}, []byte(`{"enabled":true}`))
		Expect(status).To(Equal(http.StatusOK), "%s", body)
		Expect(t.ended(ctx, gives, events.post(ctx, cluster.gateway, `{}`).RunIDs[0]).Status).To(Equal("completed"))
		eventually(ctx, gives, func() bool { return gives.Status.IsTrue(v1alpha1.ConditionDelivering) })
		Expect(gone.came()).To(HaveLen(2))
	}, SpecTimeout(5*time.Minute))
})

var _ = Describe("An outbound connector", func() {
	It("sends a test, signed, before there is an agent", func(ctx SpecContext) {
		t, taken := newTeam(ctx, 1), startReceiver(http.StatusOK)
		dev := &v1alpha1.Environment{ObjectMeta: t.at("dev")}
		eventually(ctx, dev, func() bool { return dev.Status.Slug != "" })
		var connector struct {
			ID            string
			SigningSecret string `json:"signing_secret"`
		}
		Expect(json.Unmarshal(t.rest(ctx, http.MethodPost, "/connectors?environment_id="+dev.Status.ID,
			`{"name":"CRM","type":"webhook","mode":"outbound","config":{"url":"`+taken.url+`"}}`, http.StatusCreated), &connector)).To(Succeed())
		runs := "/connectors/" + connector.ID + "/runs/"
		var d delivery
		Expect(json.Unmarshal(t.rest(ctx, http.MethodPost, "/connectors/"+connector.ID+"/test", "", http.StatusCreated), &d)).To(Succeed())
		Eventually(ctx, func() string {
			Expect(json.Unmarshal(t.rest(ctx, http.MethodGet, runs+d.ID, "", http.StatusOK), &d)).To(Succeed())
			return d.Status
		}).WithTimeout(patience).WithPolling(interval).Should(Equal("completed"))
		Expect(d.Attempts).To(HaveLen(1))
		came := taken.came()
		Expect(came).To(HaveLen(1))
		verifier, err := standardwebhooks.NewWebhook(connector.SigningSecret)
		Expect(err).NotTo(HaveOccurred())
		Expect(verifier.Verify(came[0].body, came[0].headers)).To(Succeed())
		Expect(came[0].headers.Get("X-Service-Event")).To(Equal("test"))
	})
})
