// SPDX-License-Identifier: Apache-2.0

// Package seal keeps secrets: it derives the secrets that the platform
// generates, and seals the credentials that it stores.
//
// Derived secrets are a pure function of the platform's derivation key, the
// connector's id, a purpose and a version. So they survive the loss of
// everything but the key: delete-and-apply, a restored backup, a move to
// another cluster. Rotation is another version.
package seal

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"

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

// derivedBytes is the length of derived keys: 256 bits.
const derivedBytes = 32

// DerivationKey is the key that all generated secrets derive from.
type DerivationKey struct{ key []byte }

// ErrShortKey says that a derivation key has less than 256 bits.
var ErrShortKey = errors.New("derivation key has less than 32 bytes")

// NewDerivationKey takes the raw key, at least 32 bytes.
func NewDerivationKey(raw []byte) (DerivationKey, error) {
	if len(raw) < derivedBytes {
		return DerivationKey{}, ErrShortKey
	}
	return DerivationKey{key: raw}, nil
}

// GenerateDerivationKey returns the bytes of a new random derivation key.
func GenerateDerivationKey() []byte {
	raw := make([]byte, derivedBytes)
	rand.Read(raw) // never fails: it ends the process instead
	return raw
}

// Secret derives what callers of a webhook send: URL-safe text without
// padding, as it may stand in a query.
func (k DerivationKey) Secret(connectorID uuid.UUID, version int64) string {
	return "whs_" + base64.RawURLEncoding.EncodeToString(k.derive(connectorID, PurposeSecret, version))
}

// SigningSecret derives the secret that deliveries are signed with, in the
// form `whsec_<base64>` of Standard Webhooks.
func (k DerivationKey) SigningSecret(connectorID uuid.UUID, version int64) string {
	return SigningSecretPrefix + base64.StdEncoding.EncodeToString(k.derive(connectorID, PurposeSigningSecret, version))
}

func (k DerivationKey) derive(connectorID uuid.UUID, purpose string, version int64) []byte {
	info := fmt.Sprintf("agentplatform.dev/v1/%s/%s/%d", connectorID, purpose, version)
	out, err := hkdf.Key(sha256.New, k.key, nil, info, derivedBytes)
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
