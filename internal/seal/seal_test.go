// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

var (
	id    = uuid.MustParse("0d9e1c2b-6f0e-5a3c-9b7d-1f2e3d4c5b6a")
	other = uuid.MustParse("0d9e1c2b-6f0e-5a3c-9b7d-1f2e3d4c5b6b")
)

// The values are recorded: a change of the derivation would rotate the secret
// of every webhook in the world.
func TestDerivedSecretsAreFixed(t *testing.T) {
	t.Parallel()
	key, err := NewDerivationKey(bytes.Repeat([]byte{7}, 32))
	require.NoError(t, err)
	require.Equal(t, "whs_uCUdOc4LZmh3jzLTOu8Y3N3lnvCFmeNr3ULTB-dM0yI", key.Secret(id, 1))
	signing := key.SigningSecret(id, 1)
	require.True(t, strings.HasPrefix(signing, SigningSecretPrefix))
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(signing, SigningSecretPrefix))
	require.NoError(t, err)
	require.Len(t, raw, 32)
}

func TestDerivedSecretsDiffer(t *testing.T) {
	t.Parallel()
	key, err := NewDerivationKey(bytes.Repeat([]byte{7}, 32))
	require.NoError(t, err)
	another, err := NewDerivationKey(bytes.Repeat([]byte{8}, 32))
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, secret := range []string{
		key.Secret(id, 1), key.Secret(id, 2), key.Secret(other, 1), another.Secret(id, 1),
		key.SigningSecret(id, 1), key.SigningSecret(id, 2),
	} {
		require.False(t, seen[secret], secret)
		seen[secret] = true
	}
}

func TestShortKeysAreRefused(t *testing.T) {
	t.Parallel()
	_, err := NewDerivationKey(make([]byte, 31))
	require.ErrorIs(t, err, ErrShortKey)
	_, err = NewDerivationKey(nil)
	require.ErrorIs(t, err, ErrShortKey)
	_, err = NewDerivationKey(GenerateDerivationKey())
	require.NoError(t, err)
}

func TestSealedValuesOpenInTheirFieldOnly(t *testing.T) {
	t.Parallel()
	keyset, err := GenerateKeyset()
	require.NoError(t, err)
	sealer, err := NewSealer(keyset)
	require.NoError(t, err)
	field := Field{ProjectID: id, ConnectorID: other, Name: "headers"}
	sealed, err := sealer.Seal(field, []byte("CANARY"))
	require.NoError(t, err)
	require.NotContains(t, string(sealed), "CANARY")

	opened, err := sealer.Open(field, sealed)
	require.NoError(t, err)
	require.Equal(t, "CANARY", string(opened))

	for _, wrong := range []Field{
		{ProjectID: other, ConnectorID: other, Name: "headers"},
		{ProjectID: id, ConnectorID: id, Name: "headers"},
		{ProjectID: id, ConnectorID: other, Name: "url"},
	} {
		_, err := sealer.Open(wrong, sealed)
		require.ErrorIs(t, err, ErrUnsealable)
	}
	sealed[len(sealed)-1] ^= 1
	_, err = sealer.Open(field, sealed)
	require.ErrorIs(t, err, ErrUnsealable)
}
