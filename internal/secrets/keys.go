// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
)

// ErrNoKeys means that the process has not read the keys yet.
var ErrNoKeys = errors.New("the platform's keys have not been read yet")

// MissingKeyError means that a process does not have a key. It may have been added a moment ago.
type MissingKeyError struct{ ID string }

// Error names the key.
func (e *MissingKeyError) Error() string {
	return fmt.Sprintf("this process does not have key %q", e.ID)
}

// Keys are the current keys of a process. They can be replaced at any time. The zero value has
// none. It is safe for concurrent use.
type Keys struct{ held atomic.Pointer[held] }

type held struct {
	ring    Ring
	sealer  *Sealer
	sealing string // ID of the sealing key, "" without a current one
}

// Set replaces the ring. current are the keys for new values, at most one per ring.
func (k *Keys) Set(ring Ring, current []string) error {
	next := &held{ring: ring}
	opens := ring.sealing.Keys()[0].ID
	for _, key := range ring.sealing.Keys() {
		if id := sealingID(key.ID); slices.Contains(current, id) {
			next.sealing, opens = id, key.ID
		}
	}
	var err error
	if next.sealer, err = ring.sealing.Sealer(opens); err != nil {
		return err
	}
	k.held.Store(next)
	return nil
}

// Ring returns the current ring.
func (k *Keys) Ring() (Ring, error) {
	h := k.held.Load()
	if h == nil {
		return Ring{}, ErrNoKeys
	}
	return h.ring, nil
}

// Secret derives the secret of a webhook with callers with a key. It returns a *MissingKeyError if
// the process does not have the key.
func (k *Keys) Secret(keyID string, of Generated) (string, error) {
	key, err := k.derivation(keyID)
	if err != nil {
		return "", err
	}
	return key.Secret(of), nil
}

// SigningSecret derives the signing secret of an outbound webhook.
func (k *Keys) SigningSecret(keyID string, of Generated) (string, error) {
	key, err := k.derivation(keyID)
	if err != nil {
		return "", err
	}
	return key.SigningSecret(of), nil
}

func (k *Keys) derivation(id string) (DerivationKey, error) {
	ring, err := k.Ring()
	if err != nil {
		return DerivationKey{}, err
	}
	for _, key := range ring.derivation {
		if derivationID(key) == id {
			return key, nil
		}
	}
	return DerivationKey{}, &MissingKeyError{ID: id}
}

// Seal seals with the current key and returns its ID.
func (k *Keys) Seal(field Field, plaintext []byte) (sealed []byte, keyID string, err error) {
	h := k.held.Load()
	if h == nil || h.sealing == "" {
		return nil, "", ErrNoKeys
	}
	sealed, err = h.sealer.Seal(field, plaintext)
	return sealed, h.sealing, err
}

// Open opens a value that any key of the ring has sealed. Otherwise it returns ErrUnsealable,
// with a *MissingKeyError if a key may be missing.
func (k *Keys) Open(field Field, sealed []byte) ([]byte, error) {
	h := k.held.Load()
	if h == nil {
		return nil, ErrNoKeys
	}
	plain, err := h.sealer.Open(field, sealed)
	if by := sealedBy(sealed); err != nil && by != "" && !slices.Contains(h.ring.IDs(Sealing), by) {
		return nil, fmt.Errorf("%w: %w", err, &MissingKeyError{ID: by})
	}
	return plain, err
}

// sealedBy returns the ID of the key that sealed a value, or "". Tink begins sealed values with a
// version, 1, and the key's ID.
func sealedBy(sealed []byte) string {
	const version, start = 1, 5
	if len(sealed) <= start || sealed[0] != version {
		return ""
	}
	return sealingID(binary.BigEndian.Uint32(sealed[1:start]))
}

// SealedNow reports whether the current sealing key sealed a value.
func (k *Keys) SealedNow(sealed []byte) bool {
	by := sealedBy(sealed)
	return by != "" && by == k.SealingKey()
}

// OpenOutdated opens a sealed text in base64 that an earlier key sealed, so that the caller seals it again. ok is false if
// the current key sealed the text, or if no key opens it.
func (k *Keys) OpenOutdated(field Field, sealed string) (value string, ok bool) {
	raw, err := base64.StdEncoding.DecodeString(sealed)
	if err != nil || k.SealedNow(raw) {
		return "", false
	}
	plain, err := k.Open(field, raw)
	return string(plain), err == nil
}

// SealingKey returns the ID of the current sealing key, or "".
func (k *Keys) SealingKey() string {
	if h := k.held.Load(); h != nil {
		return h.sealing
	}
	return ""
}
