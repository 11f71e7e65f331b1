// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/restclient"
	"github.com/agentplatform/agentplatform/runner/build"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/engine/features"
)

// lintOptions are the flags of `lint`.
type lintOptions struct {
	restOptions
	output

	environment, dir string
	out, messages    io.Writer
}

func newLintCommand() *cobra.Command {
	o := &lintOptions{}
	cmd := &cobra.Command{
		Use:   "lint [FOLDER]",
		Short: "Check a project repository as a build does",
		Long: `Check a project repository as a build does. The default is the current folder. This needs no
platform.

With --environment the command also asks the REST API whether an environment has the
variables that the files name: prompts, connectors, tools, MCP servers and scripts.

The command warns about files that no build reads, but whose names look as if it should, such
as a folder agent. It also warns about models without a key on this machine, about
placeholders that never get a value, such as {order-id}, {{name}} and ${name} in a prompt,
and about names that no variable can have.`,
		Example: `  agentctl lint
  agentctl lint my-agents -o json
  agentctl lint --environment production`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.out, o.messages, o.dir = cmd.OutOrStdout(), cmd.ErrOrStderr(), folderArgument(args)
			return o.lintFolder(cmd.Context())
		},
	}
	setOutcome(cmd, "there are problems")
	flags := cmd.Flags()
	o.restOptions.bindFlags(flags)
	o.output.bindFlags(flags)
	flags.StringVar(&o.environment, "environment", "", "slug or ID of an environment that must have the variables; without it no server is asked")
	return cmd
}

// folderArgument returns the folder that the arguments name, or else the current one.
func folderArgument(args []string) string {
	if len(args) == 0 {
		return "."
	}
	return filepath.Clean(args[0])
}

// checkRepository reads a repository and returns its problems, as a build does.
func checkRepository(dir string) (*bundle.Project, bundle.Problems, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("opening the repository: %w", err)
	}
	defer root.Close()
	project, problems, err := build.Check(root.FS(), engine.New(engine.Config{Features: features.New(features.Config{})}).Check)
	if err != nil {
		return nil, nil, fmt.Errorf("checking %s: %w", dir, err)
	}
	return project, problems, nil
}

func (o *lintOptions) lintFolder(ctx context.Context) error {
	project, problems, err := checkRepository(o.dir)
	if err != nil {
		return err
	}
	printWarnings(o.messages, o.dir, slices.Concat(findMisnamed(o.dir), engine.Warn(project), warnModels(project, os.Getenv)))
	var uses []bundle.VariableUse
	if project != nil {
		uses = project.VariableUses()
	}
	if o.environment != "" {
		missing, err := o.checkVariables(ctx, uses)
		if err != nil {
			return err
		}
		problems = problems.With(missing)
	}
	if o.output != outputText {
		err = o.printValue(o.out, inFolder(o.dir, problems))
	} else {
		printProblems(o.out, o.dir, problems)
	}
	if err != nil {
		return err
	}
	if o.environment == "" && len(uses) > 0 {
		fmt.Fprintf(o.messages, "not checked: whether an environment has the variables %s; --environment checks it\n", strings.Join(variableNames(uses), ", "))
	}
	if len(problems) > 0 {
		return &outcomeError{formatCount(len(problems), "problem") + " in " + formatCount(len(problemFiles(problems)), "file")}
	}
	fmt.Fprintf(o.messages, "%s: no problems in %s, %s and %s\n", paintAs(o.messages, green, "ok"),
		formatCount(len(project.Agents), "agent"), formatCount(len(project.Connectors), "connector"), formatCount(countCases(project), "test case"))
	return nil
}

// checkVariables returns a problem for each variable that the environment does not have, or that is sensitive and used where it
// must not be.
func (o *lintOptions) checkVariables(ctx context.Context, uses []bundle.VariableUse) (problems bundle.Problems, err error) {
	api, err := o.newClient()
	if err != nil {
		return nil, err
	}
	e, err := api.findEnvironment(ctx, "--environment", o.environment)
	if err != nil {
		return nil, err
	}
	known, err := api.readVariables(ctx, e)
	if err != nil {
		return nil, err
	}
	for _, use := range uses {
		at := slices.IndexFunc(known.Value, func(v restclient.Variable) bool { return v.Name == use.Name })
		switch {
		case at < 0:
			problems = append(problems, bundle.Problem{Position: use.Position, Message: fmt.Sprintf("environment %s has no variable %s; add it, or correct the name", e.Slug, use.Name)})
		case known.Value[at].Sensitive && !use.AllowsSensitive:
			problems = append(problems, bundle.Problem{Position: use.Position, Message: fmt.Sprintf("the variable %s of environment %s is sensitive, and cannot be used here", use.Name, e.Slug)})
		}
	}
	return problems, nil
}

// variableNames returns the sorted names without duplicates.
func variableNames(uses []bundle.VariableUse) (names []string) {
	for _, use := range uses {
		names = append(names, use.Name)
	}
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

// inFolder returns problems with the paths of their files from the current folder.
func inFolder(dir string, problems bundle.Problems) bundle.Problems {
	out := make(bundle.Problems, len(problems))
	for i, p := range problems {
		out[i] = bundle.Problem{Position: joinPosition(dir, p.Position), Message: p.Message}
	}
	return out
}

// printProblems writes problems, one per line. On a terminal an empty line separates files.
func printProblems(out io.Writer, dir string, problems bundle.Problems) {
	previous := ""
	for _, p := range inFolder(dir, problems) {
		if isTerminal(out) && previous != "" && p.File != previous {
			fmt.Fprintln(out)
		}
		previous = p.File
		fmt.Fprintf(out, "%s: %s\n", paintAs(out, bold, printable(p.Position.String())), printable(p.Message))
	}
}

// problemFiles returns the files of problems without duplicates.
func problemFiles(problems bundle.Problems) (files []string) {
	for _, p := range problems {
		if !slices.Contains(files, p.File) {
			files = append(files, p.File)
		}
	}
	return files
}

func countCases(project *bundle.Project) (n int) {
	for _, s := range project.Suites {
		n += len(s.Cases)
	}
	return n
}

// formatCount returns a number with its noun.
func formatCount(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// readRepository returns the project of a repository that a build accepts. It prints warnings and problems to messages. The
// error of a repository with problems ends with the consequence, such as "nothing was run".
func readRepository(dir string, messages io.Writer, consequence string) (*bundle.Project, error) {
	project, problems, err := checkRepository(dir)
	if err != nil {
		return nil, err
	}
	printWarnings(messages, dir, findMisnamed(dir))
	if len(problems) > 0 {
		printProblems(messages, dir, problems)
		return nil, fmt.Errorf("%s in the repository; %s", formatCount(len(problems), "problem"), consequence)
	}
	return project, nil
}

// warnModels returns a warning for each model provider without an address and a key on this machine. The project is nil if it
// could not be read.
func warnModels(project *bundle.Project, getenv func(string) string) (warnings bundle.Problems) {
	if project == nil {
		return nil
	}
	var seen []string
	for _, a := range project.Agents {
		for _, use := range a.Models() {
			prefixes := addProvider(nil, use.Reference)
			if len(prefixes) == 0 || slices.Contains(seen, prefixes[0]) {
				continue
			}
			seen = append(seen, prefixes[0])
			name := variablePrefix(prefixes[0])
			if getenv(name+"_BASE_URL") != "" || getenv(name+"_API_KEY") != "" {
				continue
			}
			variables := name + "_BASE_URL and " + name + "_API_KEY"
			if prefixes[0] == openAI {
				variables = name + "_API_KEY"
			}
			warnings = append(warnings, bundle.Problem{Position: a.At(use.Keys...), Message: fmt.Sprintf(
				"this machine has no key for %s, so run, and tests without a mock, cannot ask the model; set %s", use.Reference, variables)})
		}
	}
	return warnings
}

// variablePrefix returns the begin of the names of the environment variables for a provider.
func variablePrefix(provider string) string {
	return strings.ToUpper(strings.ReplaceAll(provider, "-", "_"))
}

// errEnough ends the walk through a folder.
var errEnough = errors.New("more files than a repository may have")

// findMisnamed returns warnings about files that no build reads, but whose names look as if it should. It ignores errors,
// because reading the repository reports them.
func findMisnamed(dir string) bundle.Problems {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil
	}
	defer root.Close()
	top, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil
	}
	var paths []string
	for _, entry := range top {
		if !entry.IsDir() || !bundle.IsLayoutFolder(entry.Name()) && bundle.SuggestFolder(entry.Name()) == "" {
			continue
		}
		_ = fs.WalkDir(root.FS(), entry.Name(), func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case len(paths) >= bundle.MaxFiles:
				return errEnough
			case entry.Type().IsRegular():
				paths = append(paths, path)
			}
			return nil
		}) // A partial result is fine.
	}
	return bundle.MisnamedFolders(paths)
}

// printWarnings prints warnings about a repository in a folder, one per line.
func printWarnings(out io.Writer, dir string, warnings bundle.Problems) {
	for _, w := range inFolder(dir, warnings) {
		fmt.Fprintf(out, "warning: %s: %s\n", paintAs(out, bold, printable(w.Position.String())), printable(w.Message))
	}
}
