// SPDX-License-Identifier: Apache-2.0

package secrets

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

// Keyset is an immutable Tink keyset of AEAD keys, the oldest first.
type Keyset struct{ handle *keyset.Handle }

// KeysetKey identifies a key of a keyset.
type KeysetKey struct {
	ID uint32
	// Fingerprint is the SHA-256 of the key, in hexadecimal.
	Fingerprint string
}

// NewKeyset creates a keyset with one AES-256-GCM key.
func NewKeyset() (Keyset, error) {
	handle, err := keyset.NewHandle(aead.AES256GCMKeyTemplate())
	if err != nil {
		return Keyset{}, fmt.Errorf("making a sealing key: %w", err)
	}
	return Keyset{handle: handle}, nil
}

// ParseKeyset reads a keyset in Tink's JSON form. Each key must be enabled and mark its sealed
// values.
func ParseKeyset(raw []byte) (Keyset, error) {
	handle, err := insecurecleartextkeyset.Read(keyset.NewJSONReader(bytes.NewReader(raw)))
	if err != nil {
		return Keyset{}, errors.New("it is absent, empty or not a keyset in Tink's JSON form")
	}
	ids := map[uint32]bool{}
	for _, key := range insecurecleartextkeyset.KeysetMaterial(handle).GetKey() {
		switch {
		case key.GetStatus() != tinkpb.KeyStatusType_ENABLED:
			return Keyset{}, fmt.Errorf("key %08x is not enabled", key.GetKeyId())
		case key.GetOutputPrefixType() != tinkpb.OutputPrefixType_TINK:
			return Keyset{}, fmt.Errorf("key %08x does not mark its sealed values (output prefix TINK)", key.GetKeyId())
		case ids[key.GetKeyId()]:
			return Keyset{}, fmt.Errorf("key %08x appears twice", key.GetKeyId())
		}
		ids[key.GetKeyId()] = true
	}
	if _, err := aead.New(handle); err != nil {
		return Keyset{}, errors.New("its keys are not for AEAD")
	}
	return Keyset{handle: handle}, nil
}

// JSON returns the keyset in Tink's JSON form, unencrypted. It belongs in a Secret.
func (s Keyset) JSON() ([]byte, error) {
	var out bytes.Buffer
	if err := insecurecleartextkeyset.Write(s.handle, keyset.NewJSONWriter(&out)); err != nil {
		return nil, fmt.Errorf("writing the keyset: %w", err)
	}
	return out.Bytes(), nil
}

// Keys returns the keys of the set.
func (s Keyset) Keys() []KeysetKey {
	var out []KeysetKey
	for _, key := range insecurecleartextkeyset.KeysetMaterial(s.handle).GetKey() {
		out = append(out, KeysetKey{ID: key.GetKeyId(), Fingerprint: fingerprint("sealing", key.GetKeyData().GetValue())})
	}
	return out
}

// WithNewKey adds an AES-256-GCM key and returns its ID.
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

// Without removes a key. If it was the primary key, the newest remaining one becomes primary. It
// rejects removing the last key.
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

// Sealer returns a sealer with the given key that opens values of all keys.
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
