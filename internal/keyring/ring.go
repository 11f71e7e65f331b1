// SPDX-License-Identifier: Apache-2.0

// Package keyring holds the platform's keys: a ring of derivation keys, from
// which generated secrets derive, and a ring of sealing keys, with which stored
// credentials are sealed. The rings lie in one Secret of the system namespace.
//
// A ring holds several keys so that one can take another's place while both are
// in use. Which one serves what is new is not in the ring: the store decides it,
// once all processes hold the key.
package keyring

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

	"github.com/agentplatform/agentplatform/internal/seal"
)

// SecretName is the Secret of the system namespace that holds the rings.
const SecretName = "agentplatform-keys"

// Entries of the Secret, and files of the folder where it is mounted.
const (
	// DerivationEntry is {"keys":[{"id":"derivation-…","key":"<base64>"}]}, the
	// oldest first.
	DerivationEntry = "derivation-keys.json"
	// SealingEntry is a Tink keyset in JSON, the oldest key first.
	SealingEntry = "sealing-keyset.json"
	// RevokedEntry is {"<key id>":{"withinSeconds":2592000}}. It may be absent,
	// and may name keys that are in no ring: those that are lost.
	RevokedEntry = "revoked-keys.json"
)

// Rings, as ids of keys begin.
const (
	Derivation = "derivation"
	Sealing    = "sealing"
)

// MaxWithin is the longest time that a revoked key's secrets stay valid.
const MaxWithin = 365 * 24 * time.Hour

// Ring is what the Secret holds. It is a value: its methods return another.
type Ring struct {
	derivation []seal.DerivationKey
	sealing    seal.Keyset
	revoked    map[string]time.Duration
}

// New makes a ring of one derivation and one sealing key.
func New() (Ring, error) {
	derivation, err := newDerivationKey()
	if err != nil {
		return Ring{}, err
	}
	sealing, err := seal.NewKeyset()
	if err != nil {
		return Ring{}, err
	}
	return Ring{derivation: []seal.DerivationKey{derivation}, sealing: sealing}, nil
}

func newDerivationKey() (seal.DerivationKey, error) {
	raw := make([]byte, seal.DerivationKeyBytes)
	rand.Read(raw) // never fails: it ends the process instead
	return seal.NewDerivationKey(raw)
}

// Parse reads the entries of the Secret; errors name the entry and never what is in it.
func Parse(data map[string][]byte) (Ring, error) {
	r := Ring{revoked: map[string]time.Duration{}}
	var err error
	if r.derivation, err = parseDerivation(data[DerivationEntry]); err != nil {
		return Ring{}, fmt.Errorf("reading %s: %w", DerivationEntry, err)
	}
	if r.sealing, err = seal.ParseKeyset(data[SealingEntry]); err != nil {
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

func parseDerivation(raw []byte) ([]seal.DerivationKey, error) {
	var file derivationFile
	if err := decode(raw, &file); err != nil {
		return nil, err
	}
	if len(file.Keys) == 0 {
		return nil, errors.New("it holds no key")
	}
	var keys []seal.DerivationKey
	for i, entry := range file.Keys {
		key, err := seal.NewDerivationKey(entry.Key)
		switch {
		case err != nil:
			return nil, fmt.Errorf("keys[%d]: %w", i, err)
		case derivationID(key) != entry.ID:
			return nil, fmt.Errorf("keys[%d]: the id is not that of this key; the entry was changed by hand or damaged", i)
		case slices.ContainsFunc(keys, func(k seal.DerivationKey) bool { return derivationID(k) == entry.ID }):
			return nil, fmt.Errorf("keys[%d]: the key is there twice", i)
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
	if err := decode(raw, &file); err != nil {
		return nil, err
	}
	for id, revoked := range file {
		if RingOf(id) == "" {
			return nil, errors.New("a key's id must be derivation-<8 hexadecimal digits> or sealing-<8 hexadecimal digits>")
		}
		if revoked.WithinSeconds < 0 || revoked.WithinSeconds > int64(MaxWithin/time.Second) {
			return nil, fmt.Errorf("%s: withinSeconds must be 0 to %d", id, int64(MaxWithin/time.Second))
		}
		out[id] = time.Duration(revoked.WithinSeconds) * time.Second
	}
	return out, nil
}

// decode reads one JSON value without unknown fields. Its errors do not repeat
// what stands there, for it is a key.
func decode(raw []byte, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return errors.New("it is absent, empty or not the JSON that belongs there")
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON")
	}
	return nil
}

// Data are the entries of the Secret.
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

// derivationID is a part of the key's fingerprint, so that an entry whose id
// and key do not belong together is found.
func derivationID(k seal.DerivationKey) string { return Derivation + "-" + k.Fingerprint()[:8] }

func sealingID(id uint32) string {
	return Sealing + "-" + hex.EncodeToString(binary.BigEndian.AppendUint32(nil, id))
}

// RingOf is the ring that a key's id belongs to, "" when it is no id of a key.
func RingOf(id string) string {
	ring, digits, _ := strings.Cut(id, "-")
	if raw, err := hex.DecodeString(digits); err != nil || len(raw) != 4 || strings.ToLower(digits) != digits ||
		(ring != Derivation && ring != Sealing) {
		return ""
	}
	return ring
}

// Fingerprints are the keys of both rings, by id.
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

// IDs are the ids of a ring's keys, the oldest first.
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

// Revoked are the revoked keys and how long what they made stays valid.
func (r Ring) Revoked() map[string]time.Duration { return maps.Clone(r.revoked) }

// WithNewKey adds a key to a ring and returns its id.
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

// WithRevoked marks a key as revoked: what it made stays valid for that long.
func (r Ring) WithRevoked(id string, within time.Duration) Ring {
	r.revoked = maps.Clone(r.revoked)
	if r.revoked == nil {
		r.revoked = map[string]time.Duration{}
	}
	r.revoked[id] = within
	return r
}

// Without removes a key from its ring, with its mark. The last key of a ring stays.
func (r Ring) Without(id string) (Ring, error) {
	if ids := r.IDs(RingOf(id)); len(ids) == 1 && ids[0] == id {
		return Ring{}, fmt.Errorf("%s is the only key of its ring", id)
	}
	r.revoked = maps.Clone(r.revoked)
	delete(r.revoked, id)
	r.derivation = slices.DeleteFunc(slices.Clone(r.derivation), func(k seal.DerivationKey) bool { return derivationID(k) == id })
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
