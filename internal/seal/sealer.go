// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/tink"
)

// ErrUnsealable says that sealed bytes do not belong to the field they were
// found in, were changed, or were sealed under a key that the keyset lacks.
var ErrUnsealable = errors.New("sealed value cannot be opened")

// Sealer seals credentials with a Tink keyset (AES-256-GCM), bound to the
// field they belong to.
type Sealer struct{ aead tink.AEAD }

// Field is what sealed bytes are bound to: they open nowhere else.
type Field struct {
	ProjectID, ConnectorID uuid.UUID
	Name                   string
}

func (f Field) associated() []byte {
	return fmt.Appendf(nil, "%s|%s|%s", f.ProjectID, f.ConnectorID, f.Name)
}

// GenerateKeyset returns a new keyset in Tink's JSON form, in the clear: it
// belongs into a Secret.
func GenerateKeyset() ([]byte, error) {
	handle, err := keyset.NewHandle(aead.AES256GCMKeyTemplate())
	if err != nil {
		return nil, fmt.Errorf("generating a keyset: %w", err)
	}
	var out bytes.Buffer
	if err := insecurecleartextkeyset.Write(handle, keyset.NewJSONWriter(&out)); err != nil {
		return nil, fmt.Errorf("writing a keyset: %w", err)
	}
	return out.Bytes(), nil
}

// NewSealer reads a keyset in Tink's JSON form.
func NewSealer(keysetJSON []byte) (*Sealer, error) {
	handle, err := insecurecleartextkeyset.Read(keyset.NewJSONReader(bytes.NewReader(keysetJSON)))
	if err != nil {
		return nil, fmt.Errorf("reading the sealing keyset: %w", err)
	}
	primitive, err := aead.New(handle)
	if err != nil {
		return nil, fmt.Errorf("using the sealing keyset: %w", err)
	}
	return &Sealer{aead: primitive}, nil
}

// Seal encrypts plaintext for a field.
func (s *Sealer) Seal(field Field, plaintext []byte) ([]byte, error) {
	sealed, err := s.aead.Encrypt(plaintext, field.associated())
	if err != nil {
		return nil, fmt.Errorf("sealing %s: %w", field.Name, err)
	}
	return sealed, nil
}

// Open decrypts what was sealed for the same field; ErrUnsealable otherwise.
func (s *Sealer) Open(field Field, sealed []byte) ([]byte, error) {
	plaintext, err := s.aead.Decrypt(sealed, field.associated())
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", field.Name, ErrUnsealable)
	}
	return plaintext, nil
}
