// SPDX-License-Identifier: Apache-2.0

package webhookgw

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// TestSigned_ProviderRetries: requests with the same ID are one event. An unsigned ID does not make
// another event of a replayed request.
func TestSigned_ProviderRetries(t *testing.T) {
	t.Parallel()
	s := newSigning(t, nil)
	const stripe, slack, plain = `{"id":"evt_1"}`, `{"type":"event_callback","event_id":"Ev1"}`, `{"a":1}`
	const form = "command=%2Fask&text=hello"
	long := strings.Repeat("x", 100<<10)
	large := `{"text":"` + long + `","id":"evt_1","event_id":"Ev1"}`
	urlencoded := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
	for name, c := range map[string]struct {
		scheme, first, second string
		headers, others       http.Header
		same                  bool
	}{
		"GitHub":                       {"github", plain, plain, http.Header{"X-Github-Delivery": {"1"}}, http.Header{"X-Github-Delivery": {"1"}}, true},
		"GitHub, another delivery":     {"github", plain, plain, http.Header{"X-Github-Delivery": {"1"}}, http.Header{"X-Github-Delivery": {"2"}}, false},
		"GitLab":                       {"gitlab", plain, plain, http.Header{"Idempotency-Key": {"1"}}, http.Header{"Idempotency-Key": {"1"}}, true},
		"GitLab, recursive hook":       {"gitlab", plain, plain, http.Header{"X-Gitlab-Event-Uuid": {"1"}}, http.Header{"X-Gitlab-Event-Uuid": {"1"}}, false},
		"Stripe":                       {"stripe", stripe, stripe, nil, http.Header{"Idempotency-Key": {"of somebody else"}}, true},
		"Stripe, another event":        {"stripe", stripe, `{"id":"evt_2"}`, nil, nil, false},
		"Slack":                        {"slack", slack, slack, nil, http.Header{"X-Slack-Retry-Num": {"1"}, "Webhook-Id": {"2"}}, true},
		"Slack, replayed":              {"slack", plain, plain, nil, http.Header{"Idempotency-Key": {"of somebody else"}}, true},
		"Slack, another one":           {"slack", plain, `{"a":2}`, nil, nil, false},
		"Slack, a form":                {"slack", form, form, urlencoded, http.Header{"Content-Type": urlencoded["Content-Type"], "Webhook-Id": {"2"}}, true},
		"Slack, another form":          {"slack", form, form + "2", urlencoded, urlencoded, false},
		"Slack, a large event":         {"slack", large, large + " ", nil, nil, true},
		"Slack, a large form":          {"slack", form + long, form + long, urlencoded, urlencoded, true},
		"Stripe, a large event":        {"stripe", large, large + " ", nil, nil, true},
		"Stripe, without an id":        {"stripe", plain, plain, nil, nil, true},
		"Standard Webhooks":            {"standard_webhooks", plain, plain, nil, http.Header{"Idempotency-Key": {"of somebody else"}}, true},
		"Standard Webhooks, other one": {"standard_webhooks", plain, `{"a":2}`, nil, nil, true}, // bodies are not compared
	} {
		t.Run(name, func(t *testing.T) {
			connector := s.connector("inbound", s.derives(c.scheme, 1), "hello")
			send := func(body string, headers http.Header) []any {
				got := s.post(s.gateway, connector.ID.String(), body, both(sign(t, c.scheme, s.generated(connector, 1), body, signedAt), func(r *http.Request) {
					for header, values := range headers {
						r.Header[header] = values
					}
				}))
				require.Equal(t, 200, got.status, "%v", got.body)
				return got.body["run_ids"].([]any)
			}
			first, second := send(c.first, c.headers), send(c.second, c.others)
			require.Equal(t, c.same, first[0] == second[0])
		})
	}
}

// TestSigned_TimeDistinguishesRequests: without an ID, a newly signed request is a new event. With
// an ID it is a duplicate.
func TestSigned_TimeDistinguishesRequests(t *testing.T) {
	t.Parallel()
	s := newSigning(t, nil)
	c := s.connector("inbound", s.derives("slack", 1), "hello")
	send := func(body, kind string, at time.Time) any {
		got := s.post(s.gateway, c.ID.String(), body, both(sign(t, "slack", s.generated(c, 1), body, at), set("Content-Type", kind)))
		require.Equal(t, 200, got.status, got.body)
		return got.body["run_ids"].([]any)[0]
	}
	const form, kind = "command=%2Fask&text=hello", "application/x-www-form-urlencoded"
	later := signedAt.Add(time.Second)
	require.NotEqual(t, send(form, kind, signedAt), send(form, kind, later))
	const event = `{"event_id":"Ev1"}`
	require.Equal(t, send(event, "application/json", signedAt), send(event, "application/json", later))
}

// TestHandshake_BeforeOtherChecks: before an agent is linked, and while there is no capacity for
// events.
func TestHandshake_BeforeOtherChecks(t *testing.T) {
	t.Parallel()
	s := newSigning(t, nil)
	c := s.connector("sync", s.derives("slack", 1))
	const body = `{"challenge":"3eZbrw1a","type":"url_verification"}`
	ask := func(c store.Connector, body, secret string) reply {
		return s.post(s.gateway, c.ID.String(), body, sign(t, "slack", secret, body, signedAt))
	}
	got := ask(c, body, s.generated(c, 1))
	require.Equal(t, 200, got.status, got.body)
	require.Equal(t, map[string]any{"challenge": "3eZbrw1a"}, got.body)
	require.Equal(t, 401, ask(c, body, "wrong").status)
	got = ask(c, `{"type":"event_callback","event_id":"Ev1"}`, s.generated(c, 1))
	require.Equal(t, []any{409, "no_agent"}, []any{got.status, got.body["code"]})
	disabled := s.connector("sync", func(c *store.Connector) {
		s.derives("slack", 1)(c)
		c.Enabled = false
	})
	require.Equal(t, "connector_disabled", ask(disabled, body, s.generated(disabled, 1)).body["code"])
}

// TestHandshake_ReturnsChallenge: if its signature is right. It is no event.
func TestHandshake_ReturnsChallenge(t *testing.T) {
	t.Parallel()
	s := newSigning(t, nil)
	c := s.connector("inbound", s.derives("slack", 1), "hello")
	other := s.connector("inbound", s.derives("github", 1), "hello")
	const body = `{"token":"x","challenge":"3eZbrw1a","type":"url_verification"}`
	got := s.post(s.gateway, c.ID.String(), body, sign(t, "slack", s.generated(c, 1), body, signedAt))
	require.Equal(t, 200, got.status)
	require.Equal(t, map[string]any{"challenge": "3eZbrw1a"}, got.body)
	runs, _, err := s.store.ListConnectorRuns(t.Context(), store.ConnectorRunQuery{Connector: c.Key(), Limit: 1})
	require.NoError(t, err)
	require.Empty(t, runs)
	got = s.post(s.gateway, c.ID.String(), body, sign(t, "slack", "whs_wrong", body, signedAt))
	require.Equal(t, 401, got.status)
	require.NotContains(t, got.body, "challenge")
	got = s.post(s.gateway, other.ID.String(), body, sign(t, "github", s.generated(other, 1), body, signedAt))
	require.EqualValues(t, 1, got.body["dispatched_to"], "a Slack request")
	form := "command=%2Fask&text=hello"
	got = s.post(s.gateway, c.ID.String(), form, both(sign(t, "slack", s.generated(c, 1), form, signedAt), set("Content-Type", "application/x-www-form-urlencoded")))
	require.EqualValues(t, 1, got.body["dispatched_to"], "a slash command")
}
