// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/runner/build"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// lintOptions are the flags of `lint`.
type lintOptions struct {
	restOptions
	output

	wanted string

	dir           string
	out, messages io.Writer
}

func newLintCommand() *cobra.Command {
	o := &lintOptions{}
	cmd := &cobra.Command{
		Use:   "lint [FOLDER]",
		Short: "Find all that a build would refuse in a project repository",
		Long: `Find all that a build would refuse in a project repository, which is the current folder
where none is named: the same checks as the build's, without a platform.

What needs one is not checked: whether an environment has the variables that prompts and
connectors name. With --environment it is, by the REST API.

What is not read and looks as if it were meant to be, such as a folder agent, is warned of, and so
are placeholders of prompts that other programs write, such as {{name}} and ${name}.

It ends with 2 when something is wrong, with 1 when it could not be looked at.`,
		Example: `  agentctl lint
  agentctl lint my-agents -o json
  agentctl lint --environment production`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.out, o.messages, o.dir = cmd.OutOrStdout(), cmd.ErrOrStderr(), folderOf(args)
			return o.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	o.restOptions.bind(flags)
	o.output.bind(flags)
	flags.StringVar(&o.wanted, "environment", "", "slug or id of an environment that must have the variables; without it nothing is asked of a server")
	return cmd
}

// folderOf is the folder that a command is about: the current one where none is named.
func folderOf(args []string) string {
	if len(args) == 0 {
		return "."
	}
	return filepath.Clean(args[0])
}

// inspect reads a repository with all that is wrong with it, as a build does.
func inspect(dir string) (*bundle.Project, bundle.Problems, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("opening the repository: %w", err)
	}
	defer root.Close()
	project, problems, err := build.Check(root.FS(), engine.New(engine.Config{}).Check)
	if err != nil {
		return nil, nil, fmt.Errorf("looking at %s: %w", dir, err)
	}
	return project, problems, nil
}

func (o *lintOptions) run(ctx context.Context) error {
	project, problems, err := inspect(o.dir)
	if err != nil {
		return err
	}
	warn(o.messages, o.dir, append(misnamed(o.dir), engine.Warn(project)...))
	uses := variablesUsed(project)
	if o.wanted != "" {
		missing, err := o.missing(ctx, uses)
		if err != nil {
			return err
		}
		problems = problems.With(missing)
	}
	if o.output != outputText {
		err = o.write(o.out, placed(o.dir, problems))
	} else {
		showProblems(o.out, o.dir, problems)
	}
	if err != nil {
		return err
	}
	if o.wanted == "" && len(uses) > 0 {
		fmt.Fprintf(o.messages, "not checked: whether an environment has the variables %s; --environment asks one\n", strings.Join(namesOf(uses), ", "))
	}
	if len(problems) > 0 {
		return &outcomeError{count(len(problems), "problem") + " in " + count(len(filesOf(problems)), "file")}
	}
	fmt.Fprintf(o.messages, "%s: nothing is wrong with %s, %s and %s\n", paintAs(o.messages, good, "ok"),
		count(len(project.Agents), "agent"), count(len(project.Connectors), "connector"), count(casesOf(project), "test case"))
	return nil
}

// missing are the variables that the environment does not have, or that no agent may be told.
func (o *lintOptions) missing(ctx context.Context, uses []variableUse) (problems bundle.Problems, err error) {
	api, err := o.client()
	if err != nil {
		return nil, err
	}
	e, err := api.environment(ctx, o.wanted)
	if err != nil {
		return nil, err
	}
	known, err := api.variables(ctx, e)
	if err != nil {
		return nil, err
	}
	for _, use := range uses {
		at := slices.IndexFunc(known.list, func(v variable) bool { return v.Name == use.name })
		switch {
		case at < 0:
			problems = append(problems, bundle.Problem{Position: use.at, Message: fmt.Sprintf("environment %s has no variable %s; add it, or correct the name", e.Slug, use.name)})
		case known.list[at].Sensitive && !use.secret:
			problems = append(problems, bundle.Problem{Position: use.at, Message: fmt.Sprintf("the variable %s of environment %s is sensitive, and cannot be named here", use.name, e.Slug)})
		}
	}
	return problems, nil
}

// placed are problems with their files as they are found from the current folder.
func placed(dir string, problems bundle.Problems) bundle.Problems {
	out := make(bundle.Problems, len(problems))
	for i, p := range problems {
		out[i] = bundle.Problem{Position: here(dir, p.Position), Message: p.Message}
	}
	return out
}

// showProblems writes a line for each, on a terminal a group for each file.
func showProblems(out io.Writer, dir string, problems bundle.Problems) {
	previous := ""
	for _, p := range placed(dir, problems) {
		if isTerminal(out) && previous != "" && p.File != previous {
			fmt.Fprintln(out)
		}
		previous = p.File
		fmt.Fprintf(out, "%s: %s\n", paintAs(out, place, printable(p.Position.String())), printable(p.Message))
	}
}

// filesOf are the files of problems, each once.
func filesOf(problems bundle.Problems) (files []string) {
	for _, p := range problems {
		if !slices.Contains(files, p.File) {
			files = append(files, p.File)
		}
	}
	return files
}

func casesOf(project *bundle.Project) (n int) {
	for _, s := range project.Suites {
		n += len(s.Cases)
	}
	return n
}

// count is a number with its noun.
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
