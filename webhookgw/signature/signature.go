// SPDX-License-Identifier: Apache-2.0

// Package signature judges the signatures by which providers prove that a webhook is
// theirs: GitHub's, GitLab's, Stripe's, Slack's, and that of Standard Webhooks.
//
// A signature is over the body, which may be larger than memory is to spare: a Verifier
// takes it while it comes in. It is judged at its end, in constant time.
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

	"github.com/agentplatform/agentplatform/internal/seal"
)

// Scheme is a provider's way to sign.
type Scheme string

// Schemes.
const (
	// GitHub signs the body: X-Hub-Signature-256.
	GitHub Scheme = "github"
	// GitLab sends the secret itself: X-Gitlab-Token.
	GitLab Scheme = "gitlab"
	// Stripe signs a timestamp and the body: Stripe-Signature.
	Stripe Scheme = "stripe"
	// Slack signs a version, a timestamp and the body: X-Slack-Signature.
	Slack Scheme = "slack"
	// StandardWebhooks signs an id, a timestamp and the body: webhook-signature.
	StandardWebhooks Scheme = "standard_webhooks"
)

// Schemes are all of them.
var Schemes = []Scheme{GitHub, GitLab, Stripe, Slack, StandardWebhooks}

// Tolerance is how old, or how far ahead, a signed timestamp may be.
const Tolerance = 5 * time.Minute

// maxSignatures is how many signatures of one request are looked at: providers send one
// for each secret that is valid at the moment.
const maxSignatures = 16

// Why a request is not the provider's.
var (
	ErrMissing = errors.New("the signature's headers are missing, or not in the provider's form")
	ErrStale   = errors.New("the signature is older than five minutes, or the sender's clock is wrong")
	ErrWrong   = errors.New("the signature is wrong")
)

// Verifier judges one request by secrets of which any may have signed it.
type Verifier struct {
	macs []hash.Hash
	// sent are the signatures of the request.
	sent [][]byte
	// sums are of the secrets, of a scheme that sends one instead of a signature.
	sums [][]byte
}

// New reads a request's headers. ErrMissing and ErrStale are known before its body comes.
func New(scheme Scheme, headers http.Header, now time.Time, secrets ...string) (*Verifier, error) {
	var start string
	v := &Verifier{}
	key := func(secret string) []byte { return []byte(secret) }
	switch scheme {
	case GitHub:
		v.add(hex.DecodeString, "sha256=", headers.Get("X-Hub-Signature-256"))
	case GitLab:
		return gitLab(headers.Get("X-Gitlab-Token"), secrets)
	case Stripe:
		timestamp, signatures := stripe(headers.Get("Stripe-Signature"))
		if err := fresh(timestamp, now); err != nil {
			return nil, err
		}
		start = timestamp + "."
		v.add(hex.DecodeString, "", signatures...)
	case Slack:
		timestamp := headers.Get("X-Slack-Request-Timestamp")
		if err := fresh(timestamp, now); err != nil {
			return nil, err
		}
		start = "v0:" + timestamp + ":"
		v.add(hex.DecodeString, "v0=", headers.Get("X-Slack-Signature"))
	case StandardWebhooks:
		id, timestamp := headers.Get("Webhook-Id"), headers.Get("Webhook-Timestamp")
		if err := fresh(timestamp, now); err != nil {
			return nil, err
		}
		if id == "" {
			return nil, ErrMissing
		}
		start, key = id+"."+timestamp+".", seal.SigningKey
		v.add(base64.StdEncoding.DecodeString, "v1,", strings.Fields(headers.Get("Webhook-Signature"))...)
	}
	if len(v.sent) == 0 {
		return nil, ErrMissing
	}
	for _, secret := range secrets {
		mac := hmac.New(sha256.New, key(secret))
		mac.Write([]byte(start))
		v.macs = append(v.macs, mac)
	}
	return v, nil
}

// add takes the signatures that have a prefix, and can be decoded.
func (v *Verifier) add(decode func(string) ([]byte, error), prefix string, signatures ...string) {
	for _, s := range signatures[:min(len(signatures), maxSignatures)] {
		encoded, ok := strings.CutPrefix(s, prefix)
		if raw, err := decode(encoded); ok && err == nil && len(raw) == sha256.Size {
			v.sent = append(v.sent, raw)
		}
	}
}

// Write takes the next piece of the body; it never fails.
func (v *Verifier) Write(piece []byte) (int, error) {
	for _, mac := range v.macs {
		mac.Write(piece)
	}
	return len(piece), nil
}

// Verify says at the end of the body which of the secrets has signed it, by its number, or
// ErrWrong. It takes the same time whichever it is.
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

// Sum is the signature of the body by one of the secrets, as Verify numbers them: whoever
// sends the same signed request again has the same. GitLab's is that of its token.
func (v *Verifier) Sum(secret int) []byte {
	if len(v.macs) == 0 {
		return v.sums[secret]
	}
	return v.macs[secret].Sum(nil)
}

// gitLab compares hashes, which have one length.
func gitLab(token string, secrets []string) (*Verifier, error) {
	if token == "" {
		return nil, ErrMissing
	}
	v := &Verifier{sent: [][]byte{seal.Digest(token)}}
	for _, secret := range secrets {
		v.sums = append(v.sums, seal.Digest(secret))
	}
	return v, nil
}

// stripe reads t=…,v1=…,v1=…; what it does not know it passes over.
func stripe(header string) (timestamp string, signatures []string) {
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

// fresh judges a timestamp in seconds.
func fresh(timestamp string, now time.Time) error {
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		return ErrMissing
	}
	if now.Sub(time.Unix(seconds, 0)).Abs() > Tolerance {
		return ErrStale
	}
	return nil
}
