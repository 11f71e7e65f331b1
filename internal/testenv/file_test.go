// SPDX-License-Identifier: Apache-2.0

package testenv_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/testenv"
)

func TestFilePrepared_PreparesOnce(t *testing.T) {
	t.Parallel()
	times := 0
	prepare := func(path string) error {
		times++
		return os.WriteFile(path, []byte("first"), 0o600)
	}
	one, other := testenv.FilePrepared(t, "a text", prepare), testenv.FilePrepared(t, "a text", prepare)
	require.Equal(t, 1, times)
	require.NoError(t, os.WriteFile(one, []byte("changed"), 0o600))
	content, err := os.ReadFile(other)
	require.NoError(t, err)
	require.Equal(t, "first", string(content), "each test has its own")
}
