// SPDX-License-Identifier: Apache-2.0

package signature_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/webhookgw/signature"
)

// vector is a signed request.
type vector struct {
	scheme  signature.Scheme
	secret  string
	at      int64
	headers map[string]string
	body    string
}

func (v vector) header() http.Header {
	h := http.Header{}
	for name, value := range v.headers {
		h.Set(name, value)
	}
	return h
}

// verify writes the body in small parts.
func (v vector) verify(now time.Time, secrets ...string) error {
	verifier, err := signature.New(v.scheme, v.header(), now, secrets...)
	if err != nil {
		return err
	}
	for body := []byte(v.body); len(body) > 0; {
		n := min(7, len(body))
		_, _ = verifier.Write(body[:n])
		body = body[n:]
	}
	secret, err := verifier.Verify()
	if err == nil && secrets[secret] != v.secret {
		return errors.New("the signature belongs to another secret")
	}
	return err
}

func stripeHeader(secret, timestamp, body string) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(timestamp + "." + body))
	return "t=" + timestamp + ",v1=" + strings.Repeat("0", 64) + ",v1=" + hex.EncodeToString(mac.Sum(nil)) + ",v0=6ffbb59b2300aae63f272406069a9788598b792a944a07aba816edb039989a39"
}

// vectors has the published examples of the providers. GitLab and Stripe publish none. The Stripe
// header follows its documentation and is signed here.
var vectors = map[string]vector{
	"GitHub": {signature.GitHub, "It's a Secret to Everybody", 0, map[string]string{
		"X-Hub-Signature-256": "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17",
	}, "Hello, World!"},
	"Slack": {signature.Slack, "8f742231b10e8888abcd99yyyzzz85a5", 1531420618, map[string]string{
		"X-Slack-Request-Timestamp": "1531420618",
		"X-Slack-Signature":         "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
	}, "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar" +
		"&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2F" +
		"T1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"},
	"Standard Webhooks": {signature.StandardWebhooks, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", 1614265330, map[string]string{
		"webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek", "webhook-timestamp": "1614265330",
		"webhook-signature": "v1a,whatever v1,AAAA v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
	}, `{"test": 2432232314}`},
	"Stripe": {signature.Stripe, "whsec_a", 1492774577, map[string]string{
		"Stripe-Signature": stripeHeader("whsec_a", "1492774577", `{"id":"evt_1"}`),
	}, `{"id":"evt_1"}`},
	"GitLab": {signature.GitLab, "a token", 0, map[string]string{"X-Gitlab-Token": "a token"}, `{}`},
}

func TestVerifier_Providers(t *testing.T) {
	t.Parallel()
	seen := map[signature.Scheme]bool{}
	for name, v := range vectors {
		t.Run(name, func(t *testing.T) {
			seen[v.scheme] = true
			now := time.Unix(v.at, 0)
			require.NoError(t, v.verify(now, v.secret), name)
			require.NoError(t, v.verify(now, "the next one", v.secret), name)
			require.ErrorIs(t, v.verify(now, "another"), signature.ErrWrong, name)
			require.ErrorIs(t, v.verify(now), signature.ErrWrong, "%s, without a secret", name)
			if v.scheme != signature.GitLab {
				changed := v
				changed.body += " "
				require.ErrorIs(t, changed.verify(now, v.secret), signature.ErrWrong, name)
			}
			for header := range v.headers {
				without := v
				without.headers = map[string]string{}
				for other, value := range v.headers {
					if other != header {
						without.headers[other] = value
					}
				}
				require.ErrorIs(t, without.verify(now, v.secret), signature.ErrMissing, "%s without %s", name, header)
			}
			if v.at == 0 {
				return
			}
			for _, off := range []time.Duration{signature.Tolerance, -signature.Tolerance} {
				require.NoError(t, v.verify(now.Add(off), v.secret), name)
				require.ErrorIs(t, v.verify(now.Add(off+off/300), v.secret), signature.ErrStale, name)
			}
		})
	}
	for _, scheme := range signature.Schemes {
		require.True(t, seen[scheme], scheme)
	}
}

func FuzzSignatures(f *testing.F) {
	for _, v := range vectors {
		for _, value := range v.headers {
			f.Add(value, "1614265330", v.body)
		}
	}
	f.Fuzz(func(t *testing.T, header, timestamp, body string) {
		h := http.Header{}
		for _, name := range []string{"X-Hub-Signature-256", "X-Gitlab-Token", "Stripe-Signature", "X-Slack-Signature", "Webhook-Signature", "Webhook-Id"} {
			h.Set(name, header)
		}
		h.Set("Webhook-Timestamp", timestamp)
		h.Set("X-Slack-Request-Timestamp", timestamp)
		for _, scheme := range signature.Schemes {
			v, err := signature.New(scheme, h, time.Unix(1614265330, 0), "a secret that nobody guesses")
			if err != nil {
				continue
			}
			_, _ = v.Write([]byte(body))
			_, err = v.Verify()
			require.ErrorIs(t, err, signature.ErrWrong)
		}
	})
}
