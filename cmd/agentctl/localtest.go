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
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/suite"
)

// localTestOptions are the flags of `test`.
type localTestOptions struct {
	variableFlags

	agent, name string
	timeout     time.Duration
	output      testOutput

	dir           string
	out, messages io.Writer
}

func newTestCommand() *cobra.Command {
	o := &localTestOptions{}
	cmd := &cobra.Command{
		Use:   "test [FOLDER]",
		Short: "Run the tests of a project repository on this machine",
		Long: `Run the tests of a project repository on this machine, with the code of a build. The default
is the current folder. This needs no platform, and sends nothing to connectors.

Scripted models and mocks need no service. Other models are called for real. Environment
variables configure the service of a model by its provider: OPENAI_API_KEY for
openai/gpt-5, and OPENAI_BASE_URL for another address; OLLAMA_BASE_URL for ollama/llama3, and
so on. The service must implement OpenAI's Chat Completions.

A build rejects prompts that use sensitive variables of its environment. Here no variable is
sensitive, unless --sensitive names it.`,
		Example: `  agentctl test
  agentctl test --agent hello --case greets-by-name
  agentctl test --env REGION=eu-west-1 -o junit > results.xml
  OPENAI_API_KEY=... agentctl test`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.out, o.messages, o.dir = cmd.OutOrStdout(), cmd.ErrOrStderr(), folderArgument(args)
			return o.testFolder(cmd.Context())
		},
	}
	setOutcome(cmd, "a test case failed")
	flags := cmd.Flags()
	flags.StringVar(&o.agent, "agent", "", "name of the agent; default: all agents")
	flags.StringVar(&o.name, "case", "", "name of the case; default: all cases")
	o.variableFlags.bindFlags(flags)
	flags.DurationVar(&o.timeout, "timeout", 10*time.Minute, "time limit of all tests together")
	flags.VarP(&o.output, "output", "o", "print the results as json, yaml or junit instead of text")
	return cmd
}

func (o *localTestOptions) testFolder(ctx context.Context) error {
	project, err := readRepository(o.dir, o.messages, "no test was run")
	if err != nil {
		return err
	}
	if o.agent+o.name != "" && !o.selectsAny(project) {
		return errors.New("--agent, --case: no case matches; there is " + strings.Join(caseNames(project), ", "))
	}
	known, err := o.readVariables()
	if err != nil {
		return err
	}
	models, err := newModelRegistry(project, os.Getenv)
	if err != nil {
		return err
	}
	results, err := suite.Run(ctx, suite.Options{
		Project: project, Models: models, Timeout: o.timeout, Only: o.selects, Ended: o.printCase,
		Variables: func() (runnerconfig.Variables, error) { return known, nil },
	})
	if err != nil {
		return err
	}
	if err := o.output.printResults(o.out, o.dir, results); err != nil {
		return err
	}
	return o.printSummary(results)
}

// selects reports whether the flags select a case.
func (o *localTestOptions) selects(agent string, c *bundle.Case) bool {
	return (o.agent == "" || o.agent == agent) && (o.name == "" || o.name == c.Name)
}

// selectsAny reports whether the flags select a case of the project.
func (o *localTestOptions) selectsAny(project *bundle.Project) bool {
	for _, s := range project.Suites {
		for _, c := range s.Cases {
			if o.selects(s.Agent, c) {
				return true
			}
		}
	}
	return false
}

// caseNames returns the names of all cases, as agent/case.
func caseNames(project *bundle.Project) (names []string) {
	for _, s := range project.Suites {
		for _, c := range s.Cases {
			names = append(names, s.Agent+"/"+c.Name)
		}
	}
	return names
}

// printCase prints a case that has ended. In the formats for programs it is progress on standard error.
func (o *localTestOptions) printCase(p suite.Progress) {
	out := o.out
	if o.output != testText {
		out = o.messages
	}
	verdict := paintAs(out, green, "ok  ")
	if !p.Passed {
		verdict = paintAs(out, red, "FAIL")
	}
	line := fmt.Sprintf("%s %s/%s  %s", verdict, p.Agent, p.Case.Name, p.Duration.Round(time.Millisecond))
	if p.Case.Runs > 1 {
		line += fmt.Sprintf("  %d of %d runs", p.Successes, p.Case.Runs)
	}
	if tokens := p.Usage.TotalTokens; tokens > 0 {
		line += fmt.Sprintf("  %s", formatCount(int(tokens), "token"))
	}
	if isTerminal(out) {
		line += fmt.Sprintf("  (%d/%d)", p.Done, p.Total)
	}
	fmt.Fprintln(out, line)
	for _, f := range convertFindings(o.dir, p.Result) {
		fmt.Fprintf(out, "     %s: run %d of %d\n       expected: %s\n       got:      %s\n",
			paintAs(out, bold, f.Position.String()), p.Run, p.Case.Runs, indentLines(f.Expected), indentLines(f.Got))
	}
	for _, note := range p.Notes {
		fmt.Fprintf(out, "       note:     %s\n", indentLines(note))
	}
}

// indentLines indents the lines of a text after the first one, below a finding.
func indentLines(text string) string {
	return strings.ReplaceAll(strings.TrimRight(printableLines(text), "\n"), "\n", "\n                 ")
}

// printSummary prints how many cases passed, and returns an outcomeError if one failed.
func (o *localTestOptions) printSummary(results []suite.Result) error {
	failed, unknown := 0, false
	for _, r := range results {
		if r.Passed {
			continue
		}
		failed++
		unknown = unknown || strings.Contains(r.Explain(), string(runerror.ModelUnknownProvider))
	}
	if unknown {
		fmt.Fprintln(o.messages, "environment variables configure the service of a model that no mock replaces, such as OPENAI_API_KEY for openai/...; see --help")
	}
	switch {
	case failed > 0:
		return &outcomeError{fmt.Sprintf("%d of %s failed", failed, formatCount(len(results), "test case"))}
	case len(results) == 0:
		fmt.Fprintf(o.messages, "no tests in %s\n", filepath.Join(o.dir, "tests"))
	default:
		fmt.Fprintf(o.messages, "%s passed\n", paintAs(o.messages, green, formatCount(len(results), "test case")))
	}
	return nil
}
