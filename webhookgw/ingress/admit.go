// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/webhookapi"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/webhookgw/signature"
)

// Modes of connectors that take requests.
const (
	modeInbound = "inbound"
	modeSync    = "sync"
)

// facts are what is known of a request before its body is read.
type facts struct {
	secrets       []string
	header        http.Header
	now           time.Time
	contentLength int64 // -1 when unknown
	get           bool  // it is a GET
	async         bool  // its caller waits for no result, whatever the mode
	otherMethod   bool  // it is neither GET nor POST

	// read says that the body was read; where it was signed, and rightly so, by which
	// scheme, and the digest of which secret.
	read   bool
	scheme string
	signer []byte
	// handshake says that it is one, which is no event and needs no agent.
	handshake bool
}

func (h *Handler) factsOf(r *http.Request) facts {
	return facts{
		secrets: secretsOf(r), header: r.Header, now: h.opts.Now(), contentLength: lengthOf(r), get: r.Method == http.MethodGet, async: prefersAsync(r),
		otherMethod: r.Method != http.MethodPost && r.Method != http.MethodGet,
	}
}

// credential is the secret of a connector by which a request was, or would be, let in; nil
// where there is none.
func (f facts) credential(c store.Connector) *store.AcceptedSecret {
	switch {
	case !c.RequireAuthentication:
		return nil
	case c.Signature == string(signature.GitLab):
		return accepted(c.Secrets, []string{f.header.Get("X-Gitlab-Token")})
	case !signs(c):
		return accepted(c.Secrets, f.secrets)
	}
	for i, s := range c.Secrets {
		if f.signer != nil && bytes.Equal(s.SHA256, f.signer) {
			return &c.Secrets[i]
		}
	}
	return nil
}

// lengthOf is how long the body is, -1 when unknown. That of a GET is not read.
func lengthOf(r *http.Request) int64 {
	if r.Method == http.MethodGet {
		return 0
	}
	return r.ContentLength
}

// secretsOf finds what stands in the three places of a secret, which others use
// too: a sender's own Authorization takes nothing from a secret elsewhere.
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
	p := httpserver.NewProblem(http.StatusMethodNotAllowed, httpserver.CodeMethodNotAllowed, "A webhook takes GET and POST.")
	p.Allow = "GET, POST"
	return p
}()

// postOnly is for connectors of providers, who send POSTs alone and sign their bodies.
var postOnly = func() httpserver.Problem {
	p := httpserver.NewProblem(http.StatusMethodNotAllowed, httpserver.CodeMethodNotAllowed, "A webhook with a provider's signature takes POST.")
	p.Allow = http.MethodPost
	return p
}()

// errUnsigned is the one answer to all that is wrong with a provider's signature or token.
var errUnsigned = httpserver.NewProblem(http.StatusUnauthorized, httpserver.CodeInvalidSignature,
	"The provider's signature or token is missing, wrong, or older than five minutes. Compare the provider's secret with the connector's.")

// admit decides on a request by all but its body, in the order of the
// contract: method, mode, secret, state, size. Nil lets it in; with a body that is signed,
// as far as to read that.
func admit(route store.Route, f facts) *httpserver.Problem {
	c := route.Connector
	refuse := func(status int, code httpserver.Code, detail string) *httpserver.Problem {
		p := httpserver.NewProblem(status, code, detail)
		return &p
	}
	switch {
	case f.otherMethod:
		return &otherMethod
	case c.Type == store.TypeCron:
		return refuse(http.StatusBadRequest, httpserver.CodeNoWebhook, "This connector runs by its schedule and takes no requests. Call an inbound or sync webhook.")
	case c.Type != "webhook" || (c.Mode != modeInbound && c.Mode != modeSync):
		return refuse(http.StatusBadRequest, httpserver.CodeOutboundOnly, "This connector sends results and takes no requests. Call an inbound or sync connector.")
	case c.RequireAuthentication && c.Signature != "" && f.get:
		return &postOnly
	case signs(c) && !f.read:
		return admitBody(c, f)
	case signs(c) && f.scheme != c.Signature:
		return &errSecretChanged
	case c.RequireAuthentication && c.Signature != "" && f.credential(c) == nil:
		return &errUnsigned
	case c.RequireAuthentication && f.credential(c) == nil:
		return refuse(http.StatusUnauthorized, httpserver.CodeInvalidSecret, "The secret is missing or wrong. Send the connector's secret in the header X-Service-Secret.")
	case c.EnvironmentGone:
		return refuse(http.StatusConflict, httpserver.CodeEnvironmentGone, "The environment of this connector was deleted. The connector takes no more requests.")
	case c.Retired:
		return refuse(http.StatusConflict, httpserver.CodeConnectorRetired, "This connector was removed from the project's code and takes no more requests.")
	case !c.Enabled:
		return refuse(http.StatusConflict, httpserver.CodeConnectorDisabled, "This connector is disabled. Enable it, then send the request again.")
	case webhookapi.Hops(f.header) > store.MaxHops:
		return refuse(http.StatusUnprocessableEntity, httpserver.CodeTooManyHops,
			fmt.Sprintf("The request is a delivery that has come by more than %d others: agents send to each other in a circle. End it where it begins.", store.MaxHops))
	case f.contentLength > MaxBody:
		return refuse(http.StatusRequestEntityTooLarge, httpserver.CodeRequestTooLarge, tooLarge)
	case c.Mode == modeSync && len(route.Links) == 0 && !f.handshake:
		return refuse(http.StatusConflict, httpserver.CodeNoAgent, "No agent is linked to this connector. Link one, then send the request again.")
	case c.Mode == modeSync && !route.Live && !f.handshake && !f.async:
		return refuse(http.StatusConflict, httpserver.CodeNoLiveDeployment,
			"No deployment is live in the environment of this connector, so no agent can answer. Deploy one, then send the request again.")
	}
	return nil
}

// admitBody decides whether the body of a request is read, by which the provider's
// signature is judged: of one that cannot be right it is not.
func admitBody(c store.Connector, f facts) *httpserver.Problem {
	if _, err := signature.New(signature.Scheme(c.Signature), f.header, f.now); err != nil {
		return &errUnsigned
	}
	if f.contentLength > MaxBody {
		p := httpserver.NewProblem(http.StatusRequestEntityTooLarge, httpserver.CodeRequestTooLarge, tooLarge)
		return &p
	}
	return nil
}

const tooLarge = "The request is larger than 16 MiB."

// accepted is the entry that accepts one of a request's secrets, nil when none
// does; of several the one that holds longest. Which ones are valid was decided
// when the route was read, and is again when the request is committed, both by
// the database's clock: that of the gateway may be wrong. It compares in constant
// time, and takes the same time for each number of accepted secrets and of places
// that hold one, whatever the request's are.
func accepted(secrets []store.AcceptedSecret, sent []string) *store.AcceptedSecret {
	var match *store.AcceptedSecret
	for _, secret := range sent {
		digest := sha256.Sum256([]byte(secret))
		at := -1
		for i, s := range secrets {
			at = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(digest[:], s.SHA256), i, at)
		}
		if at >= 0 && (match == nil || outlasts(secrets[at], *match)) {
			match = &secrets[at]
		}
	}
	return match
}

// outlasts says whether a is accepted for longer than b.
func outlasts(a, b store.AcceptedSecret) bool {
	return b.NotAfter != nil && (a.NotAfter == nil || a.NotAfter.After(*b.NotAfter))
}
