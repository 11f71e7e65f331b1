// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// SecretName is the Secret of the system namespace with the rings.
const SecretName = "agentplatform-keys"

// Entries of the Secret, which are files of the mounted folder.
const (
	// DerivationEntry is {"keys":[{"id":"derivation-…","key":"<base64>"}]}, the oldest first.
	DerivationEntry = "derivation-keys.json"
	// SealingEntry is a Tink keyset in JSON, the oldest key first.
	SealingEntry = "sealing-keyset.json"
	// RevokedEntry is {"<key id>":{"withinSeconds":2592000}}. It is optional and can name lost keys
	// that are in no ring.
	RevokedEntry = "revoked-keys.json"
)

// Prefixes of key IDs by ring.
const (
	Derivation = "derivation"
	Sealing    = "sealing"
)

// MaxRevocation limits how long a revoked key's secrets stay valid.
const MaxRevocation = 365 * 24 * time.Hour

// Ring is the content of the Secret. It is immutable: its methods return a changed copy.
type Ring struct {
	derivation []DerivationKey
	sealing    Keyset
	revoked    map[string]time.Duration
}

// NewRing creates a ring with one derivation key and one sealing key.
func NewRing() (Ring, error) {
	derivation, err := newDerivationKey()
	if err != nil {
		return Ring{}, err
	}
	sealing, err := NewKeyset()
	if err != nil {
		return Ring{}, err
	}
	return Ring{derivation: []DerivationKey{derivation}, sealing: sealing}, nil
}

func newDerivationKey() (DerivationKey, error) {
	raw := make([]byte, DerivationKeyBytes)
	rand.Read(raw) // it never fails: it ends the process
	return NewDerivationKey(raw)
}

// ParseRing reads the entries of the Secret. Its errors name the entry and never contain its content.
func ParseRing(data map[string][]byte) (Ring, error) {
	r := Ring{revoked: map[string]time.Duration{}}
	var err error
	if r.derivation, err = parseDerivation(data[DerivationEntry]); err != nil {
		return Ring{}, fmt.Errorf("reading %s: %w", DerivationEntry, err)
	}
	if r.sealing, err = ParseKeyset(data[SealingEntry]); err != nil {
		return Ring{}, fmt.Errorf("reading %s: %w", SealingEntry, err)
	}
	if r.revoked, err = parseRevoked(data[RevokedEntry]); err != nil {
		return Ring{}, fmt.Errorf("reading %s: %w", RevokedEntry, err)
	}
	return r, nil
}

type derivationFile struct {
	Keys []derivationEntry `json:"keys"`
}

type derivationEntry struct {
	ID  string `json:"id"`
	Key []byte `json:"key"`
}

func parseDerivation(raw []byte) ([]DerivationKey, error) {
	var file derivationFile
	if err := decodeStrict(raw, &file); err != nil {
		return nil, err
	}
	if len(file.Keys) == 0 {
		return nil, errors.New("it holds no key")
	}
	var keys []DerivationKey
	for i, entry := range file.Keys {
		key, err := NewDerivationKey(entry.Key)
		switch {
		case err != nil:
			return nil, fmt.Errorf("keys[%d]: %w", i, err)
		case derivationID(key) != entry.ID:
			return nil, fmt.Errorf("keys[%d]: the ID does not match the key; the entry was changed by hand or damaged", i)
		case slices.ContainsFunc(keys, func(k DerivationKey) bool { return derivationID(k) == entry.ID }):
			return nil, fmt.Errorf("keys[%d]: the key appears twice", i)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

type revokedKey struct {
	WithinSeconds int64 `json:"withinSeconds"`
}

func parseRevoked(raw []byte) (map[string]time.Duration, error) {
	out := map[string]time.Duration{}
	if len(raw) == 0 {
		return out, nil
	}
	var file map[string]revokedKey
	if err := decodeStrict(raw, &file); err != nil {
		return nil, err
	}
	for id, revoked := range file {
		if RingOf(id) == "" {
			return nil, errors.New("a key's id must be derivation-<8 hexadecimal digits> or sealing-<8 hexadecimal digits>")
		}
		if revoked.WithinSeconds < 0 || revoked.WithinSeconds > int64(MaxRevocation/time.Second) {
			return nil, fmt.Errorf("%s: withinSeconds must be 0 to %d", id, int64(MaxRevocation/time.Second))
		}
		out[id] = time.Duration(revoked.WithinSeconds) * time.Second
	}
	return out, nil
}

// decodeStrict reads one JSON value without unknown fields. Its errors do not contain the value, because
// it is a key.
func decodeStrict(raw []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return errors.New("it is absent, empty or not the expected JSON")
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("unexpected data after the JSON")
	}
	return nil
}

// Data returns the entries of the Secret.
func (r Ring) Data() (map[string][]byte, error) {
	var file derivationFile
	for _, key := range r.derivation {
		file.Keys = append(file.Keys, derivationEntry{ID: derivationID(key), Key: key.Bytes()})
	}
	derivation, err := json.Marshal(file)
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", DerivationEntry, err)
	}
	sealing, err := r.sealing.JSON()
	if err != nil {
		return nil, fmt.Errorf("writing %s: %w", SealingEntry, err)
	}
	revoked := map[string]revokedKey{}
	for id, within := range r.revoked {
		revoked[id] = revokedKey{WithinSeconds: int64(within / time.Second)}
	}
	out := map[string][]byte{DerivationEntry: derivation, SealingEntry: sealing}
	if out[RevokedEntry], err = json.Marshal(revoked); err != nil {
		return nil, fmt.Errorf("writing %s: %w", RevokedEntry, err)
	}
	return out, nil
}

// derivationID contains a part of the key's fingerprint, so that an entry whose ID and key do not
// match is detected.
func derivationID(k DerivationKey) string { return Derivation + "-" + k.Fingerprint()[:8] }

func sealingID(id uint32) string {
	return Sealing + "-" + hex.EncodeToString(binary.BigEndian.AppendUint32(nil, id))
}

// RingOf returns the ring of a key ID, or "" for an invalid ID.
func RingOf(id string) string {
	ring, digits, _ := strings.Cut(id, "-")
	if raw, err := hex.DecodeString(digits); err != nil || len(raw) != 4 || strings.ToLower(digits) != digits ||
		(ring != Derivation && ring != Sealing) {
		return ""
	}
	return ring
}

// Fingerprints returns the fingerprints of all keys by ID.
func (r Ring) Fingerprints() map[string]string {
	out := map[string]string{}
	for _, key := range r.derivation {
		out[derivationID(key)] = key.Fingerprint()
	}
	for _, key := range r.sealing.Keys() {
		out[sealingID(key.ID)] = key.Fingerprint
	}
	return out
}

// IDs returns the IDs of a ring's keys, the oldest first.
func (r Ring) IDs(ring string) []string {
	var out []string
	if ring == Derivation {
		for _, key := range r.derivation {
			out = append(out, derivationID(key))
		}
		return out
	}
	for _, key := range r.sealing.Keys() {
		out = append(out, sealingID(key.ID))
	}
	return out
}

// Revoked returns the revoked keys and how long their values stay valid.
func (r Ring) Revoked() map[string]time.Duration { return maps.Clone(r.revoked) }

// WithNewKey adds a key to a ring and returns its ID.
func (r Ring) WithNewKey(ring string) (Ring, string, error) {
	if ring == Derivation {
		key, err := newDerivationKey()
		if err != nil {
			return Ring{}, "", err
		}
		r.derivation = append(slices.Clone(r.derivation), key)
		return r, derivationID(key), nil
	}
	sealing, id, err := r.sealing.WithNewKey()
	if err != nil {
		return Ring{}, "", err
	}
	r.sealing = sealing
	return r, sealingID(id), nil
}

// WithRevoked marks a key as revoked. Its values stay valid for within.
func (r Ring) WithRevoked(id string, within time.Duration) Ring {
	r.revoked = maps.Clone(r.revoked)
	if r.revoked == nil {
		r.revoked = map[string]time.Duration{}
	}
	r.revoked[id] = within
	return r
}

// Without removes a key and its revocation. It rejects removing the last key of a ring.
func (r Ring) Without(id string) (Ring, error) {
	if ids := r.IDs(RingOf(id)); len(ids) == 1 && ids[0] == id {
		return Ring{}, fmt.Errorf("%s is the only key of its ring", id)
	}
	r.revoked = maps.Clone(r.revoked)
	delete(r.revoked, id)
	r.derivation = slices.DeleteFunc(slices.Clone(r.derivation), func(k DerivationKey) bool { return derivationID(k) == id })
	for _, key := range r.sealing.Keys() {
		if sealingID(key.ID) != id {
			continue
		}
		var err error
		if r.sealing, err = r.sealing.Without(key.ID); err != nil {
			return Ring{}, err
		}
	}
	return r, nil
}
