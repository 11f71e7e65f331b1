// SPDX-License-Identifier: Apache-2.0

package reap

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDir_SuitsSocketsAndOtherUsers(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "base-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	inner := filepath.Join(dir, "in")
	require.NoError(t, os.Mkdir(inner, 0o755))

	require.NoError(t, os.Chmod(dir, 0o755))
	require.Equal(t, dir, baseFolder(dir))
	require.Equal(t, inner, baseFolder(inner))
	require.NoError(t, os.Chmod(dir, 0o700))
	require.Equal(t, "/tmp", baseFolder(dir), "no other user may enter it")
	require.Equal(t, "/tmp", baseFolder(inner), "no other user gets there")
	require.Equal(t, "/tmp", baseFolder("/tmp/there/is/none"))
	require.Equal(t, "/tmp", baseFolder("/tmp/"+strings.Repeat("a", longestBase)))
}
