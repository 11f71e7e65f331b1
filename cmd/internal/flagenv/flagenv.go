// SPDX-License-Identifier: Apache-2.0

// Package flagenv lets the environment stand in for flags.
package flagenv

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

// Prefix begins the names of the environment variables.
const Prefix = "AGENTPLATFORM_"

// Name is the environment variable of a flag: --public-addr is
// AGENTPLATFORM_PUBLIC_ADDR.
func Name(flag string) string {
	return Prefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Read sets the flags that were not given to the values of their variables. An
// error names the variable that is no value of its flag.
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
