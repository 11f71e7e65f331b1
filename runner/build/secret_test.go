// SPDX-License-Identifier: Apache-2.0

package build_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/agentplatform/agentplatform/internal/egress"
)

// secret writes the files of a Git Secret from alternating names and contents.
func secret(t *testing.T, pairs ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(pairs); i += 2 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, pairs[i]), []byte(pairs[i+1]), 0o600))
	}
	return dir
}

func loopbackGuard(t *testing.T) *egress.Guard {
	t.Helper()
	allowed, err := egress.Flags{Allow: "git=127.0.0.0/8"}.Rules()
	require.NoError(t, err)
	return egress.New(allowed)
}

func marshalKey(key ssh.PublicKey) []byte { return ssh.MarshalAuthorizedKey(key) }

func firstOf(private string, _ ssh.PublicKey) string { return private }
