// SPDX-License-Identifier: Apache-2.0

package runnerconfig_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/runnerconfig"
)

// White space inside the value stays, or makes it invalid.
func TestCredential_DropsSurroundingWhiteSpace(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, value, want string
		refused           bool
	}{
		{"as it is", "sk-1", "sk-1", false},
		{"line break", "sk-1\n", "sk-1", false},
		{"line break of Windows", "sk-1\r\n", "sk-1", false},
		{"around", " \tsk-1 \n\n", "sk-1", false},
		{"space inside", "a b", "a b", false},
		{"other letters", "pässword", "pässword", false},
		{"empty", "", "", false},
		{"white space alone", " \n", "", false},
		{"line break inside", "sk-1\nsk-2\n", "", true},
		{"tab inside", "a\tb", "", true},
		{"NUL inside", "a\x00b", "", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, problem := runnerconfig.Credential(row.value)
			require.Equal(t, row.want, got)
			require.Equal(t, row.refused, problem != "", problem)
			require.NotContains(t, problem, "sk-1", "the value is not told")
		})
	}
}
