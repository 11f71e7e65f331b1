// SPDX-License-Identifier: Apache-2.0

package webhookgw

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

// signedAt is the time of the gateways in tests of signed webhooks.
var signedAt = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// signing is a setup with the platform's keys.
type signing struct {
	*bundle
	keys       *secrets.Keys
	derivation string
}

func newSigning(t *testing.T, edit func(*Options)) *signing {
	t.Helper()
	ring, err := secrets.NewRing()
	require.NoError(t, err)
	s := &signing{keys: &secrets.Keys{}, derivation: ring.IDs(secrets.Derivation)[0]}
	require.NoError(t, s.keys.Set(ring, []string{s.derivation, ring.IDs(secrets.Sealing)[0]}))
	s.bundle = setupWith(t, func(o *Options) {
		o.Keys, o.Guard, o.Now = s.keys, egress.New(egress.Rules{}), func() time.Time { return signedAt }
		if edit != nil {
			edit(o)
		}
	})
	return s
}

// generated returns a version of a connector's generated secret.
func (s *signing) generated(c store.Connector, version int64) string {
	secret, err := s.keys.Secret(s.derivation, secrets.Generated{
		ProjectID: c.ProjectID, ConnectorID: c.ID, Version: version, Standard: strings.Contains(string(c.Config), "standard_webhooks"),
	})
	require.NoError(s.t, err)
	return secret
}

// derives gives a connector a version of the generated secret.
func (s *signing) derives(scheme string, version int64) func(*store.Connector) {
	return func(c *store.Connector) {
		c.Config, c.SecretVersion, c.SecretKey, c.SecretGracePeriod = authenticatedBy(scheme), version, s.derivation, time.Hour
		c.SecretDigest = secrets.Digest(s.generated(*c, version))
	}
}

// brings gives a connector the user's own secrets, newest first.
func (s *signing) brings(scheme string, values ...string) func(*store.Connector) {
	return func(c *store.Connector) {
		plain, err := secrets.Credentials{Secrets: values}.JSON()
		require.NoError(s.t, err)
		c.Sealed, c.SealedKey, err = s.keys.Seal(secrets.CredentialsField(c.ProjectID, c.ID), plain)
		require.NoError(s.t, err)
		c.Config, c.SecretDigest, c.SecretGracePeriod = authenticatedBy(scheme), secrets.Digest(values[0]), time.Hour
	}
}

// authenticatedBy returns the settings of a webhook whose callers sign by a scheme, or send the secret.
func authenticatedBy(scheme string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"authentication":%q}`, scheme))
}

func macOf(secret, text string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil))
}

// sign signs a request like the provider, at a given time.
func sign(t *testing.T, scheme, secret, body string, at time.Time) func(*http.Request) {
	t.Helper()
	seconds := strconv.FormatInt(at.Unix(), 10)
	headers := map[string]string{}
	switch scheme {
	case "github":
		headers["X-Hub-Signature-256"] = "sha256=" + macOf(secret, body)
	case "gitlab":
		headers["X-Gitlab-Token"] = secret
	case "stripe":
		headers["Stripe-Signature"] = "t=" + seconds + ",v1=" + macOf(secret, seconds+"."+body)
	case "slack":
		headers["X-Slack-Request-Timestamp"] = seconds
		headers["X-Slack-Signature"] = "v0=" + macOf(secret, "v0:"+seconds+":"+body)
	case "standard_webhooks":
		webhook, err := standardwebhooks.NewWebhook(secret)
		require.NoError(t, err)
		headers["Webhook-Id"], headers["Webhook-Timestamp"] = "msg_1", seconds
		headers["Webhook-Signature"], err = webhook.Sign("msg_1", at, []byte(body))
		require.NoError(t, err)
	}
	return func(r *http.Request) {
		r.Header.Del("X-Service-Secret")
		for name, value := range headers {
			r.Header.Set(name, value)
		}
	}
}

// signatures has all schemes, and whether they sign a timestamp.
var signatures = map[string]bool{"github": false, "gitlab": false, "stripe": true, "slack": true, "standard_webhooks": true}

// both combines two edits of a request.
func both(edits ...func(*http.Request)) func(*http.Request) {
	return func(r *http.Request) {
		for _, edit := range edits {
			edit(r)
		}
	}
}

func set(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

// TestSigned_Schemes: each scheme with the generated secret and with the user's own. Other
// signatures are rejected.
func TestSigned_Schemes(t *testing.T) {
	t.Parallel()
	s := newSigning(t, nil)
	const body = `{"name":"Ada"}`
	for scheme, timed := range signatures {
		generated := s.connector("inbound", s.derives(scheme, 1), "hello")
		brought := s.connector("inbound", s.brings(scheme, "whsec_c2VjcmV0IG9mIG1pbmU="), "hello")
		lonely := s.connector("inbound", func(c *store.Connector) {
			s.derives(scheme, 1)(c)
			c.Enabled = false
		}, "hello")
		right := sign(t, scheme, s.generated(generated, 1), body, signedAt)
		changed := body
		if scheme != "gitlab" { // it signs nothing
			changed = `{"name":"Bob"}`
		}
		for name, c := range map[string]struct {
			connector store.Connector
			body      string
			edit      func(*http.Request)
			status    int
			code      any
		}{
			"generated":              {generated, body, right, 200, nil},
			"brought":                {brought, body, sign(t, scheme, "whsec_c2VjcmV0IG9mIG1pbmU=", body, signedAt), 200, nil},
			"another's":              {brought, body, right, 401, "invalid_signature"},
			"the secret itself":      {generated, body, set("X-Service-Secret", s.generated(generated, 1)), 401, "invalid_signature"},
			"nothing":                {generated, body, nil, 401, "invalid_signature"},
			"another body":           {generated, changed, right, map[bool]int{true: 200, false: 401}[scheme == "gitlab"], map[bool]any{false: "invalid_signature"}[scheme == "gitlab"]},
			"no JSON":                {generated, "{", sign(t, scheme, s.generated(generated, 1), "{", signedAt), 400, "invalid_json"},
			"no JSON, and unsigned":  {generated, "{", sign(t, scheme, "whsec_b3RoZXI=", "{", signedAt), 401, "invalid_signature"},
			"another type":           {generated, body, both(right, set("Content-Type", "text/csv")), 415, "unsupported_media_type"},
			"another type, unsigned": {generated, body, both(sign(t, scheme, "whsec_b3RoZXI=", body, signedAt), set("Content-Type", "text/csv")), 401, "invalid_signature"},
			"disabled":               {lonely, body, sign(t, scheme, s.generated(lonely, 1), body, signedAt), 409, "connector_disabled"},
			"wrong before disabled":  {lonely, body, right, 401, "invalid_signature"},
			"key too long":           {generated, body, both(right, set("Idempotency-Key", strings.Repeat("k", 256))), map[bool]int{true: 200, false: 400}[timed], map[bool]any{false: "idempotency_key_too_long"}[timed]},
			"a GET":                  {generated, body, both(right, func(r *http.Request) { r.Method = http.MethodGet }), 405, "method_not_allowed"},
			"unknown length":         {generated, body, both(right, func(r *http.Request) { r.ContentLength = -1 }), 200, nil},
		} {
			t.Run(name, func(t *testing.T) {
				got := s.post(s.gateway, c.connector.ID.String(), c.body, c.edit)
				require.Equal(t, c.status, got.status, "%s, %s: %v", scheme, name, got.body)
				require.Equal(t, c.code, got.body["code"], "%s, %s", scheme, name)
				if c.status == http.StatusMethodNotAllowed {
					require.Equal(t, "POST", got.header.Get("Allow"))
				}
			})
		}
		for _, off := range []time.Duration{-301 * time.Second, 301 * time.Second} {
			got := s.post(s.gateway, generated.ID.String(), body, sign(t, scheme, s.generated(generated, 1), body, signedAt.Add(off)))
			require.Equal(t, timed, got.status == http.StatusUnauthorized, "%s, %s off: %v", scheme, off, got.body)
		}
	}
}

// TestSigned_RotatedSecret: the previous secret is valid until its grace period ends. If the cached
// connector does not know a secret, the current connector decides.
func TestSigned_RotatedSecret(t *testing.T) {
	t.Parallel()
	s := newSigning(t, nil)
	small, large := `{"name":"Ada"}`, `{"a":"`+strings.Repeat("x", 100<<10)+`"}`
	c := s.connector("inbound", s.derives("github", 1), "hello")
	post := func(body, secret string) int {
		return s.post(s.gateway, c.ID.String(), body, sign(t, "github", secret, body, signedAt)).status
	}
	first := s.generated(c, 1)
	require.Equal(t, 200, post(small, first))
	second, third := s.generated(c, 2), s.generated(c, 3)
	require.Equal(t, 401, post(small, second))
	s.derives("github", 2)(&c)
	c.Ref.Generation++
	require.NoError(t, s.store.PutConnector(t.Context(), c))
	for _, body := range []string{small, large} {
		require.Equal(t, 200, post(body, first), "within its grace period")
		require.Equal(t, 200, post(body, second))
	}
	s.derives("github", 3)(&c)
	c.SecretGracePeriod = 0
	c.Ref.Generation++
	require.NoError(t, s.store.PutConnector(t.Context(), c))
	require.Equal(t, 401, post(small, first))
	require.Equal(t, 401, post(large, second))
	require.Equal(t, 200, post(large, third))

	own := s.connector("inbound", s.brings("github", "old"), "hello")
	ask := func(secret string) int {
		return s.post(s.gateway, own.ID.String(), small, sign(t, "github", secret, small, signedAt)).status
	}
	require.Equal(t, 200, ask("old"))
	s.brings("github", "new", "old", "never valid")(&own)
	require.NoError(t, s.store.PutConnector(t.Context(), own))
	require.Equal(t, []int{200, 200, 401}, []int{ask("new"), ask("old"), ask("never valid")}, "the store decides which secrets are valid")
}

// TestSecret_ThrottlesWrongOnes: callers with the right secret are not throttled.
func TestSecret_ThrottlesWrongOnes(t *testing.T) {
	t.Parallel()
	s := newSigning(t, nil)
	const body = `{"name":"Ada"}`
	plain, signs, untouched := s.connector("inbound", nil, "hello"), s.connector("inbound", s.derives("github", 1), "hello"), s.connector("inbound", nil, "hello")
	for name, c := range map[string]struct {
		connector    store.Connector
		wrong, right func(*http.Request)
	}{
		"a plain secret": {plain, set("X-Service-Secret", "wrong"), nil},
		"signed":         {signs, sign(t, "github", "wrong", body, signedAt), sign(t, "github", s.generated(signs, 1), body, signedAt)},
	} {
		t.Run(name, func(t *testing.T) {
			counts := map[int]int{}
			var last reply
			for range 120 {
				last = s.post(s.gateway, c.connector.ID.String(), body, c.wrong)
				counts[last.status]++
			}
			require.Equal(t, map[int]int{401: 100, 429: 20}, counts)
			require.Equal(t, "too_many_wrong_secrets", last.body["code"])
			require.Equal(t, "2", last.header.Get("Retry-After"))
			require.Equal(t, 200, s.post(s.gateway, c.connector.ID.String(), body, c.right).status)
		})
	}
	require.Equal(t, 401, s.post(s.gateway, untouched.ID.String(), body, set("X-Service-Secret", "wrong")).status)
}

// TestHeaders_ReachTheRunner: only the headers that the connector names, as text.
func TestHeaders_ReachTheRunner(t *testing.T) {
	t.Parallel()
	b := setup(t)
	runs := make(chan dispatchapi.Run, 1)
	b.runner(func(run dispatchapi.Run) dispatchapi.CompleteRequest {
		runs <- run
		return completed(run)
	})
	c := b.connector("sync", func(c *store.Connector) {
		c.Config = []byte(`{"context_headers":["x-github-event","x-many","x-long","x-odd","x-absent","host"]}`)
	}, "hello")
	got := b.post(b.gateway, c.ID.String(), `{}`, func(r *http.Request) {
		r.Host = "hooks.example.com"
		r.Header.Set("X-GitHub-Event", "push")
		r.Header.Add("X-Many", "a")
		r.Header.Add("X-Many", "b")
		r.Header.Set("X-Long", strings.Repeat("é", 1000))
		r.Header.Set("X-Odd", "a\xffb")
		r.Header.Set("X-Other", "not named")
	})
	require.Equal(t, 200, got.status)
	require.Equal(t, map[string]string{
		"x-github-event": "push", "x-many": "a, b", "x-long": strings.Repeat("é", 512), "x-odd": "a\uFFFDb", "host": "hooks.example.com",
	}, (<-runs).Headers)
}

// told collects the responses of a gateway, and the values that must not occur in them.
type told struct {
	t        *testing.T
	text     strings.Builder
	canaries []string
}

func (o *told) answer(got reply) {
	raw, err := json.Marshal(got.body)
	require.NoError(o.t, err)
	o.text.Write(raw)
	for name, values := range got.header {
		o.text.WriteString(name + ": " + strings.Join(values, ",") + "\n")
	}
}

// secretsOf adds the values that an edit puts into a request, except times and IDs.
func (o *told) secretsOf(edit func(*http.Request)) {
	r, err := http.NewRequestWithContext(o.t.Context(), http.MethodPost, "/", nil)
	require.NoError(o.t, err)
	edit(r)
	for _, values := range r.Header {
		if value := values[0]; len(value) > 12 {
			o.canaries = append(o.canaries, value)
		}
	}
}

// TestSecrets_AreNeverExposed: in logs, metrics or responses, with right, wrong and expired
// requests, and with broken secrets.
func TestSecrets_AreNeverExposed(t *testing.T) {
	t.Parallel()
	const body, guess, mine = `{"name":"Ada"}`, "CANARY-guess", "whsec_Q0FOQVJZ"
	log, registry := &syncBuffer{out: &bytes.Buffer{}}, metrics.NewRegistry()
	s := newSigning(t, func(o *Options) {
		o.Registry, o.Logger = registry, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	all := &told{t: t, canaries: []string{guess, mine, "Q0FOQVJZ"}}
	guessing := both(set("X-Service-Secret", guess), set("Authorization", "Bearer "+guess))
	for scheme := range signatures {
		t.Run(scheme, func(t *testing.T) {
			generated, brought := s.connector("inbound", s.derives(scheme, 1), "hello"), s.connector("inbound", s.brings(scheme, mine), "hello")
			derived := s.generated(generated, 1)
			all.canaries = append(all.canaries, derived)
			for _, c := range []store.Connector{generated, brought} {
				for _, secret := range []string{derived, mine} {
					for _, at := range []time.Time{signedAt, signedAt.Add(time.Hour)} {
						edit := sign(t, scheme, secret, body, at)
						all.answer(s.post(s.gateway, c.ID.String(), body, both(edit, guessing)))
						all.secretsOf(edit)
					}
				}
			}
			for _, c := range s.unreadable(scheme, guess) {
				got := s.post(s.gateway, c.ID.String(), body, sign(t, scheme, mine, body, signedAt))
				if all.answer(got); scheme != "gitlab" { // only its digest is needed
					require.Equal(t, 503, got.status)
					require.Equal(t, "platform_key_missing", got.body["code"])
					require.NotEmpty(t, got.header.Get("Retry-After"))
				}
			}
		})
	}
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, family := range families {
		all.text.WriteString(family.String())
	}
	everything := all.text.String() + log.String()
	require.Contains(t, everything, "reading the signing secret")
	for _, canary := range all.canaries {
		require.NotContains(t, everything, canary)
	}
}

// unreadable returns connectors with a secret that cannot be opened, read or derived.
func (s *signing) unreadable(scheme, secret string) []store.Connector {
	return []store.Connector{
		s.connector("inbound", func(c *store.Connector) {
			s.brings(scheme, secret)(c)
			c.Sealed = append([]byte("x"), c.Sealed...)
		}),
		s.connector("inbound", func(c *store.Connector) {
			s.brings(scheme, secret)(c)
			var err error
			c.Sealed, _, err = s.keys.Seal(secrets.CredentialsField(c.ProjectID, c.ID), []byte(`{"secrets":"`+secret+`"}`))
			require.NoError(s.t, err)
		}),
		s.connector("inbound", func(c *store.Connector) {
			s.derives(scheme, 1)(c)
			c.SecretKey = "derivation-00000000"
		}),
	}
}

// syncBuffer is a buffer for concurrent writers.
type syncBuffer struct {
	mutex sync.Mutex
	out   *bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.out.Write(p)
}

func (b *syncBuffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.out.String()
}
