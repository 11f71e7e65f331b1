// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/examples"
)

// exampleFiles returns the files of an example by path.
func exampleFiles(name string) map[string]*string {
	GinkgoHelper()
	folder, err := examples.Open(name)
	Expect(err).NotTo(HaveOccurred())
	files := map[string]*string{}
	Expect(fs.WalkDir(folder, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(folder, path)
		files[path] = ptr.To(string(content))
		return err
	})).To(Succeed())
	return files
}

// example deploys an example in a new project. Meanwhile the repository contains only the example. Afterwards it contains none
// of its files.
func (w way) example(ctx context.Context, t *team, name string, variables ...setting) {
	GinkgoHelper()
	if len(variables) > 0 {
		w.set(ctx, t, variables...)
		t.applied(ctx, &v1alpha1.Environment{ObjectMeta: t.at("dev")})
		t.replaced(ctx, 1)
	}
	files := agents("nothing")
	for path := range files {
		files[path] = nil
	}
	gone := map[string]*string{}
	for path, content := range exampleFiles(name) {
		files[path], gone[path] = content, nil
	}
	head := commit(ctx, name, files)
	DeferCleanup(func(ctx SpecContext) { commit(ctx, "Remove "+name, gone) })
	w.deploy(ctx, t, name, head)
	connectors := &v1alpha1.ConnectorList{}
	count := 0
	for path := range gone {
		if strings.HasPrefix(path, "connectors/") {
			count++
		}
	}
	Eventually(ctx, func() int {
		Expect(cluster.List(ctx, connectors, client.InNamespace(t.namespace))).To(Succeed())
		is := 0
		for i := range connectors.Items {
			if v1alpha1.IsReady(&connectors.Items[i]) {
				is++
			}
		}
		return is
	}).WithTimeout(patience).WithPolling(interval).Should(Equal(count), "connectors that are ready")
}

// connector returns the mirrored Connector of a file of the example.
func (t *team) connector(ctx context.Context, key string) *v1alpha1.Connector {
	GinkgoHelper()
	c := &v1alpha1.Connector{ObjectMeta: t.at("dev." + key)}
	eventually(ctx, c, ready(c))
	return c
}

// form posts fields and the files of an example, which lie below its folder.
func (h *hook) form(ctx context.Context, example string, fields, files map[string]string) reply {
	GinkgoHelper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for name, value := range fields {
		Expect(form.WriteField(name, value)).To(Succeed())
	}
	for name, path := range files {
		part, err := form.CreateFormFile(name, path[strings.LastIndex(path, "/")+1:])
		Expect(err).NotTo(HaveOccurred())
		_, err = part.Write([]byte(*exampleFiles(example)[path]))
		Expect(err).NotTo(HaveOccurred())
	}
	Expect(form.Close()).To(Succeed())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, cluster.gateway+h.path(), &body)
	Expect(err).NotTo(HaveOccurred())
	request.Header.Set("Content-Type", form.FormDataContentType())
	request.Header.Set("X-Service-Secret", h.secret)
	answer, err := httpClient.Do(request)
	Expect(err).NotTo(HaveOccurred())
	defer answer.Body.Close()
	r := reply{}
	Expect(json.NewDecoder(answer.Body).Decode(&r)).To(Succeed())
	r.Status = answer.StatusCode
	return r
}

// arrived waits for the first request that a receiver has, and sees that the connector signed it.
func (t *team) arrived(ctx context.Context, r *receiver, by *v1alpha1.Connector) delivered {
	GinkgoHelper()
	Eventually(ctx, func() int { return len(r.came()) }).WithTimeout(patience).WithPolling(interval).ShouldNot(BeZero())
	got := r.came()[0]
	secret := &corev1.Secret{}
	Expect(cluster.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: by.Status.SecretName}, secret)).To(Succeed())
	verifier, err := standardwebhooks.NewWebhook(string(secret.Data["signing_secret"]))
	Expect(err).NotTo(HaveOccurred())
	Expect(verifier.Verify(got.body, got.headers)).To(Succeed())
	return got
}

// startService starts an HTTP service for the tools of agents, with JSON by paths. It requires the token CANARY.
func startService(bodies map[string]string) (url string) {
	GinkgoHelper()
	listener, err := net.Listen("tcp", net.JoinHostPort(envOr("E2E_NODE_ADDRESS", "10.244.0.1"), "0"))
	Expect(err).NotTo(HaveOccurred())
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, found := bodies[r.URL.Path]
		switch {
		case r.Header.Get("Authorization") != "Bearer CANARY":
			http.Error(w, "unauthorized", http.StatusUnauthorized)
		case !found:
			http.NotFound(w, r)
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, body)
		}
	}))
	server.Listener = listener
	server.Start()
	DeferCleanup(server.Close)
	return "http://" + listener.Addr().String()
}

var _ = Describe("The example", func() {
	for _, w := range ways {
		Context(w.name, func() {
			answering(w)
			mailDesk(w)
			releaseNotes(w)
		})
	}

	It("order-lookup answers with data of the shop", func(ctx SpecContext) {
		w, t := ways[0], newTeam(ctx, 1)
		shop := startService(map[string]string{"/v1/orders/4711": `{"state": "shipped", "shipment": {"carrier": "DHL", "eta": "2026-01-05"}}`})
		w.example(ctx, t, "order-lookup", setting{name: "ORDERS_URL", value: shop + "/v1"}, setting{"ORDERS_TOKEN", "CANARY", true})
		answer := t.known(ctx, t.connector(ctx, "questions")).post(ctx, cluster.gateway, `{"question": "Where is my order 4711?"}`)
		Expect(answer.Status).To(Equal(http.StatusOK), string(answer.Body))
		Expect(answer.Result.Output).To(Equal("Your order is on its way with DHL. It arrives on 2026-01-05."))
		say("%s", answer.Result.Output)
	}, SpecTimeout(5*time.Minute))

	It("nightly-report tells the chat by its schedule", func(ctx SpecContext) {
		teams, chats := make([]*team, len(ways)), make([]*receiver, len(ways))
		for i, w := range ways { // they wait for the same minute
			teams[i], chats[i] = newTeam(ctx, 1), startReceiver(http.StatusOK)
			w.example(ctx, teams[i], "nightly-report",
				setting{name: "REPORT_SCHEDULE", value: "* * * * *"}, setting{name: "REPORT_TIMEZONE", value: "Europe/Berlin"},
				setting{name: "TEAM", value: "the platform team"}, setting{"CHAT_WEBHOOK_URL", chats[i].url + "/CANARY", true})
		}
		for i, w := range ways {
			t := teams[i]
			to := t.connector(ctx, "chat")
			got := t.arrived(ctx, chats[i], to)
			Expect(string(got.body)).To(MatchRegexp(`"text":"[A-Z][a-z]+day: [A-Z][a-z]+ is on call\."`))
			say("%s: %s", w.name, got.body)
			Expect(to.Spec.Webhook.URL).To(Equal("${CHAT_WEBHOOK_URL}"))
			runs := t.rest(ctx, http.MethodGet, "/connectors/"+to.Status.ID+"/runs", "", http.StatusOK)
			Expect(string(runs)).NotTo(ContainSubstring("CANARY"))
		}
	}, SpecTimeout(8*time.Minute))
})

// answering tests the examples that callers call, deployed in the given way.
func answering(w way) {
	It("support-triage answers a ticket, and one with a log file", func(ctx SpecContext) {
		t := newTeam(ctx, 1)
		shop := startService(map[string]string{"/orders/4711/payments": `{"payments": [{"amount": 20, "state": "paid"}, {"amount": 20, "state": "paid"}]}`})
		w.example(ctx, t, "support-triage", setting{name: "SHOP_URL", value: shop}, setting{"SHOP_TOKEN", "CANARY", true})
		tickets := t.known(ctx, t.connector(ctx, "tickets"))
		answer := tickets.post(ctx, cluster.gateway, `{"customer": "Ada", "subject": "Refund", "body": "I was charged twice for order 4711."}`)
		Expect(answer.Status).To(Equal(http.StatusOK), string(answer.Body))
		Expect(answer.Result.Output).To(And(ContainSubstring(`"category":"billing"`), ContainSubstring("2 payments")))
		say("%s", answer.Result.Output)
		answer = tickets.form(ctx, "support-triage", map[string]string{"customer": "Grace", "subject": "Checkout", "body": "The last page stays blank."},
			map[string]string{"log": "tests/files/app.log"})
		Expect(answer.Status).To(Equal(http.StatusOK))
		Expect(answer.Result.Output).To(And(ContainSubstring(`"priority":"high"`), ContainSubstring("app.log")))
		say("%s", answer.Result.Output)
	}, SpecTimeout(5*time.Minute))

	It("ticket-pipeline answers a ticket in steps", func(ctx SpecContext) {
		t := newTeam(ctx, 1)
		w.example(ctx, t, "ticket-pipeline")
		answer := t.known(ctx, t.connector(ctx, "tickets")).post(ctx, cluster.gateway, `{"customer": "Ada", "body": "I was charged twice for order 4711."}`)
		Expect(answer.Status).To(Equal(http.StatusOK), string(answer.Body))
		Expect(answer.Result.Output).To(MatchRegexp(`"answer":"Hello Ada, we refund your payment this [A-Z][a-z]+day\."`))
		Expect(answer.Result.Output).To(ContainSubstring(`"refund":{"decision":"refund","order":4711}`))
		say("%s", answer.Result.Output)
	}, SpecTimeout(5*time.Minute))

	It("invoice-reader sends what it has read to the ERP, with the token of a sensitive variable", func(ctx SpecContext) {
		t, erp := newTeam(ctx, 1), startReceiver(http.StatusOK)
		w.example(ctx, t, "invoice-reader", setting{name: "ERP_URL", value: erp.url}, setting{"ERP_TOKEN", "CANARY", true})
		invoices, to := t.known(ctx, t.connector(ctx, "invoices")), t.connector(ctx, "erp")
		answer := invoices.form(ctx, "invoice-reader", map[string]string{"from": "billing@acme.example"}, map[string]string{"invoice": "tests/files/invoice-4711.pdf"})
		Expect(answer.RunIDs).To(HaveLen(1), "%+v", answer)
		got := t.arrived(ctx, erp, to)
		Expect(got.headers.Get("Authorization")).To(Equal("Bearer CANARY"))
		Expect(string(got.body)).To(And(ContainSubstring(answer.RunIDs[0]), ContainSubstring("4711"), ContainSubstring("1200.00")))
		say("%s", got.body)
		Expect(invoices.post(ctx, cluster.gateway, `{"from":"nobody"}`).Status).To(Equal(http.StatusOK), "a run that fails, for it has no file")
		Eventually(ctx, func() string {
			var last delivered
			if came := erp.came(); len(came) > 1 {
				last = came[len(came)-1]
			}
			return string(last.body)
		}).WithTimeout(patience).WithPolling(interval).Should(ContainSubstring(`"status":"failed"`))
		shown := t.rest(ctx, http.MethodGet, "/connectors/"+to.Status.ID, "", http.StatusOK)
		Expect(string(shown)).NotTo(ContainSubstring("CANARY"))
		Expect(fmt.Sprint(to.Spec, to.Status)).NotTo(ContainSubstring("CANARY"))

		By("rotating the token")
		w.set(ctx, t, setting{"ERP_TOKEN", "CANARY2", true})
		Eventually(ctx, func() string {
			status, _ := call(ctx, http.MethodPost, cluster.api+"/v1/projects/"+t.project.String()+"/connectors/"+to.Status.ID+"/test",
				http.Header{"Authorization": {"Bearer " + t.key}}, nil)
			Expect(status).To(BeElementOf(http.StatusCreated, http.StatusTooManyRequests))
			came := erp.came()
			return came[len(came)-1].headers.Get("Authorization")
		}).WithTimeout(patience).WithPolling(2 * time.Second).Should(Equal("Bearer CANARY2"))
	}, SpecTimeout(6*time.Minute))
}

// mailDesk tests the example with middleware and hooks.
func mailDesk(w way) {
	It("mail-desk answers a mail, and its middleware tells the CRM", func(ctx SpecContext) {
		t, crm := newTeam(ctx, 1), startReceiver(http.StatusOK)
		w.example(ctx, t, "mail-desk", setting{name: "CRM_URL", value: crm.url})
		mails, to := t.known(ctx, t.connector(ctx, "mails")), t.connector(ctx, "crm")
		answer := mails.post(ctx, cluster.gateway, `{"from": "ada@acme.example", "subject": "Out of office", "body": "I am back on Monday."}`)
		Expect(answer.Result.Output).To(Equal("An automatic reply needs no answer."))
		answer = mails.post(ctx, cluster.gateway, `{"from": "ada@acme.example", "subject": "Refund", "body": "Please refund 20 euros for order 4711."}`)
		Expect(answer.Status).To(Equal(http.StatusOK), string(answer.Body))
		Expect(answer.Result.Output).To(Equal("We have refunded 20 euros.\n\nYour support team"))
		got := t.arrived(ctx, crm, to)
		Expect(string(got.body)).To(MatchJSON(`{"customer": "ada@acme.example", "note": "We have refunded 20 euros.\n\nYour support team"}`))
		Expect(crm.came()).To(HaveLen(1), "a run that stopped sends nothing")
		found := t.rest(ctx, http.MethodGet, "/runs?search="+url.QueryEscape(`context.customer == "ada@acme.example"`), "", http.StatusOK)
		Expect(string(found)).To(ContainSubstring(`"context":{"customer":"ada@acme.example"}`))
		say("%s", got.body)
	}, SpecTimeout(5*time.Minute))
}

// releaseNotes tests the release notes example.
func releaseNotes(w way) {
	It("release-notes publishes what GitHub tells of, and ignores what it need not", func(ctx SpecContext) {
		t, changelog := newTeam(ctx, 1), startReceiver(http.StatusOK)
		w.example(ctx, t, "release-notes", setting{name: "CHANGELOG_URL", value: changelog.url}, setting{"CHANGELOG_KEY", "CANARY", true},
			setting{"GITHUB_TOKEN", "CANARY", true}, setting{name: "GITHUB_API_URL", value: startService(map[string]string{
				"/repos/acme/shop/releases":                `[{"tag_name": "v1.4.0", "draft": false}, {"tag_name": "v1.3.0", "draft": false}]`,
				"/repos/acme/shop/compare/v1.3.0...v1.4.0": `{"commits": [{"commit": {"message": "Fix the basket (#12)"}}]}`,
			})})
		github, to := t.known(ctx, t.connector(ctx, "github")), t.connector(ctx, "changelog")
		tell := func(event, body string) reply {
			mac := hmac.New(sha256.New, []byte(github.secret))
			mac.Write([]byte(body))
			status, answer := call(ctx, http.MethodPost, cluster.gateway+github.path(), http.Header{
				"X-GitHub-Event": {event}, "X-Hub-Signature-256": {"sha256=" + hex.EncodeToString(mac.Sum(nil))},
			}, []byte(body))
			r := reply{Status: status}
			Expect(json.Unmarshal(answer, &r)).To(Succeed(), "%s", answer)
			r.Status = status
			return r
		}
		ping := tell("ping", `{"zen": "Keep it logically awesome.", "repository": {"full_name": "acme/shop"}}`)
		Expect(ping.RunIDs).To(HaveLen(1))
		Expect(*t.ends(ctx, ping.RunIDs[0]).Output).To(Equal("ignored"))
		Expect(changelog.came()).To(BeEmpty())
		release := tell("release", `{"action": "published", "release": {"tag_name": "v1.4.0"}, "repository": {"full_name": "acme/shop"}}`)
		Expect(*t.ends(ctx, release.RunIDs[0]).Output).To(Equal("v1.4.0"))
		got := t.arrived(ctx, changelog, to)
		Expect(got.headers.Get("X-Api-Key")).To(Equal("CANARY"))
		Expect(string(got.body)).To(And(ContainSubstring(`"repository":"acme/shop"`), ContainSubstring("New since v1.3.0: Fix the basket (#12)")))
		say("%s", got.body)
		Expect(github.post(ctx, cluster.gateway, `{}`).Status).To(Equal(http.StatusUnauthorized), "nobody but GitHub")
	}, SpecTimeout(5*time.Minute))
}
