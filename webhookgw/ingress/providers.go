// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/agentplatform/agentplatform/internal/excerpt"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/webhookapi"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/webhookgw/signature"
)

// challenge is the response to a handshake, which providers use to check a webhook URL. It is an
// error, because a handshake is no event.
type challenge string

func (challenge) Error() string { return "the request is a handshake" }

// canBeHandshake reports whether a request can be a handshake, by its headers.
func canBeHandshake(c *webhook, r *http.Request) bool {
	if c.scheme != signature.Slack || !c.signsBody() || lengthOf(r) > maxHandshake || lengthOf(r) < 0 {
		return false
	}
	media, err := mediaOf(r)
	return err == nil && media == mediaJSON
}

// handshake returns the challenge of a signed request that is a handshake. A body of more than
// maxHandshake is none.
func handshake(c *webhook, in []byte) (asked challenge, shakes bool) {
	if c.scheme != signature.Slack || len(in) > maxHandshake {
		return "", false
	}
	var body struct {
		Type      string `json:"type"`
		Challenge string `json:"challenge"`
	}
	if json.Unmarshal(in, &body) != nil || body.Type != "url_verification" || len(body.Challenge) > maxChallenge {
		return "", false
	}
	return challenge(body.Challenge), true
}

// answerHandshake returns the challenge to the provider.
func answerHandshake(w http.ResponseWriter, c challenge) {
	httpserver.WriteJSON(w, http.StatusOK, webhookapi.Handshake{Challenge: string(c)})
}

// requestKeyOf returns the idempotency key of a request. If the provider signs an ID, the ID is the key
// and headers are ignored. So a replayed request cannot become another event. IDs in a body are
// only used if the body was verified.
func requestKeyOf(c *webhook, r *http.Request, judged *signedBody) (requestKey, error) {
	switch c.scheme {
	case signature.StandardWebhooks:
		return keyNamed("webhook-id", r.Header.Get("Webhook-Id"), false)
	case signature.Stripe, signature.Slack:
		if judged == nil {
			return requestKey{}, nil
		}
		return keyOfSigned(c.scheme, judged.bodyReader(), judged.proof), nil
	case signature.GitHub:
		if r.Header.Get("Idempotency-Key") == "" {
			return keyNamed("x-github-delivery", r.Header.Get("X-Github-Delivery"), false)
		}
	}
	return keyOfRequest(r)
}

// eventIDs has the JSON fields with the event ID of each provider.
var eventIDs = map[signature.Scheme]string{signature.Stripe: "id", signature.Slack: "event_id"}

// keyOfSigned returns the key of a body that was signed with a time: the event ID of the provider,
// which also detects the provider's retries. A body without an ID, such as Slack's forms, uses its
// signature as key, for as long as the signature is accepted. So a replayed request starts nothing.
func keyOfSigned(scheme signature.Scheme, body io.Reader, proof []byte) requestKey {
	name := eventIDs[scheme]
	id := newFieldScanner(name)
	if _, err := io.Copy(id, body); err == nil {
		if key, err := keyNamed(string(scheme), id.valueText(), false); err == nil && key.name != "" {
			return key
		}
	}
	sum := sha256.Sum256(proof) // no signature is stored
	return requestKey{name: "signed:" + hex.EncodeToString(sum[:]), ttl: signatureTTL}
}

// contextHeaders returns the headers that the connector's runs see. They are valid UTF-8 and
// truncated. Several headers of the same name are joined as in HTTP.
func contextHeaders(c *webhook, r *http.Request) map[string]string {
	var out map[string]string
	for _, name := range c.contextHeaders {
		values := r.Header.Values(name)
		if name == "host" {
			values = []string{r.Host} // net/http does not list it as a header
		}
		if len(values) == 0 || len(out) == store.MaxContextHeaders {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		value := strings.ToValidUTF8(strings.Join(values, ", "), "\uFFFD")
		out[name] = excerpt.Of(value, store.MaxHeaderValue, "")
	}
	return out
}
