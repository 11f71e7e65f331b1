// SPDX-License-Identifier: Apache-2.0

// Package signature verifies the signatures that providers add to webhooks: GitHub, GitLab, Stripe,
// Slack and Standard Webhooks.
//
// A signature covers the body, which can be larger than the available memory. So a Verifier reads
// the body as a stream and compares the signature at its end, in constant time.
package signature

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"hash"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/agentplatform/agentplatform/internal/secrets"
)

// Scheme is the signature scheme of a provider.
type Scheme string

// The supported schemes.
const (
	// GitHub signs the body: X-Hub-Signature-256.
	GitHub Scheme = "github"
	// GitLab sends the secret itself: X-Gitlab-Token.
	GitLab Scheme = "gitlab"
	// Stripe signs a timestamp and the body: Stripe-Signature.
	Stripe Scheme = "stripe"
	// Slack signs a version, a timestamp and the body: X-Slack-Signature.
	Slack Scheme = "slack"
	// StandardWebhooks signs an ID, a timestamp and the body: webhook-signature.
	StandardWebhooks Scheme = "standard_webhooks"
)

// Schemes has all schemes.
var Schemes = []Scheme{GitHub, GitLab, Stripe, Slack, StandardWebhooks}

// Tolerance is the maximum difference between a signed timestamp and the current time.
const Tolerance = 5 * time.Minute

// maxSignatures limits the signatures of one request. A provider sends one for each secret that is
// currently valid.
const maxSignatures = 16

// Reasons for a rejected signature.
var (
	ErrMissing = errors.New("the signature headers are missing or malformed")
	ErrStale   = errors.New("the signature is older than five minutes, or the sender's clock is wrong")
	ErrWrong   = errors.New("the signature is wrong")
)

// Verifier verifies one request. Any of its secrets may have signed the request.
type Verifier struct {
	macs []hash.Hash
	// sent has the signatures of the request.
	sent [][]byte
	// sums has the digests of the secrets, for a scheme that sends the secret and no signature.
	sums [][]byte
}

// New reads the headers of a request. It returns ErrMissing and ErrStale before the body arrives.
func New(scheme Scheme, headers http.Header, now time.Time, candidates ...string) (*Verifier, error) {
	var start string
	v := &Verifier{}
	key := func(secret string) []byte { return []byte(secret) }
	switch scheme {
	case GitHub:
		v.addSignatures(hex.DecodeString, "sha256=", headers.Get("X-Hub-Signature-256"))
	case GitLab:
		return newGitLabVerifier(headers.Get("X-Gitlab-Token"), candidates)
	case Stripe:
		timestamp, signatures := parseStripeHeader(headers.Get("Stripe-Signature"))
		if err := checkTimestamp(timestamp, now); err != nil {
			return nil, err
		}
		start = timestamp + "."
		v.addSignatures(hex.DecodeString, "", signatures...)
	case Slack:
		timestamp := headers.Get("X-Slack-Request-Timestamp")
		if err := checkTimestamp(timestamp, now); err != nil {
			return nil, err
		}
		start = "v0:" + timestamp + ":"
		v.addSignatures(hex.DecodeString, "v0=", headers.Get("X-Slack-Signature"))
	case StandardWebhooks:
		id, timestamp := headers.Get("Webhook-Id"), headers.Get("Webhook-Timestamp")
		if err := checkTimestamp(timestamp, now); err != nil {
			return nil, err
		}
		if id == "" {
			return nil, ErrMissing
		}
		start, key = id+"."+timestamp+".", secrets.SigningKey
		v.addSignatures(base64.StdEncoding.DecodeString, "v1,", strings.Fields(headers.Get("Webhook-Signature"))...)
	}
	if len(v.sent) == 0 {
		return nil, ErrMissing
	}
	for _, secret := range candidates {
		mac := hmac.New(sha256.New, key(secret))
		mac.Write([]byte(start))
		v.macs = append(v.macs, mac)
	}
	return v, nil
}

// addSignatures adds the signatures that have the prefix and can be decoded.
func (v *Verifier) addSignatures(decode func(string) ([]byte, error), prefix string, signatures ...string) {
	for _, s := range signatures[:min(len(signatures), maxSignatures)] {
		encoded, ok := strings.CutPrefix(s, prefix)
		if raw, err := decode(encoded); ok && err == nil && len(raw) == sha256.Size {
			v.sent = append(v.sent, raw)
		}
	}
}

// Write adds a part of the body. It never fails.
func (v *Verifier) Write(piece []byte) (int, error) {
	for _, mac := range v.macs {
		mac.Write(piece)
	}
	return len(piece), nil
}

// Verify returns the index of the secret that signed the body, or ErrWrong. It takes the same time
// for each secret.
func (v *Verifier) Verify() (secret int, err error) {
	secret = -1
	sums := v.sums
	for _, mac := range v.macs {
		sums = append(sums, mac.Sum(nil))
	}
	for i, sum := range sums {
		for _, sent := range v.sent {
			secret = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(sum, sent), i, secret)
		}
	}
	if secret < 0 {
		return secret, ErrWrong
	}
	return secret, nil
}

// Sum returns the signature of the body by one of the secrets, indexed as in Verify. The same
// signed request always has the same sum. For GitLab it is the digest of the token.
func (v *Verifier) Sum(secret int) []byte {
	if len(v.macs) == 0 {
		return v.sums[secret]
	}
	return v.macs[secret].Sum(nil)
}

// newGitLabVerifier compares digests, because they have the same length.
func newGitLabVerifier(token string, candidates []string) (*Verifier, error) {
	if token == "" {
		return nil, ErrMissing
	}
	v := &Verifier{sent: [][]byte{secrets.Digest(token)}}
	for _, secret := range candidates {
		v.sums = append(v.sums, secrets.Digest(secret))
	}
	return v, nil
}

// parseStripeHeader parses t=…,v1=…,v1=… and ignores unknown parts.
func parseStripeHeader(header string) (timestamp string, signatures []string) {
	for part := range strings.SplitSeq(header, ",") {
		switch name, value, _ := strings.Cut(strings.TrimSpace(part), "="); name {
		case "t":
			timestamp = value
		case "v1":
			signatures = append(signatures, value)
		}
	}
	return timestamp, signatures
}

// checkTimestamp checks a timestamp in seconds.
func checkTimestamp(timestamp string, now time.Time) error {
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		return ErrMissing
	}
	if now.Sub(time.Unix(seconds, 0)).Abs() > Tolerance {
		return ErrStale
	}
	return nil
}
