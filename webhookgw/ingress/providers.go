// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/webhookapi"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/webhookgw/signature"
)

// challenge is the answer to a handshake, by which a provider finds out whether a webhook
// is there. It is an error, for no event comes of it.
type challenge string

// Error implements error.
func (challenge) Error() string { return "the request is a handshake" }

// handshake is the challenge of a signed request that is one, nil of others.
func handshake(c store.Connector, in input) error {
	if c.Signature != string(signature.Slack) || in.inline == nil {
		return nil
	}
	var body struct {
		Type      string `json:"type"`
		Challenge string `json:"challenge"`
	}
	if json.Unmarshal(in.inline, &body) != nil || body.Type != "url_verification" || len(body.Challenge) > maxChallenge {
		return nil
	}
	return challenge(body.Challenge)
}

// answerHandshake echoes a challenge.
func answerHandshake(w http.ResponseWriter, c challenge) {
	httpserver.WriteJSON(w, http.StatusOK, webhookapi.Handshake{Challenge: string(c)})
}

// keyFor reads the key of a request to a connector. Where the provider signs an id, it is
// that one and no header: whoever repeats a request that he has seen cannot make another
// one of it.
func keyFor(c store.Connector, r *http.Request) (requestKey, error) {
	switch signature.Scheme(c.Signature) {
	case signature.StandardWebhooks:
		return keyNamed("webhook-id", r.Header.Get("Webhook-Id"), false)
	case signature.Stripe, signature.Slack:
		return requestKey{}, nil // it stands in the body: see bodyKey
	case signature.GitHub:
		if r.Header.Get("Idempotency-Key") == "" {
			return keyNamed("x-github-delivery", r.Header.Get("X-Github-Delivery"), false)
		}
	}
	return keyOfRequest(r)
}

// bodyKey is the key of a signed event, by the id that its provider has given it; none of
// a body that is not held, or has no such id.
func bodyKey(c store.Connector, in input) (key requestKey, found bool) {
	var (
		body struct {
			ID      string `json:"id"`
			EventID string `json:"event_id"`
		}
		source, id string
	)
	scheme := signature.Scheme(c.Signature)
	if scheme != signature.Stripe && scheme != signature.Slack || json.Unmarshal(in.inline, &body) != nil {
		return key, false
	}
	switch scheme {
	case signature.Stripe:
		source, id = "stripe", body.ID
	case signature.Slack:
		source, id = "slack", body.EventID
	}
	key, err := keyNamed(source, id, false)
	return key, err == nil && key.name != ""
}

// contextHeaders are the headers of a request that the connector's runs see: text, each as
// long as it may be, several of one name joined as HTTP joins them.
func contextHeaders(c store.Connector, r *http.Request) map[string]string {
	var out map[string]string
	for _, name := range c.ContextHeaders {
		values := r.Header.Values(name)
		if name == "host" {
			values = []string{r.Host} // which is no header to net/http
		}
		if len(values) == 0 || len(out) == store.MaxContextHeaders {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		value := strings.ToValidUTF8(strings.Join(values, ", "), "\uFFFD")
		if len(value) > store.MaxHeaderValue {
			value = strings.ToValidUTF8(value[:store.MaxHeaderValue], "")
		}
		out[name] = value
	}
	return out
}
