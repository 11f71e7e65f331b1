// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/model"
	"github.com/agentplatform/agentplatform/runner/suite"
)

// localTestOptions are the flags of `test`.
type localTestOptions struct {
	agent, name string
	variables   []string
	sensitive   []string
	file        string
	timeout     time.Duration
	output      testOutput

	dir           string
	out, messages io.Writer
}

func newTestCommand() *cobra.Command {
	o := &localTestOptions{}
	cmd := &cobra.Command{
		Use:   "test [FOLDER]",
		Short: "Run the tests of a project repository here, as a build does",
		Long: `Run the tests of a project repository, which is the current folder where none is named,
here: by the code that a build runs them by, without a platform. Nothing is sent to connectors.

Scripted models and mocks need nothing. Any other model is asked for real, at the service that
the environment names by the model's provider: openai/gpt-5 takes OPENAI_API_KEY, and
OPENAI_BASE_URL for another address; ollama/llama3 takes OLLAMA_BASE_URL, and so on. It must
speak OpenAI's Chat Completions.

A build refuses prompts the variables that are sensitive in its environment. Here none is,
unless --sensitive names it.

It ends with 2 when a case failed, with 1 when the tests could not be run.`,
		Example: `  agentctl test
  agentctl test --agent hello --case greets-by-name
  agentctl test --env REGION=eu-west-1 -o junit > results.xml
  OPENAI_API_KEY=... agentctl test`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.out, o.messages, o.dir = cmd.OutOrStdout(), cmd.ErrOrStderr(), folderOf(args)
			return o.run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.agent, "agent", "", "name of the agent; without it all")
	flags.StringVar(&o.name, "case", "", "name of the case; without it all")
	flags.StringArrayVar(&o.variables, "env", nil, "NAME=VALUE, a variable that prompts may name; as often as there are some")
	flags.StringVar(&o.file, "env-file", "", "file with a line NAME=VALUE for each; those of --env come before them")
	flags.StringSliceVar(&o.sensitive, "sensitive", nil, "names of those variables that are sensitive in the environment, so that no prompt may name them")
	flags.DurationVar(&o.timeout, "timeout", 10*time.Minute, "how long all tests together may take")
	flags.VarP(&o.output, "output", "o", "write the results as json, yaml or junit in place of text for people")
	return cmd
}

func (o *localTestOptions) run(ctx context.Context) error {
	project, problems, err := inspect(o.dir)
	if err != nil {
		return err
	}
	warn(o.messages, o.dir, misnamed(o.dir))
	if len(problems) > 0 {
		showProblems(o.messages, o.dir, problems)
		return fmt.Errorf("%s in the repository; nothing was run", count(len(problems), "problem"))
	}
	if o.agent+o.name != "" && !o.matches(project) {
		return errors.New("--agent, --case: there is no such case; there is " + strings.Join(caseNames(project), ", "))
	}
	known, err := readVariables(o.variables, o.file, o.sensitive)
	if err != nil {
		return err
	}
	models, err := modelsHere(project, os.Getenv)
	if err != nil {
		return err
	}
	results, err := suite.Run(ctx, suite.Options{
		Project: project, Models: models, Timeout: o.timeout, Only: o.wants, Ended: o.ended,
		Variables: func() (runnerconfig.Variables, error) { return known, nil },
	})
	if err != nil {
		return err
	}
	if err := o.output.write(o.out, o.dir, results); err != nil {
		return err
	}
	return o.summary(results)
}

// wants says whether a case is one of those that are to be run.
func (o *localTestOptions) wants(agent string, c *bundle.Case) bool {
	return (o.agent == "" || o.agent == agent) && (o.name == "" || o.name == c.Name)
}

// matches says whether any case is.
func (o *localTestOptions) matches(project *bundle.Project) bool {
	for _, s := range project.Suites {
		for _, c := range s.Cases {
			if o.wants(s.Agent, c) {
				return true
			}
		}
	}
	return false
}

// caseNames are all cases, as agent/case.
func caseNames(project *bundle.Project) (names []string) {
	for _, s := range project.Suites {
		for _, c := range s.Cases {
			names = append(names, s.Agent+"/"+c.Name)
		}
	}
	return names
}

// ended shows a case when it has ended: where results are for programs, only how far all are.
func (o *localTestOptions) ended(p suite.Progress) {
	out := o.out
	if o.output != testText {
		out = o.messages
	}
	verdict := paintAs(out, good, "ok  ")
	if !p.Passed {
		verdict = paintAs(out, bad, "FAIL")
	}
	line := fmt.Sprintf("%s %s/%s  %s", verdict, p.Agent, p.Case.Name, p.Duration.Round(time.Millisecond))
	if p.Case.Runs > 1 {
		line += fmt.Sprintf("  %d of %d runs", p.Successes, p.Case.Runs)
	}
	if tokens := p.Usage.TotalTokens; tokens > 0 {
		line += fmt.Sprintf("  %s", count(int(tokens), "token"))
	}
	if isTerminal(out) {
		line += fmt.Sprintf("  (%d/%d)", p.Done, p.Total)
	}
	fmt.Fprintln(out, line)
	for _, f := range findingsOf(o.dir, p.Result) {
		fmt.Fprintf(out, "     %s: run %d of %d\n       expected: %s\n       got:      %s\n",
			paintAs(out, place, f.Position.String()), p.Run, p.Case.Runs, indented(f.Expected), indented(f.Got))
	}
}

// indented is text of several lines below the first one of a finding.
func indented(text string) string {
	return strings.ReplaceAll(strings.TrimRight(printableLines(text), "\n"), "\n", "\n                 ")
}

// summary says how all went, and ends the command with its own code where one failed.
func (o *localTestOptions) summary(results []suite.Result) error {
	failed, unknown := 0, false
	for _, r := range results {
		if r.Passed {
			continue
		}
		failed++
		unknown = unknown || strings.Contains(r.Explain(), model.CodeUnknownProvider)
	}
	if unknown {
		fmt.Fprintln(o.messages, "a model that nothing mocks is asked at the service that the environment names: OPENAI_API_KEY for openai/..., see --help")
	}
	switch {
	case failed > 0:
		return &outcomeError{fmt.Sprintf("%d of %s failed", failed, count(len(results), "test case"))}
	case len(results) == 0:
		fmt.Fprintf(o.messages, "there are no tests in %s\n", filepath.Join(o.dir, "tests"))
	default:
		fmt.Fprintf(o.messages, "%s passed\n", paintAs(o.messages, good, count(len(results), "test case")))
	}
	return nil
}
