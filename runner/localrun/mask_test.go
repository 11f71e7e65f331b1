// SPDX-License-Identifier: Apache-2.0

package localrun

import (
	"encoding/base64"
	"testing"

	"github.com/stretchr/testify/require"
)

// A mask hides a secret inside a longer text in base64, and leaves the values of the run as they are.
func TestMask_HidesEncodedSecrets(t *testing.T) {
	t.Parallel()
	m := &mask{}
	m.addSecret("CANARY-sk-4711-abcdef")
	basic := base64.StdEncoding.EncodeToString([]byte("user:CANARY-sk-4711-abcdef"))
	value := map[string]any{"list": []any{map[string]any{"auth": "Basic " + basic}}}
	clean := m.redactObject(value)
	require.NotContains(t, clean["list"].([]any)[0].(map[string]any)["auth"], basic[len(basic)-20:])
	require.Equal(t, map[string]any{"list": []any{map[string]any{"auth": "Basic " + basic}}}, value)
	require.True(t, m.hasSecret("a CANARY-sk-4711-abcdef"))
	require.Nil(t, m.redactObject(nil))
}
