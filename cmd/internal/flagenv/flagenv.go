// SPDX-License-Identifier: Apache-2.0

// Package flagenv sets the flags of all programs from environment variables.
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

// Bind makes every command of a program read its flags from environment variables, and adds this to the program's help.
func Bind(root *cobra.Command) {
	if root.Long == "" {
		root.Long = root.Short + "."
	}
	root.Long += "\n\nEvery flag can also be set by an environment variable: --some-flag is " + Name("some-flag") + "."
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return Read(cmd.Flags()) }
}

// Read sets the flags that are not on the command line to the values of their variables. An error names the variable with the
// invalid value. Commands do not need to call Read, because Bind calls it before each command.
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
