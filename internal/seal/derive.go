// SPDX-License-Identifier: Apache-2.0

// Package seal keeps secrets: it derives the secrets that the platform
// generates, and seals the credentials that it stores.
//
// Derived secrets are a pure function of a derivation key, the ids of project
// and connector, a purpose and a version. So they survive the loss of everything
// but the key: delete-and-apply, a restored backup, a move to another cluster.
// Rotation is another version.
package seal

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
)

// Purposes of derived secrets.
const (
	// PurposeSecret is the secret that callers of an inbound or sync webhook send.
	PurposeSecret = "secret"
	// PurposeSigningSecret signs the deliveries of an outbound webhook.
	PurposeSigningSecret = "signing_secret"
)

// SigningSecretPrefix precedes the base64 of a signing secret's key, as
// Standard Webhooks has it.
const SigningSecretPrefix = "whsec_"

// DerivationKeyBytes is the length of derivation keys and of what is derived: 256 bits.
const DerivationKeyBytes = 32

// DerivationKey is a key that generated secrets derive from.
type DerivationKey struct{ key []byte }

// ErrKeyLength says that a derivation key does not have 256 bits.
var ErrKeyLength = errors.New("a derivation key must have 32 bytes")

// NewDerivationKey takes the raw key of DerivationKeyBytes bytes.
func NewDerivationKey(raw []byte) (DerivationKey, error) {
	if len(raw) != DerivationKeyBytes {
		return DerivationKey{}, ErrKeyLength
	}
	return DerivationKey{key: slices.Clone(raw)}, nil
}

// Bytes is the raw key.
func (k DerivationKey) Bytes() []byte { return slices.Clone(k.key) }

// Fingerprint is the SHA-256 of the key, in hexadecimal. It says nothing about
// the key, which is random.
func (k DerivationKey) Fingerprint() string { return fingerprint("derivation", k.key) }

func fingerprint(ring string, key []byte) string {
	sum := sha256.Sum256(append([]byte("agentplatform.dev/v1/fingerprint/"+ring+"/"), key...))
	return hex.EncodeToString(sum[:])
}

// Generated names a generated secret.
type Generated struct {
	ProjectID, ConnectorID uuid.UUID
	// Version is the connector's spec.secretVersion.
	Version int64
	// Standard asks for the secret of a webhook in the form `whsec_<base64>` of Standard
	// Webhooks, by which its callers sign.
	Standard bool
}

// Secret derives what callers of a webhook send, or sign with: URL-safe text without
// padding, as it may stand in a query, unless it is to be Standard.
func (k DerivationKey) Secret(of Generated) string {
	if of.Standard {
		return SigningSecretPrefix + base64.StdEncoding.EncodeToString(k.derive(of, PurposeSecret))
	}
	return "whs_" + base64.RawURLEncoding.EncodeToString(k.derive(of, PurposeSecret))
}

// SigningSecret derives the secret that deliveries are signed with, in the
// form `whsec_<base64>` of Standard Webhooks.
func (k DerivationKey) SigningSecret(of Generated) string {
	return SigningSecretPrefix + base64.StdEncoding.EncodeToString(k.derive(of, PurposeSigningSecret))
}

// SigningKey is the key of Standard Webhooks in a signing secret: what is encoded after
// whsec_, or the whole of a secret that is not in that form.
func SigningKey(secret string) []byte {
	if encoded, ok := strings.CutPrefix(secret, SigningSecretPrefix); ok {
		if key, err := base64.StdEncoding.DecodeString(encoded); err == nil {
			return key
		}
	}
	return []byte(secret)
}

func (k DerivationKey) derive(of Generated, purpose string) []byte {
	info := fmt.Sprintf("agentplatform.dev/v1/%s/%s/%s/%d", of.ProjectID, of.ConnectorID, purpose, of.Version)
	out, err := hkdf.Key(sha256.New, k.key, nil, info, DerivationKeyBytes)
	if err != nil {
		panic(fmt.Sprintf("deriving 32 bytes with HKDF-SHA256: %v", err)) // only for lengths over 8160 bytes
	}
	return out
}

// Digest is the SHA-256 under which the store knows a secret.
func Digest(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}
