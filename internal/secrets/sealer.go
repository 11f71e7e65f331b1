// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/tink-crypto/tink-go/v2/tink"
)

// ErrUnsealable means that sealed bytes belong to another field, were changed, or were sealed with
// a key that the keyset lacks.
var ErrUnsealable = errors.New("sealed value cannot be opened")

// Sealer seals credentials with one key of a Tink keyset (AES-256-GCM), bound to their field, and
// opens values that any key of the keyset sealed.
type Sealer struct{ aead tink.AEAD }

// Field is the field that sealed bytes are bound to. They cannot be opened for another field.
type Field struct {
	ProjectID uuid.UUID
	// Kind and ObjectID identify the object within the project.
	Kind     string
	ObjectID uuid.UUID
	// Name is the field within the object.
	Name string
}

// associated is unambiguous, because IDs have equal length and a kind contains no '|'.
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

// Open decrypts bytes that were sealed for the same field, or returns ErrUnsealable.
func (s *Sealer) Open(field Field, sealed []byte) ([]byte, error) {
	plaintext, err := s.aead.Decrypt(sealed, field.associated())
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", field.Name, ErrUnsealable)
	}
	return plaintext, nil
}
