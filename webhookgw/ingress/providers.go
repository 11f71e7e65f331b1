// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
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

// mayShake says whether a request may be a handshake, by its headers.
func mayShake(c store.Connector, r *http.Request) bool {
	if c.Signature != string(signature.Slack) || !signs(c) || lengthOf(r) > maxHandshake || lengthOf(r) < 0 {
		return false
	}
	media, err := mediaOf(r)
	return err == nil && media == mediaJSON
}

// handshake is the challenge of a signed request that is a handshake. A body of more than
// maxHandshake is none.
func handshake(c store.Connector, in []byte) (asked challenge, shakes bool) {
	if c.Signature != string(signature.Slack) || len(in) > maxHandshake {
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

// answerHandshake echoes a challenge.
func answerHandshake(w http.ResponseWriter, c challenge) {
	httpserver.WriteJSON(w, http.StatusOK, webhookapi.Handshake{Challenge: string(c)})
}

// keyFor reads the key of a request to a connector. Where the provider signs an id, it is
// that one and no header: whoever repeats a request that he has seen cannot make another
// one of it. Ids in a body are known of one that was judged.
func keyFor(c store.Connector, r *http.Request, judged *signed) (requestKey, error) {
	switch scheme := signature.Scheme(c.Signature); scheme {
	case signature.StandardWebhooks:
		return keyNamed("webhook-id", r.Header.Get("Webhook-Id"), false)
	case signature.Stripe, signature.Slack:
		if judged == nil {
			return requestKey{}, nil
		}
		return keyOfSigned(scheme, judged.body(), judged.proof), nil
	case signature.GitHub:
		if r.Header.Get("Idempotency-Key") == "" {
			return keyNamed("x-github-delivery", r.Header.Get("X-Github-Delivery"), false)
		}
	}
	return keyOfRequest(r)
}

// eventIDs are the fields of a JSON body that providers put an event's id into.
var eventIDs = map[signature.Scheme]string{signature.Stripe: "id", signature.Slack: "event_id"}

// keyOfSigned is the key of a body that was signed with a time: the id that its provider has
// given its event, by which the provider's own repetitions are known too. A body without
// one, such as Slack's forms, is known by its signature, for as long as that is accepted:
// who has seen it and sends it again starts nothing.
func keyOfSigned(scheme signature.Scheme, body io.Reader, proof []byte) requestKey {
	name := eventIDs[scheme]
	id := newField(name)
	if _, err := io.Copy(id, body); err == nil {
		if key, err := keyNamed(string(scheme), id.text(), false); err == nil && key.name != "" {
			return key
		}
	}
	sum := sha256.Sum256(proof) // what is stored is no signature
	return requestKey{name: "signed:" + hex.EncodeToString(sum[:]), ttl: signatureTTL}
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
