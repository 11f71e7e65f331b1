// SPDX-License-Identifier: Apache-2.0

// Package scriptchild is the command that executes scripts. Each program that runs agents starts itself with it.
package scriptchild

import (
	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/runner/script"
)

// New returns the command.
func New() *cobra.Command {
	var memory uint64
	cmd := &cobra.Command{
		Use:    "script",
		Short:  "Execute scripts for the process that starts this command",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE:   func(*cobra.Command, []string) error { return script.Main(memory) },
	}
	cmd.Flags().Uint64Var(&memory, "memory", script.DefaultMemory, "memory limit of a script in bytes, between 64 MiB and 512 MiB")
	return cmd
}
