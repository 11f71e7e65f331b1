// SPDX-License-Identifier: Apache-2.0

// Package flagenv lets the environment stand in for flags, alike in all programs.
package flagenv

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Prefix begins the names of the environment variables.
const Prefix = "AGENTPLATFORM_"

// Name is the environment variable of a flag: --public-addr is
// AGENTPLATFORM_PUBLIC_ADDR.
func Name(flag string) string {
	return Prefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Bind lets every command of a program take its flags from the environment, and
// says so in the program's help.
func Bind(root *cobra.Command) {
	if root.Long == "" {
		root.Long = root.Short + "."
	}
	root.Long += "\n\nEvery flag may also be given by the environment: --some-flag is " + Name("some-flag") + "."
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return Read(cmd.Flags()) }
}

// Read sets the flags that were not given to the values of their variables. An
// error names the variable whose value the flag does not take. Commands need not call
// it: Bind lets them be read before each.
func Read(flags *pflag.FlagSet) error {
	var failed error
	flags.VisitAll(func(f *pflag.Flag) {
		value, ok := os.LookupEnv(Name(f.Name))
		if !ok || f.Changed || failed != nil {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			failed = fmt.Errorf("reading %s: %w", Name(f.Name), err)
		}
	})
	return failed
}
