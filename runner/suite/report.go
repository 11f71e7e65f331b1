// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"fmt"
	"strings"
	"time"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/expr"
	"github.com/agentplatform/agentplatform/internal/filetype"
)

// Check finds cases that cannot run: invalid expressions, and attachments that no event can have.
func Check(project *bundle.Project) (problems bundle.Problems) {
	add := func(at bundle.Position, format string, args ...any) {
		problems = append(problems, bundle.Problem{Position: at, Message: fmt.Sprintf(format, args...)})
	}
	for _, s := range project.Suites {
		for _, c := range s.Cases {
			if c.ExpectedResult != "" {
				if _, err := expr.NewVerdict(c.ExpectedResult); err != nil {
					add(c.At("expected_result"), `"expected_result" is not a CEL expression over output, error, status and context: %v`, err)
				}
			}
			for _, name := range c.Files {
				if filetype.Of(name, project.Files[bundle.TestFile(name)]) == "" {
					add(c.At("files"), "%s has a type that is not accepted; an event would omit it", bundle.TestFile(name))
				}
			}
		}
	}
	return problems
}

// String describes the ended case and the total progress in one line.
func (p Progress) String() string {
	verdict := "passed"
	if !p.Passed {
		verdict = "FAILED"
	}
	return fmt.Sprintf("test %d of %d, %d failed: %s/%s %s, %d of %d runs as expected, %s, %d tokens",
		p.Done, p.Total, p.Failed, p.Agent, p.Case.Name, verdict, p.Successes, p.Case.Runs, p.Duration.Round(time.Millisecond), p.Usage.TotalTokens)
}

// Explain describes a failed case with the position in the repository, the expected result and the
// actual result, and with the notes of the run. It returns "" for a case that passed in all runs.
func (r Result) Explain() string {
	if len(r.Findings) == 0 {
		return ""
	}
	var out strings.Builder
	fmt.Fprintf(&out, "%s: %s/%s, run %d of %d:", r.Case.At("name"), r.Agent, r.Case.Name, r.Run, r.Case.Runs)
	for _, f := range r.Findings {
		fmt.Fprintf(&out, "\n  %s\n    expected: %s\n    got:      %s", f.At, f.Expected, f.Got)
	}
	for _, note := range r.Notes {
		out.WriteString("\n  note: " + note)
	}
	return out.String()
}

// Reason is Explain in one line. It returns "" for a case that passed.
func (r Result) Reason() string {
	if r.Passed || len(r.Findings) == 0 {
		return ""
	}
	f := r.Findings[0]
	out := fmt.Sprintf("%d of %d runs were as expected, at least %d must be; run %d at %s: expected %s; got %s",
		r.Successes, r.Case.Runs, requiredPasses(r.Case.Runs, r.Case.SuccessThreshold), r.Run, f.At, f.Expected, f.Got)
	if more := len(r.Findings) - 1; more > 0 {
		out += fmt.Sprintf("; and %d more, see the log", more)
	}
	return strings.ReplaceAll(out, "\n", " ")
}
