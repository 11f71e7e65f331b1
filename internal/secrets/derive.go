// SPDX-License-Identifier: Apache-2.0

package secrets

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
	// PurposeSecret is the secret that callers of a webhook send.
	PurposeSecret = "secret"
	// PurposeSigningSecret signs the deliveries of an outbound webhook.
	PurposeSigningSecret = "signing_secret"
)

// SigningSecretPrefix precedes the base64 of a signing secret's key, as in Standard Webhooks.
const SigningSecretPrefix = "whsec_"

// DerivationKeyBytes is the length of derivation keys and derived keys: 256 bits.
const DerivationKeyBytes = 32

// DerivationKey is a key for generated secrets.
type DerivationKey struct{ key []byte }

// ErrKeyLength means that a derivation key does not have 256 bits.
var ErrKeyLength = errors.New("a derivation key must have 32 bytes")

// NewDerivationKey returns a key for DerivationKeyBytes raw bytes.
func NewDerivationKey(raw []byte) (DerivationKey, error) {
	if len(raw) != DerivationKeyBytes {
		return DerivationKey{}, ErrKeyLength
	}
	return DerivationKey{key: slices.Clone(raw)}, nil
}

// Bytes returns the raw key.
func (k DerivationKey) Bytes() []byte { return slices.Clone(k.key) }

// Fingerprint returns the SHA-256 of the key, in hexadecimal. It reveals nothing about the key,
// which is random.
func (k DerivationKey) Fingerprint() string { return fingerprint("derivation", k.key) }

func fingerprint(ring string, key []byte) string {
	sum := sha256.Sum256(append([]byte("agentplatform.dev/v1/fingerprint/"+ring+"/"), key...))
	return hex.EncodeToString(sum[:])
}

// Generated identifies a generated secret.
type Generated struct {
	ProjectID, ConnectorID uuid.UUID
	// Version is the connector's spec.secretVersion.
	Version int64
	// Standard requests the form `whsec_<base64>` of Standard Webhooks for a webhook whose callers
	// sign with it.
	Standard bool
}

// Secret derives the secret of a webhook's callers: URL-safe text without padding, or the Standard
// form.
func (k DerivationKey) Secret(of Generated) string {
	if of.Standard {
		return SigningSecretPrefix + base64.StdEncoding.EncodeToString(k.deriveKey(of, PurposeSecret))
	}
	return "whs_" + base64.RawURLEncoding.EncodeToString(k.deriveKey(of, PurposeSecret))
}

// SigningSecret derives the signing secret of deliveries, in the form `whsec_<base64>` of Standard
// Webhooks.
func (k DerivationKey) SigningSecret(of Generated) string {
	return SigningSecretPrefix + base64.StdEncoding.EncodeToString(k.deriveKey(of, PurposeSigningSecret))
}

// SigningKey returns the key of Standard Webhooks in a signing secret: the decoded part after
// whsec_, or the whole of a secret in another form.
func SigningKey(secret string) []byte {
	if encoded, ok := strings.CutPrefix(secret, SigningSecretPrefix); ok {
		if key, err := base64.StdEncoding.DecodeString(encoded); err == nil {
			return key
		}
	}
	return []byte(secret)
}

func (k DerivationKey) deriveKey(of Generated, purpose string) []byte {
	info := fmt.Sprintf("agentplatform.dev/v1/%s/%s/%s/%d", of.ProjectID, of.ConnectorID, purpose, of.Version)
	out, err := hkdf.Key(sha256.New, k.key, nil, info, DerivationKeyBytes)
	if err != nil {
		panic(fmt.Sprintf("deriving 32 bytes with HKDF-SHA256: %v", err)) // fails only for lengths over 8160 bytes
	}
	return out
}

// Digest returns the SHA-256 that identifies a secret in the store.
func Digest(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}
