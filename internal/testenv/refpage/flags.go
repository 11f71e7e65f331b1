// SPDX-License-Identifier: Apache-2.0

package refpage

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Flags returns a table of flags for each command of a program that can run. Commands that have the same
// flags share a table. Variable returns the environment variable of a flag.
func Flags(root *cobra.Command, variable func(flag string) string) string {
	var tables []string
	names := map[string][]string{}
	var visit func(*cobra.Command)
	visit = func(cmd *cobra.Command) {
		if cmd.Runnable() && !cmd.IsAdditionalHelpTopicCommand() {
			table := flagTable(cmd.Flags(), variable)
			if names[table] == nil {
				tables = append(tables, table)
			}
			names[table] = append(names[table], fmt.Sprintf("`%s`: %s.", cmd.CommandPath(), strings.TrimSuffix(cmd.Short, ".")))
		}
		for _, child := range cmd.Commands() {
			visit(child)
		}
	}
	visit(root)
	var page strings.Builder
	for _, table := range tables {
		page.WriteString("\n" + strings.Join(names[table], "  \n") + "\n\n" + table)
	}
	return page.String()
}

func flagTable(flags *pflag.FlagSet, variable func(flag string) string) string {
	var table strings.Builder
	table.WriteString("| Flag | Environment variable | Default | Meaning |\n|---|---|---|---|\n")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		kind, usage := pflag.UnquoteUsage(f)
		flag := strings.TrimSpace("--" + f.Name + " " + kind)
		fmt.Fprintf(&table, "| `%s` | `%s` | %s | %s |\n", flag, variable(f.Name), codeStyle(f.DefValue), sentence(usage))
	})
	return table.String()
}

// codeStyle returns a value in code style, and nothing for values that mean none.
func codeStyle(value string) string {
	if value == "" || value == "[]" {
		return ""
	}
	return "`" + value + "`"
}

// sentence makes a sentence of a usage text, which begins with a small letter and has no full stop.
func sentence(usage string) string {
	usage = strings.TrimSuffix(strings.ReplaceAll(usage, "|", `\|`), ".")
	return strings.ToUpper(usage[:1]) + usage[1:] + "."
}
