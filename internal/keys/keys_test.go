// SPDX-License-Identifier: Apache-2.0

package keys

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGenerate_ParsesAgain(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for range 1000 {
		key := Generate()
		parsed, err := Parse(key.String())
		require.NoError(t, err)
		require.Equal(t, key, parsed)
		require.Len(t, key.ID(), 8)
		require.True(t, parsed.Matches(key.Hash()))
		require.False(t, seen[key.String()])
		seen[key.String()] = true
	}
}

func TestParse_KnownKey(t *testing.T) {
	t.Parallel()
	const text = "ap_0123abcd_ABCDEFGHIJKLMNOPQRSTUVWXYZab_"
	key, err := Parse(text + checksum(strings.TrimSuffix(text, "_")))
	require.NoError(t, err)
	require.Equal(t, "0123abcd", key.ID())
	require.Len(t, key.Hash(), 64)
}

func TestParse_DetectsTypos(t *testing.T) {
	t.Parallel()
	text := Generate().String()
	for i := range text {
		changed := []byte(text)
		changed[i] ^= 1
		_, err := Parse(string(changed))
		require.ErrorIs(t, err, ErrMalformed, "position %d", i)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(Generate().String())
	f.Add("")
	f.Add("ap__")
	f.Fuzz(func(t *testing.T, text string) {
		key, err := Parse(text)
		if err == nil && key.String() != text {
			t.Fatalf("%q parsed as %q", text, key)
		}
	})
}
