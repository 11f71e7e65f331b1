// SPDX-License-Identifier: Apache-2.0

package secrets

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

func derivationKey(t *testing.T, b byte) DerivationKey {
	t.Helper()
	key, err := NewDerivationKey(bytes.Repeat([]byte{b}, DerivationKeyBytes))
	require.NoError(t, err)
	return key
}

// The values are recorded, because a change of the derivation would rotate the secrets of all
// webhooks.
func TestSecret_IsStable(t *testing.T) {
	t.Parallel()
	key := derivationKey(t, 7)
	of := Generated{ProjectID: other, ConnectorID: id, Version: 1}
	require.Equal(t, "whs_bZ5VsAsNCP-W-s8zXztsPvQUKZSHpmbcvWh2qjkpq8g", key.Secret(of))
	standard := key.Secret(Generated{ProjectID: other, ConnectorID: id, Version: 1, Standard: true})
	require.Equal(t, "whsec_bZ5VsAsNCP+W+s8zXztsPvQUKZSHpmbcvWh2qjkpq8g=", standard, "the same in another form")
	signing := key.SigningSecret(of)
	require.Equal(t, "whsec_9Aj53KBkjo4gmo9P+vg1yyhEn6oz3IjiKlqtexo5hKs=", signing)
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(signing, SigningSecretPrefix))
	require.NoError(t, err)
	require.Len(t, raw, DerivationKeyBytes)
}

func TestSecret_DependsOnAllInputs(t *testing.T) {
	t.Parallel()
	key, another := derivationKey(t, 7), derivationKey(t, 8)
	of := Generated{ProjectID: other, ConnectorID: id, Version: 1}
	seen := map[string]string{}
	for name, secret := range map[string]string{
		"the secret":                   key.Secret(of),
		"of another version":           key.Secret(Generated{ProjectID: other, ConnectorID: id, Version: 2}),
		"of another project":           key.Secret(Generated{ProjectID: id, ConnectorID: id, Version: 1}),
		"of another connector":         key.Secret(Generated{ProjectID: other, ConnectorID: other, Version: 1}),
		"of another key":               another.Secret(of),
		"for signing":                  key.SigningSecret(of),
		"for signing, another version": key.SigningSecret(Generated{ProjectID: other, ConnectorID: id, Version: 2}),
	} {
		t.Run(name, func(t *testing.T) {
			raw := strings.TrimPrefix(strings.TrimPrefix(secret, SigningSecretPrefix), "whs_")
			raw = strings.TrimRight(strings.NewReplacer("-", "+", "_", "/").Replace(raw), "=")
			require.Empty(t, seen[raw], "%s is as %s", name, seen[raw])
			seen[raw] = name
		})
	}
}

func TestNewDerivationKey_ChecksLength(t *testing.T) {
	t.Parallel()
	for _, length := range []int{0, 16, 31, 33} {
		_, err := NewDerivationKey(make([]byte, length))
		require.ErrorIs(t, err, ErrKeyLength)
	}
}

func TestFingerprint_IdentifiesKey(t *testing.T) {
	t.Parallel()
	key := derivationKey(t, 7)
	require.Equal(t, key.Fingerprint(), derivationKey(t, 7).Fingerprint())
	require.NotEqual(t, key.Fingerprint(), derivationKey(t, 8).Fingerprint())
	require.NotEqual(t, fingerprint("sealing", key.Bytes()), key.Fingerprint())
}

func TestSealer_OpensOnlyForSameField(t *testing.T) {
	t.Parallel()
	set, err := NewKeyset()
	require.NoError(t, err)
	sealer, err := set.Sealer(set.Keys()[0].ID)
	require.NoError(t, err)
	field := Field{ProjectID: id, Kind: "Connector", ObjectID: other, Name: "credentials"}
	sealed, err := sealer.Seal(field, []byte("CANARY"))
	require.NoError(t, err)
	require.NotContains(t, string(sealed), "CANARY")

	opened, err := sealer.Open(field, sealed)
	require.NoError(t, err)
	require.Equal(t, "CANARY", string(opened))

	for _, wrong := range []Field{
		{ProjectID: other, Kind: "Connector", ObjectID: other, Name: "credentials"},
		{ProjectID: id, Kind: "Environment", ObjectID: other, Name: "credentials"},
		{ProjectID: id, Kind: "Connector", ObjectID: id, Name: "credentials"},
		{ProjectID: id, Kind: "Connector", ObjectID: other, Name: "url"},
	} {
		_, err := sealer.Open(wrong, sealed)
		require.ErrorIs(t, err, ErrUnsealable)
	}
	sealed[len(sealed)-1] ^= 1
	_, err = sealer.Open(field, sealed)
	require.ErrorIs(t, err, ErrUnsealable)
}

func TestKeyset_SealsWithOneKeyAndOpensWithAll(t *testing.T) {
	t.Parallel()
	first, err := NewKeyset()
	require.NoError(t, err)
	old := first.Keys()[0].ID
	both, young, err := first.WithNewKey()
	require.NoError(t, err)
	require.Len(t, first.Keys(), 1, "a keyset is a value")
	field := Field{ProjectID: id, Kind: "Connector", ObjectID: other, Name: "credentials"}
	sealed := map[uint32][]byte{}
	for _, with := range []uint32{old, young} {
		sealer, err := both.Sealer(with)
		require.NoError(t, err)
		sealed[with], err = sealer.Seal(field, []byte("CANARY"))
		require.NoError(t, err)
	}
	raw, err := both.JSON()
	require.NoError(t, err)
	parsed, err := ParseKeyset(raw)
	require.NoError(t, err)
	require.Equal(t, both.Keys(), parsed.Keys())
	sealer, err := parsed.Sealer(young)
	require.NoError(t, err)
	opened, err := sealer.Open(field, sealed[old])
	require.NoError(t, err)
	require.Equal(t, "CANARY", string(opened))

	less, err := parsed.Without(old)
	require.NoError(t, err)
	require.Len(t, parsed.Keys(), 2)
	sealer, err = less.Sealer(young)
	require.NoError(t, err)
	_, err = sealer.Open(field, sealed[old])
	require.ErrorIs(t, err, ErrUnsealable, "the key is gone")
	_, err = sealer.Open(field, sealed[young])
	require.NoError(t, err, "the other key sealed this one")
	less, err = less.Without(young)
	require.NoError(t, err)
	require.Len(t, less.Keys(), 1, "the last key stays")
	_, err = both.Sealer(old + young + 1)
	require.Error(t, err)
}
