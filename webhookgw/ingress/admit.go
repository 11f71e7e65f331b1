// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/agentplatform/agentplatform/connector"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/webhookapi"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/webhookgw/signature"
)

// requestFacts is the information about a request before its body is read.
type requestFacts struct {
	secrets       []string
	header        http.Header
	now           time.Time
	contentLength int64 // -1 if unknown
	get           bool  // it is a GET
	async         bool  // the caller does not wait for a result, whatever the mode
	otherMethod   bool  // neither GET nor POST

	// read means that the body was read. If its signature was right, scheme and signer have the
	// scheme and the digest of the secret.
	read   bool
	scheme signature.Scheme
	signer []byte
	// handshake means that the request is a handshake, which is no event and needs no agent.
	handshake bool
}

func (h *Handler) factsOf(r *http.Request) requestFacts {
	return requestFacts{
		secrets: secretsOf(r), header: r.Header, now: h.opts.Now(), contentLength: lengthOf(r), get: r.Method == http.MethodGet, async: prefersAsync(r),
		otherMethod: r.Method != http.MethodPost && r.Method != http.MethodGet,
	}
}

// credential returns the secret of a connector that admits the request, or nil.
func (f requestFacts) credential(c *webhook) *store.AcceptedSecret {
	switch {
	case !c.authenticates:
		return nil
	case c.scheme == signature.GitLab:
		return matchingSecret(c.Connector.Secrets, []string{f.header.Get("X-Gitlab-Token")})
	case !c.signsBody():
		return matchingSecret(c.Connector.Secrets, f.secrets)
	}
	for i, s := range c.Connector.Secrets {
		if f.signer != nil && bytes.Equal(s.SHA256, f.signer) {
			return &c.Connector.Secrets[i]
		}
	}
	return nil
}

// lengthOf returns the length of the body, or -1 if it is unknown. The body of a GET is not read.
func lengthOf(r *http.Request) int64 {
	if r.Method == http.MethodGet {
		return 0
	}
	return r.ContentLength
}

// secretsOf returns the values at the three places of a secret. A place can have another use: the
// sender's own Authorization header does not invalidate a secret at another place.
func secretsOf(r *http.Request) []string {
	var found []string
	if s := r.Header.Get("X-Service-Secret"); s != "" {
		found = append(found, s)
	}
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		if s := strings.TrimSpace(token); s != "" {
			found = append(found, s)
		}
	}
	if s := r.URL.Query().Get("secret"); s != "" {
		found = append(found, s)
	}
	return found
}

var notFound = httpserver.NewProblem(http.StatusNotFound, httpserver.CodeWebhookNotFound,
	"No webhook has this URL. Compare it with the URL of the connector.")

var otherMethod = func() httpserver.Problem {
	p := httpserver.NewProblem(http.StatusMethodNotAllowed, httpserver.CodeMethodNotAllowed, "A webhook accepts GET and POST.")
	p.Allow = "GET, POST"
	return p
}()

// postOnly rejects other methods for connectors with a provider signature. Providers only send
// POST, and sign the body.
var postOnly = func() httpserver.Problem {
	p := httpserver.NewProblem(http.StatusMethodNotAllowed, httpserver.CodeMethodNotAllowed, "A webhook with a provider's signature accepts POST only.")
	p.Allow = http.MethodPost
	return p
}()

// errUnsigned is the response for every error in a provider's signature or token.
var errUnsigned = httpserver.NewProblem(http.StatusUnauthorized, httpserver.CodeInvalidSignature,
	"The provider's signature or token is missing, wrong, or older than five minutes. Compare the provider's secret with the connector's.")

// admitRequest checks everything except the body, in the order of the contract: method, mode, secret,
// state, size. It returns nil if the request is admitted. If callers sign the body, nil means that
// the body can be read.
func admitRequest(route *webhook, f requestFacts) *httpserver.Problem {
	c := &route.Connector
	refuse := func(status int, code httpserver.Code, detail string) *httpserver.Problem {
		p := httpserver.NewProblem(status, code, detail)
		return &p
	}
	switch {
	case f.otherMethod:
		return &otherMethod
	case !route.kind.HasCallers() && !route.kind.StartsRuns():
		return refuse(http.StatusBadRequest, httpserver.CodeOutboundOnly, noRequests(route.kind)+" connector.")
	case !route.kind.HasCallers():
		return refuse(http.StatusBadRequest, httpserver.CodeNoWebhook, noRequests(route.kind)+" webhook.")
	case route.authenticates && route.scheme != "" && f.get:
		return &postOnly
	case route.signsBody() && !f.read:
		return admitBody(route, f)
	case route.signsBody() && f.scheme != route.scheme:
		return &errSecretChanged
	case route.authenticates && route.scheme != "" && f.credential(route) == nil:
		return &errUnsigned
	case route.authenticates && f.credential(route) == nil:
		return refuse(http.StatusUnauthorized, httpserver.CodeInvalidSecret, "The secret is missing or wrong. Send the connector's secret in the header X-Service-Secret.")
	case c.EnvironmentGone:
		return refuse(http.StatusConflict, httpserver.CodeEnvironmentGone, "The environment of this connector was deleted. The connector accepts no more requests.")
	case c.Retired:
		return refuse(http.StatusConflict, httpserver.CodeConnectorRetired, "This connector was removed from the project's code and accepts no more requests.")
	case !c.Enabled:
		return refuse(http.StatusConflict, httpserver.CodeConnectorDisabled, "This connector is disabled. Enable it, then send the request again.")
	case webhookapi.Hops(f.header) > store.MaxHops:
		return refuse(http.StatusUnprocessableEntity, httpserver.CodeTooManyHops,
			fmt.Sprintf("Delivery loop: more than %d hops. Remove a connector link from the loop.", store.MaxHops))
	case f.contentLength > MaxBody:
		return refuse(http.StatusRequestEntityTooLarge, httpserver.CodeRequestTooLarge, tooLargeText)
	case route.kind.Answers() && len(route.Links) == 0 && !f.handshake:
		return refuse(http.StatusConflict, httpserver.CodeNoAgent, "No agent is linked to this connector. Link one, then send the request again.")
	case route.kind.Answers() && !route.Live && !f.handshake && !f.async:
		return refuse(http.StatusConflict, httpserver.CodeNoLiveDeployment,
			"No deployment is live in the environment of this connector, so no agent can answer. Deploy one, then send the request again.")
	}
	return nil
}

// noRequests returns why a kind takes no requests, and the kinds that do.
func noRequests(k connector.Kind) string {
	return fmt.Sprintf("This connector %s and accepts no requests. Call an %s", cmp.Or(k.Does(), "has an unknown mode"), connector.NamesOf(connector.Kind.HasCallers, "or"))
}

// admitBody decides whether the body of a signed request is read. A body that cannot have a right
// signature is not read.
func admitBody(c *webhook, f requestFacts) *httpserver.Problem {
	if _, err := signature.New(c.scheme, f.header, f.now); err != nil {
		return &errUnsigned
	}
	if f.contentLength > MaxBody {
		p := httpserver.NewProblem(http.StatusRequestEntityTooLarge, httpserver.CodeRequestTooLarge, tooLargeText)
		return &p
	}
	return nil
}

const tooLargeText = "The request is larger than 16 MiB."

// matchingSecret returns the entry that accepts one of a request's secrets, or nil. If several match, it
// returns the one with the latest expiry. Valid entries were selected by the database's clock when
// the route was read, and are checked again at the commit, because the gateway's clock may be
// wrong. The comparison takes constant time: it depends only on the numbers of accepted and sent
// secrets, not on their values.
func matchingSecret(secrets []store.AcceptedSecret, sent []string) *store.AcceptedSecret {
	var match *store.AcceptedSecret
	for _, secret := range sent {
		digest := sha256.Sum256([]byte(secret))
		at := -1
		for i, s := range secrets {
			at = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(digest[:], s.SHA256), i, at)
		}
		if at >= 0 && (match == nil || expiresLater(secrets[at], *match)) {
			match = &secrets[at]
		}
	}
	return match
}

// expiresLater reports whether a expires later than b.
func expiresLater(a, b store.AcceptedSecret) bool {
	return b.NotAfter != nil && (a.NotAfter == nil || a.NotAfter.After(*b.NotAfter))
}
