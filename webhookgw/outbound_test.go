// SPDX-License-Identifier: Apache-2.0

package webhookgw

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/google/uuid"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/internal/tracecontext"
	"github.com/agentplatform/agentplatform/internal/webhookapi"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/replay"
)

// arrival is a delivery at its destination.
type arrival struct {
	headers http.Header
	body    []byte
}

// sending returns a gateway with the platform's keys and an outbound connector, its deliveries, and
// their verifier.
func sending(t *testing.T) (b *bundle, out store.Connector, arrived <-chan arrival, verify *standardwebhooks.Webhook) {
	t.Helper()
	arrivals := make(chan arrival, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			arrivals <- arrival{r.Header.Clone(), body}
		}
	}))
	t.Cleanup(receiver.Close)
	ring, err := secrets.NewRing()
	require.NoError(t, err)
	keys := &secrets.Keys{}
	derivation := ring.IDs(secrets.Derivation)[0]
	require.NoError(t, keys.Set(ring, []string{derivation, ring.IDs(secrets.Sealing)[0]}))
	b = setupWith(t, func(o *Options) {
		o.Keys = keys
		o.Guard = egress.New(egress.Rules{Allowed: map[egress.Purpose][]netip.Prefix{egress.Webhook: {netip.MustParsePrefix("127.0.0.0/8")}}})
	})
	out = b.connector("outbound", func(c *store.Connector) {
		c.Config = json.RawMessage(`{"url":"${URL}"}`) // as for a connector of a repository: its resolved value is sealed
		c.SecretKey, c.SecretVersion = derivation, 2
		var err error
		c.Sealed, c.SealedKey, err = keys.Seal(secrets.CredentialsField(c.ProjectID, c.ID), fmt.Appendf(nil, `{"headers":{"X-Team":"payments"},"url":%q}`, receiver.URL))
		require.NoError(t, err)
	})
	secret, err := keys.SigningSecret(derivation, secrets.Generated{ProjectID: b.project, ConnectorID: out.ID, Version: 2})
	require.NoError(t, err)
	verify, err = standardwebhooks.NewWebhook(secret)
	require.NoError(t, err)
	return b, out, arrivals, verify
}

// sendResults links an outbound connector to the agent "hello".
func (b *bundle) sendResults(out store.Connector) {
	require.NoError(b.t, b.store.PutLink(b.t.Context(), store.Link{
		Ref: ref("ConnectorLink", uuid.NewString(), 1), ID: uuid.New(), ProjectID: b.project, ConnectorID: out.ID,
		AgentName: "hello", Outbound: &store.OutboundPolicy{Mode: store.LinkAutomatic}, ObjectCreatedAt: time.Unix(1, 0),
	}))
}

// TestOutbound_DeliversResult: from the request to the signed delivery, with one gateway.
func TestOutbound_DeliversResult(t *testing.T) {
	t.Parallel()
	b, out, arrived, verify := sending(t)
	b.sendResults(out)
	in := b.connector("sync", nil, "hello")
	b.runner(func(run dispatchapi.Run) dispatchapi.CompleteRequest {
		return dispatchapi.CompleteRequest{Token: run.Token, Status: string(store.RunCompleted), Output: "42"}
	})
	answer := b.post(b.gateway, in.ID.String(), `{}`, nil)
	require.Equal(t, http.StatusOK, answer.status)

	got := <-arrived
	var body map[string]any
	require.NoError(t, json.Unmarshal(got.body, &body))
	require.Equal(t, answer.body["result"].(map[string]any)["run_id"], body["run_id"])
	require.Equal(t, "42", body["output"])
	require.Equal(t, "payments", got.headers.Get("X-Team"))
	require.NoError(t, verify.Verify(got.body, got.headers))
}

// A valid traceparent of a webhook reaches the runner and the destination. An invalid one is ignored.
func TestOutbound_ContinuesTrace(t *testing.T) {
	t.Parallel()
	b, out, arrived, _ := sending(t)
	b.sendResults(out)
	in := b.connector("sync", nil, "hello")
	claimed := make(chan string, 1)
	b.runner(func(run dispatchapi.Run) dispatchapi.CompleteRequest {
		claimed <- run.Traceparent
		return dispatchapi.CompleteRequest{Token: run.Token, Status: string(store.RunCompleted), Output: "42"}
	})
	const valid = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for name, row := range map[string]struct {
		sent []string
		kept string
	}{
		"valid": {[]string{valid}, valid}, "none": {nil, ""}, "version 01": {[]string{"01" + valid[2:]}, ""}, "twice": {[]string{valid, valid}, ""},
		"list": {[]string{valid + ", x-injected: 1"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			answer := b.post(b.gateway, in.ID.String(), `{}`, func(r *http.Request) {
				r.Header[tracecontext.Header] = row.sent
				r.Header.Set("Tracestate", "vendor=1")
			})
			require.Equal(t, http.StatusOK, answer.status)
			require.Equal(t, row.kept, <-claimed)
			got := <-arrived
			run := answer.body["result"].(map[string]any)["run_id"].(string)
			require.Equal(t, []string{tracecontext.TraceparentOf(row.kept, run, "")}, got.headers.Values(tracecontext.Header))
			require.Empty(t, got.headers.Values("Tracestate"))
		})
	}
}

// The trace of an ended run reaches the collector of its project, from the webhook to OTLP.
func TestTelemetry_ExportsRun(t *testing.T) {
	t.Parallel()
	got := make(chan arrival, 1)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if body, err := gzip.NewReader(r.Body); err == nil {
			text, _ := io.ReadAll(body)
			got <- arrival{r.Header.Clone(), text}
		}
	}))
	t.Cleanup(collector.Close)
	b := setupWith(t, func(o *Options) {
		ring, err := secrets.NewRing()
		require.NoError(t, err)
		keys := &secrets.Keys{}
		require.NoError(t, keys.Set(ring, []string{ring.IDs(secrets.Derivation)[0], ring.IDs(secrets.Sealing)[0]}))
		o.Keys = keys
		o.Guard = egress.New(egress.Rules{Allowed: map[egress.Purpose][]netip.Prefix{egress.Telemetry: {netip.MustParsePrefix("127.0.0.0/8")}}})
	})
	project := store.Project{Ref: ref("Project", "project", 2), ID: b.project, Telemetry: &store.Telemetry{Endpoint: collector.URL, SamplePercent: 100}}
	require.NoError(t, b.store.PutProject(t.Context(), project))
	in := b.connector("sync", nil, "hello")
	b.runner(func(run dispatchapi.Run) dispatchapi.CompleteRequest {
		return dispatchapi.CompleteRequest{Token: run.Token, Status: string(store.RunCompleted), Output: "42"}
	})
	const traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	answer := b.post(b.gateway, in.ID.String(), `{}`, func(r *http.Request) { r.Header.Set(tracecontext.Header, traceparent) })
	require.Equal(t, http.StatusOK, answer.status)
	sent := <-got
	parent, _ := tracecontext.ParseTraceparent(traceparent)
	require.Contains(t, string(sent.body), string(parent.Trace[:]))
	require.Contains(t, string(sent.body), string(parent.Span[:]))
	require.Contains(t, string(sent.body), answer.body["result"].(map[string]any)["run_id"])
}

// TestOutbound_DeliversTest: with the headers and the signature of other deliveries, even without
// an agent.
func TestOutbound_DeliversTest(t *testing.T) {
	t.Parallel()
	b, out, arrived, verify := sending(t)
	payload, err := json.Marshal(webhookapi.Example(time.Unix(1, 0)))
	require.NoError(t, err)
	a, err := replay.Test(t.Context(), b.store, store.TestDelivery{Connector: out.Key(), Payload: payload})
	require.NoError(t, err)
	got := <-arrived
	require.JSONEq(t, `{"type":"test","run_id":"00000000-0000-0000-0000-000000000000","agent_name":"example","status":"completed",
		"output":"This is a test delivery: no agent has run.","finish_reason":null,"error":null,"started_at":"1970-01-01T00:00:01Z","ended_at":"1970-01-01T00:00:01Z",
		"token_usage":{"input_tokens":0,"output_tokens":0,"thinking_tokens":0,"cached_input_tokens":0,"total_tokens":0}}`, string(got.body))
	require.Equal(t, "test", got.headers.Get("X-Service-Event"))
	require.Equal(t, a.ConnectorRunID.String(), got.headers.Get("X-Service-Delivery"))
	require.Equal(t, "1", got.headers.Get(webhookapi.HopsHeader))
	require.Empty(t, got.headers.Get(tracecontext.Header), "no run causes it")
	require.Equal(t, "payments", got.headers.Get("X-Team"))
	require.NoError(t, verify.Verify(got.body, got.headers))
}
