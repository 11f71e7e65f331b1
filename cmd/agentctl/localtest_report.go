// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/runner/suite"
)

// testOutput is how `test` writes results.
type testOutput string

// Forms of results.
const (
	testText  testOutput = ""
	testJSON  testOutput = "json"
	testYAML  testOutput = "yaml"
	testJUnit testOutput = "junit"
)

// String, Set and Type implement pflag.Value.
func (o *testOutput) String() string { return string(*o) }

// Set takes json, yaml and junit.
func (o *testOutput) Set(text string) error {
	if *o = testOutput(text); *o != testJSON && *o != testYAML && *o != testJUnit {
		return errors.New("must be json, yaml or junit")
	}
	return nil
}

// Type is shown in the help.
func (o *testOutput) Type() string { return "format" }

// caseResult is what became of a case, by the names of the REST API's test results.
type caseResult struct {
	AgentName        string                 `json:"agent_name"`
	TestName         string                 `json:"test_name"`
	Passed           bool                   `json:"passed"`
	Successes        int                    `json:"successes"`
	Runs             int                    `json:"runs"`
	SuccessThreshold float64                `json:"success_threshold"`
	DurationMS       int64                  `json:"duration_ms"`
	TokenUsage       dispatchapi.TokenUsage `json:"token_usage"`
	// FailureReason is null of a case that passed, Findings are what was not as expected in
	// the first run that was not.
	FailureReason *string   `json:"failure_reason"`
	Findings      []finding `json:"findings"`

	at bundle.Position
}

// finding is something that is not as expected, and where the repository expects it.
type finding struct {
	bundle.Position

	Expected string `json:"expected"`
	Got      string `json:"got"`
}

// findingsOf are those of a case, with their files as they are found from the current folder.
func findingsOf(dir string, r suite.Result) []finding {
	out := make([]finding, len(r.Findings))
	for i, f := range r.Findings {
		out[i] = finding{Position: here(dir, f.At), Expected: f.Expected, Got: f.Got}
	}
	return out
}

func here(dir string, at bundle.Position) bundle.Position {
	at.File = filepath.Join(dir, filepath.FromSlash(at.File))
	return at
}

func casesShown(dir string, results []suite.Result) []caseResult {
	out := make([]caseResult, len(results))
	for i, r := range results {
		out[i] = caseResult{
			AgentName: r.Agent, TestName: r.Case.Name, Passed: r.Passed, Successes: r.Successes, Runs: r.Case.Runs,
			SuccessThreshold: r.Case.SuccessThreshold, DurationMS: r.Duration.Milliseconds(), TokenUsage: r.Usage,
			Findings: findingsOf(dir, r), at: here(dir, r.Case.At("name")),
		}
		if reason := r.Reason(); !r.Passed {
			out[i].FailureReason = &reason
		}
	}
	return out
}

// write writes results for programs; text is written while the cases end.
func (o *testOutput) write(out io.Writer, dir string, results []suite.Result) error {
	switch shown := casesShown(dir, results); *o {
	case testJSON, testYAML:
		format := output(*o)
		return format.write(out, shown)
	case testJUnit:
		return writeJUnit(out, shown)
	}
	return nil
}

// junitSuites is a report as CI systems read it.
type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Time     string       `xml:"time,attr"`
	Suites   []junitSuite `xml:"testsuite"`

	took int64
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Time     string      `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`

	took int64
}

type junitCase struct {
	ClassName string        `xml:"classname,attr"`
	Name      string        `xml:"name,attr"`
	File      string        `xml:"file,attr"`
	Line      int           `xml:"line,attr"`
	Time      string        `xml:"time,attr"`
	Failure   *junitFailure `xml:"failure"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr"`
	Text    string `xml:",chardata"`
}

// writeJUnit writes a suite for each agent.
func writeJUnit(out io.Writer, results []caseResult) error {
	report := junitSuites{}
	for _, r := range results {
		if n := len(report.Suites); n == 0 || report.Suites[n-1].Name != r.AgentName {
			report.Suites = append(report.Suites, junitSuite{Name: r.AgentName})
		}
		report.add(&report.Suites[len(report.Suites)-1], r)
	}
	report.Time = seconds(report.took)
	if _, err := io.WriteString(out, xml.Header); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	encoder := xml.NewEncoder(out)
	encoder.Indent("", "  ")
	if err := encoder.Encode(report); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	_, err := io.WriteString(out, "\n")
	return err
}

func (s *junitSuites) add(of *junitSuite, r caseResult) {
	shown := junitCase{ClassName: r.AgentName, Name: r.TestName, File: r.at.File, Line: r.at.Line, Time: seconds(r.DurationMS)}
	s.Tests, of.Tests, s.took, of.took = s.Tests+1, of.Tests+1, s.took+r.DurationMS, of.took+r.DurationMS
	of.Time = seconds(of.took)
	if r.FailureReason != nil {
		s.Failures, of.Failures = s.Failures+1, of.Failures+1
		var text strings.Builder
		for _, f := range r.Findings {
			fmt.Fprintf(&text, "%s\n  expected: %s\n  got:      %s\n", f.Position, printableLines(f.Expected), printableLines(f.Got))
		}
		shown.Failure = &junitFailure{Message: printable(*r.FailureReason), Type: "unexpected", Text: text.String()}
	}
	of.Cases = append(of.Cases, shown)
}

// seconds are milliseconds as a report has them.
func seconds(milliseconds int64) string {
	return fmt.Sprintf("%.3f", (time.Duration(milliseconds) * time.Millisecond).Seconds())
}
