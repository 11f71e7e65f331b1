// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/cmd/internal/flagenv"
	"github.com/agentplatform/agentplatform/cmd/internal/open"
	"github.com/agentplatform/agentplatform/internal/testenv/refpage"
)

// placeholders describe the arguments of all commands. The test fails if one is missing.
var placeholders = map[string]string{
	"AGENT":         "Name of an agent of the folder, or of an A/B variant.",
	"CONNECTOR":     "Name or ID of a connector. `agentctl connectors` lists both.",
	"CONNECTOR-RUN": "ID of a connector run.",
	"DEPLOYMENT":    "ID of a deployment, or the first 7 or more characters of its commit, or `sha256:` and the first 7 or more characters of the digest of its upload. `agentctl status` lists them.",
	"ENVIRONMENT":   "Slug or ID of an environment.",
	"FILE":          "File to send; `-` is standard input.",
	"FOLDER":        "Folder of a project.",
	"KEY-ID":        "ID of a platform key. `agentctl keys status` lists the keys.",
	"KIND":          "Kind of a file. `agentctl schema` lists the kinds.",
	"NAME":          "Name of the object: an API key, an environment or a variable.",
	"RUN":           "ID of a run. `agentctl runs` lists the runs.",
	"URL":           "URL, such as `http://127.0.0.1:3000/hook`.",
	"VALUE":         "Value of a variable.",
}

// placeholder matches an argument in a usage line.
var placeholder = regexp.MustCompile(`[A-Z]+(-[A-Z]+)*`)

// sharedFlags are groups of flags that several commands have.
var sharedFlags = []struct {
	title, intro string
	bind         func(*pflag.FlagSet)
}{
	{"REST API flags", "Commands that call the REST API have these flags.", (&restOptions{}).bindFlags},
	{"Kubernetes flags", "Commands that call the Kubernetes API have these flags. In a pod the default is the pod's own cluster.", (&clusterOptions{}).bindFlags},
	{"Store flags", "Commands that open the data store have these flags. Set exactly one of `--sqlite` and `--store-dsn-file`.", (&open.Options{}).Bind},
}

// The page docs/reference/cli.md describes all commands with their arguments, flags and exit codes.
func TestReference_DescribesAllCommands(t *testing.T) {
	t.Parallel()
	root := newRootCommand("agentctl")
	for _, name := range usedPlaceholders(listCommands(root)) {
		require.Contains(t, placeholders, name, "an argument without a description")
	}
	refpage.Check(t, "cli.md", referencePage(root))
}

// referencePage returns the reference of all commands below root.
func referencePage(root *cobra.Command) string {
	var page strings.Builder
	commands := listCommands(root)
	fmt.Fprintf(&page, `# agentctl reference

All commands, arguments, flags and exit codes of agentctl. The [guide](../agentctl.md) introduces them by task.

Every flag can also be set by an environment variable: `+"`--some-flag` is `%s`"+`. A flag on the command line takes
precedence. `+"`agentctl completion SHELL`"+` prints completions for bash, zsh, fish or powershell.

## Commands

| Command | Purpose |
|---|---|
`, flagenv.Name("some-flag"))
	for _, cmd := range commands {
		path := cmd.CommandPath()
		fmt.Fprintf(&page, "| [`%s`](#%s) | %s |\n", path, strings.ReplaceAll(path, " ", "-"), cmd.Short)
	}
	page.WriteString("\n## Arguments\n\n| Argument | Meaning |\n|---|---|\n")
	for _, name := range usedPlaceholders(commands) {
		fmt.Fprintf(&page, "| `%s` | %s |\n", name, placeholders[name])
	}
	fmt.Fprintf(&page, `
## Exit codes

| Code | Meaning |
|---|---|
| 0 | The command succeeded. |
| %d | The command failed. |
| %d | The command succeeded, but its subject failed. The commands that use this code say what it means. |
`, exitFailed, exitOutcome)
	for _, group := range sharedFlags {
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		group.bind(flags)
		fmt.Fprintf(&page, "\n## %s\n\n%s\n\n%s", group.title, group.intro, flagTable(flags))
	}
	for _, cmd := range commands {
		writeCommand(&page, cmd)
	}
	return page.String()
}

// listCommands returns the commands below a command that can be run, in the order of the help.
func listCommands(cmd *cobra.Command) (commands []*cobra.Command) {
	for _, sub := range cmd.Commands() {
		if sub.Hidden || sub.Name() == "help" || sub.Name() == "completion" {
			continue
		}
		if sub.Runnable() {
			commands = append(commands, sub)
		}
		commands = append(commands, listCommands(sub)...)
	}
	return commands
}

// usedPlaceholders returns the sorted arguments in the usage lines of commands.
func usedPlaceholders(commands []*cobra.Command) (names []string) {
	for _, cmd := range commands {
		names = append(names, placeholder.FindAllString(cmd.Use, -1)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// writeCommand writes the section of a command.
func writeCommand(page *strings.Builder, cmd *cobra.Command) {
	long := cmd.Long
	if long == "" {
		long = cmd.Short + "."
	}
	flags, groups := ownFlags(cmd)
	usage := strings.TrimSuffix(cmd.CommandPath(), cmd.Name()) + cmd.Use
	if flags.HasFlags() || len(groups) > 0 {
		usage += " [flags]"
	}
	fmt.Fprintf(page, "\n## %s\n\n%s\n\n```console\n$ %s\n```\n", cmd.CommandPath(), convertLong(long), usage)
	if cmd.Example != "" {
		lines := strings.Split(cmd.Example, "\n")
		for i, line := range lines {
			lines[i] = "$ " + strings.TrimPrefix(line, "  ")
		}
		fmt.Fprintf(page, "\nExamples:\n\n```console\n%s\n```\n", strings.Join(lines, "\n"))
	}
	if flags.HasFlags() {
		page.WriteString("\n" + flagTable(flags))
	}
	if len(groups) > 0 {
		fmt.Fprintf(page, "\nThe command also has the %s.\n", strings.Join(groups, " and the "))
	}
}

// ownFlags returns the flags of a command, and links to the groups that its other flags belong to.
func ownFlags(cmd *cobra.Command) (own *pflag.FlagSet, groups []string) {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	all.AddFlagSet(cmd.LocalFlags())
	all.AddFlagSet(cmd.InheritedFlags())
	shared := map[string]bool{"help": true}
	for _, group := range sharedFlags {
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		group.bind(flags)
		complete := true
		flags.VisitAll(func(f *pflag.Flag) {
			has := all.Lookup(f.Name)
			complete = complete && has != nil && has.Usage == f.Usage
		})
		if complete {
			flags.VisitAll(func(f *pflag.Flag) { shared[f.Name] = true })
			groups = append(groups, fmt.Sprintf("[%s](#%s)", group.title, strings.ToLower(strings.ReplaceAll(group.title, " ", "-"))))
		}
	}
	own = pflag.NewFlagSet("", pflag.ContinueOnError)
	all.VisitAll(func(f *pflag.Flag) {
		if !shared[f.Name] {
			own.AddFlag(f)
		}
	})
	return own, groups
}

// flagTable returns the table of flags. It leaves out default values that are empty.
func flagTable(flags *pflag.FlagSet) string {
	var table strings.Builder
	table.WriteString("| Flag | Type | Default | Meaning |\n|---|---|---|---|\n")
	flags.VisitAll(func(f *pflag.Flag) {
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		value := ""
		if !slices.Contains([]string{"", "[]", "false", "0s"}, f.DefValue) {
			value = "`" + f.DefValue + "`"
		}
		usage := strings.ToUpper(f.Usage[:1]) + f.Usage[1:]
		fmt.Fprintf(&table, "| %s | %s | %s | %s |\n", name, f.Value.Type(), value, strings.NewReplacer("|", `\|`, "*", `\*`).Replace(usage))
	})
	return table.String()
}

// convertLong converts a help text to Markdown: indented lines become code.
func convertLong(text string) string {
	var out strings.Builder
	code := false
	for line := range strings.Lines(text) {
		indented := strings.HasPrefix(line, "  ")
		if indented != code && strings.TrimSpace(line) != "" {
			if code = indented; code {
				out.WriteString("```text\n")
			} else {
				closeFence(&out)
			}
		}
		if code {
			out.WriteString(strings.TrimPrefix(line, "  "))
		} else {
			out.WriteString(strings.ReplaceAll(line, "*", `\*`))
		}
	}
	if code {
		out.WriteString("\n")
		closeFence(&out)
	}
	return strings.TrimSpace(out.String())
}

// closeFence ends a code block before the empty lines that follow it.
func closeFence(out *strings.Builder) {
	text := strings.TrimRight(out.String(), "\n")
	out.Reset()
	out.WriteString(text + "\n```\n\n")
}
