// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// largestBody is the maximum size of a webhook's body in bytes.
const largestBody = 16 << 20

// longWait is longer than any time-out that proxies have by default.
const longWait = 100 * time.Second

// send calls a webhook through a proxy. The caller closes the response.
func (f front) send(ctx context.Context, h *hook, body io.Reader, header http.Header) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+f.host()+h.path(), body)
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		request.Header[name] = values
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Service-Secret", h.secret)
	return f.client.Do(request)
}

// post calls send and reads the response. Status 0 means that there was no response. Then the reply contains the error.
func (f front) post(ctx context.Context, h *hook, body string) (r reply) {
	response, err := f.send(ctx, h, strings.NewReader(body), nil)
	if err != nil {
		return reply{Body: []byte(err.Error())}
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return reply{Body: []byte(err.Error())}
	}
	_ = json.Unmarshal(answer, &r) // a body that is not JSON leaves the fields empty
	r.Status, r.Body = response.StatusCode, answer
	return r
}

// padded returns a JSON object of the given size in bytes.
func padded(size int) string {
	const begin, end = `{"pad":"`, `"}`
	return begin + strings.Repeat("x", size-len(begin)-len(end)) + end
}

// newKey returns the key and the input of a run whose model holds its answer until the test releases it.
func newKey() (key, body string) {
	key = "key-" + uuid.NewString()
	return key, fmt.Sprintf(`{"key": %q}`, key)
}

var _ = Describe("Behind a proxy", Ordered, ContinueOnFailure, func() {
	var (
		t           *team
		ask, events *hook
		held        *hook // a sync connector whose agent holds its answer until the test releases it
		fronts      map[string]front
		patient     = map[string]chan reply{} // the callers that wait for long, by sample
		since       time.Time
	)
	BeforeAll(func(ctx SpecContext) {
		t = newTeam(ctx, 1)
		t.live(ctx, "v1")
		ask, events = t.hook(ctx, "ask", v1alpha1.ModeSync, "hello"), t.hook(ctx, "events", v1alpha1.ModeInbound, "hello")
		held = t.hook(ctx, "held", v1alpha1.ModeSync, "resume")
		fronts = startFronts(ctx)
		since = time.Now()
		for sample, f := range fronts {
			Eventually(ctx, func() int { return f.post(ctx, ask, `{}`).Status }).
				WithTimeout(patience).WithPolling(2*interval).Should(Equal(http.StatusOK), "%s: the way in is there", sample)
			patient[sample] = waitLong(f, held)
		}
	}, NodeTimeout(5*time.Minute))

	each := func(text string, spec func(ctx SpecContext, f front), labels ...Labels) {
		for _, sample := range slices.Sorted(maps.Keys(samples)) {
			It(text+" ("+sample+")", labels, func(ctx SpecContext) { spec(ctx, fronts[sample]) }, SpecTimeout(3*time.Minute))
		}
	}

	each("webhooks are accepted and answered", func(ctx SpecContext, f front) {
		answer := f.post(ctx, ask, `{}`)
		Expect(answer.Result.Output).To(Equal("hello from v1"), "%s", answer.Body)
		accepted := f.post(ctx, events, `{}`)
		Expect(accepted.Status).To(Equal(http.StatusOK), "%s", accepted.Body)
		Expect(t.ends(ctx, accepted.RunIDs[0]).Status).To(Equal("completed"))
	})

	each("the largest body passes, and the gateway itself refuses one byte more", func(ctx SpecContext, f front) {
		largest := f.post(ctx, events, padded(largestBody))
		Expect(largest.Status).To(Equal(http.StatusOK), "%s", largest.Body)
		Expect(t.ends(ctx, largest.RunIDs[0]).Status).To(Equal("completed"))
		beyond := f.post(ctx, events, padded(largestBody+1))
		Expect(beyond.Status).To(Equal(http.StatusRequestEntityTooLarge), "%s", beyond.Body)
		Expect(string(beyond.Body)).To(ContainSubstring("request_too_large"))
	})

	each("a stream comes piece by piece", func(ctx SpecContext, f front) {
		key, body := newKey()
		response, err := f.send(ctx, held, strings.NewReader(body), http.Header{"Accept": {"text/event-stream"}})
		Expect(err).NotTo(HaveOccurred())
		defer response.Body.Close()
		Expect(response.Header.Get("Content-Type")).To(HavePrefix("text/event-stream"))
		lines := bufio.NewScanner(response.Body)
		Expect(lines.Scan()).To(BeTrue(), "the first piece comes while the agent is at work")
		Expect(lines.Text()).To(Equal("event: accepted"))
		t.asked(ctx, key, 3, 1)
		cluster.model.release(key)
		var last string
		for lines.Scan() {
			if event, is := strings.CutPrefix(lines.Text(), "event: "); is {
				last = event
			}
		}
		Expect(lines.Err()).NotTo(HaveOccurred())
		Expect(last).To(Equal("result"))
	})

	each("a caller who hangs up stops no run", func(ctx SpecContext, f front) {
		key, body := newKey()
		caller, hangUp := context.WithCancel(ctx)
		defer hangUp()
		gone := make(chan reply, 1)
		go func() { gone <- f.post(caller, held, body) }()
		t.asked(ctx, key, 3, 1)
		run := held.newest(ctx)
		hangUp()
		Expect((<-gone).Status).To(BeZero())
		Consistently(ctx, func() int { return cluster.model.left(key, 3) }).WithTimeout(2 * time.Second).Should(BeZero())
		cluster.model.release(key)
		Expect(t.ends(ctx, run).Status).To(Equal("completed"))
	})

	each("the REST API stands beside them, by TLS", func(ctx SpecContext, f front) {
		Eventually(ctx, func() (int, error) {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+f.host()+"/v1/projects/"+t.project.String()+"/environments", nil)
			if err != nil {
				return 0, err
			}
			request.Header.Set("Authorization", "Bearer "+t.key)
			response, err := f.client.Do(request)
			if err != nil {
				return 0, err
			}
			return response.StatusCode, response.Body.Close()
		}).WithTimeout(patience).WithPolling(10 * interval).Should(Equal(http.StatusOK))
	}, needsReplicas)

	// This spec runs last, because its callers have waited since the beginning.
	each("a caller that waits for long gets a response", func(ctx SpecContext, f front) {
		var answer reply
		Eventually(ctx, patient[f.sample]).WithTimeout(patience).Should(Receive(&answer))
		Expect(answer.Status).To(Equal(http.StatusOK), "%s", answer.Body)
		Expect(answer.Result.Output).To(Equal("All done."))
		say("%s: answered after %.0f s", f.sample, time.Since(since).Seconds())
	})
})

// waitLong calls a sync webhook whose agent takes longWait to answer.
func waitLong(f front, held *hook) chan reply {
	key, body := newKey()
	answered := make(chan reply, 1)
	go func() { answered <- f.post(context.Background(), held, body) }()
	time.AfterFunc(longWait, func() { cluster.model.release(key) })
	return answered
}

// newest returns the ID of the run of the connector's newest event.
func (h *hook) newest(ctx context.Context) (id string) {
	GinkgoHelper()
	status, answer := call(ctx, http.MethodGet, cluster.api+"/v1/projects/"+h.team.project.String()+"/connectors/"+h.id+"/runs?limit=1",
		http.Header{"Authorization": {"Bearer " + h.team.key}}, nil)
	Expect(status).To(Equal(http.StatusOK), "%s", answer)
	var page struct {
		Items []struct {
			RunIDs []string `json:"run_ids"`
		} `json:"items"`
	}
	Expect(json.Unmarshal(answer, &page)).To(Succeed())
	Expect(page.Items).To(HaveLen(1))
	Expect(page.Items[0].RunIDs).To(HaveLen(1))
	return page.Items[0].RunIDs[0]
}
