// SPDX-License-Identifier: Apache-2.0

package keyring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/agentplatform/agentplatform/internal/seal"
)

// ErrNoKeys says that the process has not read the keys yet.
var ErrNoKeys = errors.New("the platform's keys are not there yet")

// MissingError says that a process does not hold a key: not yet, where it was
// added a moment ago.
type MissingError struct{ ID string }

// Error names the key.
func (e *MissingError) Error() string { return fmt.Sprintf("this process does not hold key %q", e.ID) }

// Keys are the keys of a process as they were last read; they may be read anew
// at any time. The zero value holds none. It is safe for concurrent use.
type Keys struct{ held atomic.Pointer[held] }

type held struct {
	ring    Ring
	sealer  *seal.Sealer
	sealing string // the id of the key that seals, "" while none is current
}

// Set takes over a ring; current are the keys that serve what is new, at most
// one per ring.
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

// Ring is the ring as it was last read.
func (k *Keys) Ring() (Ring, error) {
	h := k.held.Load()
	if h == nil {
		return Ring{}, ErrNoKeys
	}
	return h.ring, nil
}

// Secret derives the secret of an inbound or sync webhook with the key of that
// id; *MissingError when the process does not hold it.
func (k *Keys) Secret(keyID string, of seal.Generated) (string, error) {
	key, err := k.derivation(keyID)
	if err != nil {
		return "", err
	}
	return key.Secret(of), nil
}

// SigningSecret derives the secret that an outbound webhook signs with.
func (k *Keys) SigningSecret(keyID string, of seal.Generated) (string, error) {
	key, err := k.derivation(keyID)
	if err != nil {
		return "", err
	}
	return key.SigningSecret(of), nil
}

func (k *Keys) derivation(id string) (seal.DerivationKey, error) {
	ring, err := k.Ring()
	if err != nil {
		return seal.DerivationKey{}, err
	}
	for _, key := range ring.derivation {
		if derivationID(key) == id {
			return key, nil
		}
	}
	return seal.DerivationKey{}, &MissingError{ID: id}
}

// Seal seals with the current key, and returns its id.
func (k *Keys) Seal(field seal.Field, plaintext []byte) (sealed []byte, keyID string, err error) {
	h := k.held.Load()
	if h == nil || h.sealing == "" {
		return nil, "", ErrNoKeys
	}
	sealed, err = h.sealer.Seal(field, plaintext)
	return sealed, h.sealing, err
}

// Open opens what any key of the ring has sealed; seal.ErrUnsealable otherwise, with a
// *MissingError where it may be that a key is not there yet.
func (k *Keys) Open(field seal.Field, sealed []byte) ([]byte, error) {
	h := k.held.Load()
	if h == nil {
		return nil, ErrNoKeys
	}
	plain, err := h.sealer.Open(field, sealed)
	if by := sealedBy(sealed); err != nil && by != "" && !slices.Contains(h.ring.IDs(Sealing), by) {
		return nil, fmt.Errorf("%w: %w", err, &MissingError{ID: by})
	}
	return plain, err
}

// sealedBy is the id of the key that has sealed something, "" where it was none: Tink begins
// what it seals with a version, 1, and the key's id.
func sealedBy(sealed []byte) string {
	const version, start = 1, 5
	if len(sealed) <= start || sealed[0] != version {
		return ""
	}
	return sealingID(binary.BigEndian.Uint32(sealed[1:start]))
}

// SealedNow says whether the key that seals at present has sealed something.
func (k *Keys) SealedNow(sealed []byte) bool {
	by := sealedBy(sealed)
	return by != "" && by == k.SealingKey()
}

// SealingKey is the id of the key that seals at present, "" when there is none.
func (k *Keys) SealingKey() string {
	if h := k.held.Load(); h != nil {
		return h.sealing
	}
	return ""
}
