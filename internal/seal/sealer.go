// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/tink-crypto/tink-go/v2/tink"
)

// ErrUnsealable says that sealed bytes do not belong to the field they were
// found in, were changed, or were sealed under a key that the keyset lacks.
var ErrUnsealable = errors.New("sealed value cannot be opened")

// Sealer seals credentials with one key of a Tink keyset (AES-256-GCM), bound
// to the field they belong to, and opens what any key of it has sealed.
type Sealer struct{ aead tink.AEAD }

// Field is what sealed bytes are bound to: they open nowhere else.
type Field struct {
	ProjectID uuid.UUID
	// Kind and ObjectID name the object within the project.
	Kind     string
	ObjectID uuid.UUID
	// Name is the field within the object.
	Name string
}

// associated is unambiguous: ids have one length, and a kind has no '|'.
func (f Field) associated() []byte {
	return fmt.Appendf(nil, "%s|%s|%s|%s", f.ProjectID, f.Kind, f.ObjectID, f.Name)
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
