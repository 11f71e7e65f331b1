// SPDX-License-Identifier: Apache-2.0

package open_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/cmd/internal/flagenv"
	"github.com/agentplatform/agentplatform/cmd/internal/open"
)

// started runs a program that opens its store.
func started(t *testing.T, args ...string) error {
	t.Helper()
	var o open.Options
	cmd := &cobra.Command{Use: "program", SilenceUsage: true, SilenceErrors: true, RunE: func(cmd *cobra.Command, _ []string) error {
		st, err := open.Store(cmd.Context(), o)
		if err != nil {
			return err
		}
		return st.Close()
	}}
	o.Bind(cmd.Flags())
	flagenv.Bind(cmd)
	cmd.SetArgs(args)
	return cmd.ExecuteContext(t.Context())
}

// The flag or its variable limits the connections. The error for a value outside the limits names the flag and the valid range.
func TestStore_LimitsConnections(t *testing.T) {
	dsn := filepath.Join(t.TempDir(), "dsn")
	require.NoError(t, os.WriteFile(dsn, []byte("postgres://nobody@127.0.0.1:1/none?sslmode=disable"), 0o600))
	of := "--store-dsn-file=" + dsn
	for value, wrong := range map[string]bool{"7": true, "8": false, "1000": false, "1001": true, "-1": true} {
		t.Run(value, func(t *testing.T) {
			err := started(t, of, "--store-connections="+value)
			if !wrong {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "--store-connections")
			require.ErrorContains(t, err, "choose 8 to 1000")
		})
	}
	require.NoError(t, started(t, of))
	t.Setenv("AGENTPLATFORM_STORE_CONNECTIONS", "3")
	require.ErrorContains(t, started(t, of), "3 connections")
}

// Exactly one store must be configured.
func TestStore_RequiresOneEngine(t *testing.T) {
	t.Parallel()
	require.ErrorContains(t, started(t), "name one store")
	require.ErrorContains(t, started(t, "--sqlite=a", "--store-dsn-file=b"), "name one store")
}
