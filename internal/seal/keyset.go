// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
	tinkpb "github.com/tink-crypto/tink-go/v2/proto/tink_go_proto"
)

// Keyset is a Tink keyset of AEAD keys, the oldest first. It is a value.
type Keyset struct{ handle *keyset.Handle }

// KeysetKey names a key of a keyset.
type KeysetKey struct {
	ID uint32
	// Fingerprint is the SHA-256 of the key, in hexadecimal.
	Fingerprint string
}

// NewKeyset makes a keyset of one AES-256-GCM key.
func NewKeyset() (Keyset, error) {
	handle, err := keyset.NewHandle(aead.AES256GCMKeyTemplate())
	if err != nil {
		return Keyset{}, fmt.Errorf("making a sealing key: %w", err)
	}
	return Keyset{handle: handle}, nil
}

// ParseKeyset reads a keyset in Tink's JSON form. Every key must be enabled, and of
// the kind that marks what it seals as its own.
func ParseKeyset(raw []byte) (Keyset, error) {
	handle, err := insecurecleartextkeyset.Read(keyset.NewJSONReader(bytes.NewReader(raw)))
	if err != nil {
		return Keyset{}, errors.New("it is absent, empty or no keyset in Tink's JSON form")
	}
	ids := map[uint32]bool{}
	for _, key := range insecurecleartextkeyset.KeysetMaterial(handle).GetKey() {
		switch {
		case key.GetStatus() != tinkpb.KeyStatusType_ENABLED:
			return Keyset{}, fmt.Errorf("key %08x is not enabled", key.GetKeyId())
		case key.GetOutputPrefixType() != tinkpb.OutputPrefixType_TINK:
			return Keyset{}, fmt.Errorf("key %08x does not mark what it seals (output prefix TINK)", key.GetKeyId())
		case ids[key.GetKeyId()]:
			return Keyset{}, fmt.Errorf("key %08x is there twice", key.GetKeyId())
		}
		ids[key.GetKeyId()] = true
	}
	if _, err := aead.New(handle); err != nil {
		return Keyset{}, errors.New("its keys are not for AEAD")
	}
	return Keyset{handle: handle}, nil
}

// JSON writes the keyset in Tink's JSON form, in the clear: it belongs in a Secret.
func (s Keyset) JSON() ([]byte, error) {
	var out bytes.Buffer
	if err := insecurecleartextkeyset.Write(s.handle, keyset.NewJSONWriter(&out)); err != nil {
		return nil, fmt.Errorf("writing the keyset: %w", err)
	}
	return out.Bytes(), nil
}

// Keys are the keys of the set.
func (s Keyset) Keys() []KeysetKey {
	var out []KeysetKey
	for _, key := range insecurecleartextkeyset.KeysetMaterial(s.handle).GetKey() {
		out = append(out, KeysetKey{ID: key.GetKeyId(), Fingerprint: fingerprint("sealing", key.GetKeyData().GetValue())})
	}
	return out
}

// WithNewKey adds an AES-256-GCM key and returns its id.
func (s Keyset) WithNewKey() (Keyset, uint32, error) {
	manager := keyset.NewManagerFromHandle(s.handle)
	id, err := manager.Add(aead.AES256GCMKeyTemplate())
	if err != nil {
		return Keyset{}, 0, fmt.Errorf("making a sealing key: %w", err)
	}
	handle, err := manager.Handle()
	if err != nil {
		return Keyset{}, 0, fmt.Errorf("adding a sealing key: %w", err)
	}
	return Keyset{handle: handle}, id, nil
}

// Without removes a key; where it was the primary one, the newest of the others
// takes its place. The last key stays.
func (s Keyset) Without(id uint32) (Keyset, error) {
	rest := slices.DeleteFunc(s.Keys(), func(k KeysetKey) bool { return k.ID == id })
	if len(rest) == 0 || len(rest) == len(s.Keys()) {
		return s, nil
	}
	manager := keyset.NewManagerFromHandle(s.handle)
	if err := manager.SetPrimary(rest[len(rest)-1].ID); err != nil {
		return Keyset{}, fmt.Errorf("choosing another primary key: %w", err)
	}
	if err := manager.Delete(id); err != nil {
		return Keyset{}, fmt.Errorf("removing a sealing key: %w", err)
	}
	handle, err := manager.Handle()
	if err != nil {
		return Keyset{}, fmt.Errorf("removing a sealing key: %w", err)
	}
	return Keyset{handle: handle}, nil
}

// Sealer seals with the key of that id and opens with all of the set.
func (s Keyset) Sealer(id uint32) (*Sealer, error) {
	manager := keyset.NewManagerFromHandle(s.handle)
	if err := manager.SetPrimary(id); err != nil {
		return nil, fmt.Errorf("choosing the sealing key: %w", err)
	}
	handle, err := manager.Handle()
	if err != nil {
		return nil, fmt.Errorf("choosing the sealing key: %w", err)
	}
	primitive, err := aead.New(handle)
	if err != nil {
		return nil, fmt.Errorf("using the sealing keyset: %w", err)
	}
	return &Sealer{aead: primitive}, nil
}
