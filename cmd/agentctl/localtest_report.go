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

// testOutput is the format of the results of `test`.
type testOutput string

// Formats of results.
const (
	testText  testOutput = ""
	testJSON  testOutput = "json"
	testYAML  testOutput = "yaml"
	testJUnit testOutput = "junit"
)

func (o *testOutput) String() string { return string(*o) }

// Set accepts json, yaml and junit.
func (o *testOutput) Set(text string) error {
	if *o = testOutput(text); *o != testJSON && *o != testYAML && *o != testJUnit {
		return errors.New("must be json, yaml or junit")
	}
	return nil
}

// Type names the kind of value in the help.
func (o *testOutput) Type() string { return "format" }

// caseResult is the result of a case, with the field names of the REST API.
type caseResult struct {
	AgentName        string                 `json:"agent_name"`
	TestName         string                 `json:"test_name"`
	Passed           bool                   `json:"passed"`
	Successes        int                    `json:"successes"`
	Runs             int                    `json:"runs"`
	SuccessThreshold float64                `json:"success_threshold"`
	DurationMS       int64                  `json:"duration_ms"`
	TokenUsage       dispatchapi.TokenUsage `json:"token_usage"`
	// FailureReason is null if the case passed. Findings and Notes belong to the first failed run.
	FailureReason *string   `json:"failure_reason"`
	Findings      []finding `json:"findings"`
	Notes         []string  `json:"notes"`

	at bundle.Position
}

// finding is an expectation that was not met, with its position in the repository.
type finding struct {
	bundle.Position

	Expected string `json:"expected"`
	Got      string `json:"got"`
}

// convertFindings returns the findings of a case, with the paths of their files from the current folder.
func convertFindings(dir string, r suite.Result) []finding {
	out := make([]finding, len(r.Findings))
	for i, f := range r.Findings {
		out[i] = finding{Position: joinPosition(dir, f.At), Expected: f.Expected, Got: f.Got}
	}
	return out
}

// joinPosition returns a position with the path of its file from the current folder.
func joinPosition(dir string, at bundle.Position) bundle.Position {
	at.File = filepath.Join(dir, filepath.FromSlash(at.File))
	return at
}

func convertResults(dir string, results []suite.Result) []caseResult {
	out := make([]caseResult, len(results))
	for i, r := range results {
		out[i] = caseResult{
			AgentName: r.Agent, TestName: r.Case.Name, Passed: r.Passed, Successes: r.Successes, Runs: r.Case.Runs,
			SuccessThreshold: r.Case.SuccessThreshold, DurationMS: r.Duration.Milliseconds(), TokenUsage: r.Usage,
			Findings: convertFindings(dir, r), Notes: append([]string{}, r.Notes...), at: joinPosition(dir, r.Case.At("name")),
		}
		if reason := r.Reason(); !r.Passed {
			out[i].FailureReason = &reason
		}
	}
	return out
}

// printResults writes results in a format for programs. The text format is written while the cases end.
func (o *testOutput) printResults(out io.Writer, dir string, results []suite.Result) error {
	switch shown := convertResults(dir, results); *o {
	case testJSON, testYAML:
		format := output(*o)
		return format.printValue(out, shown)
	case testJUnit:
		return writeJUnit(out, shown)
	}
	return nil
}

// junitSuites is a report in the format of JUnit, which CI systems read.
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

// writeJUnit writes a report with a suite per agent.
func writeJUnit(out io.Writer, results []caseResult) error {
	report := junitSuites{}
	for _, r := range results {
		if n := len(report.Suites); n == 0 || report.Suites[n-1].Name != r.AgentName {
			report.Suites = append(report.Suites, junitSuite{Name: r.AgentName})
		}
		report.addCase(&report.Suites[len(report.Suites)-1], r)
	}
	report.Time = formatSeconds(report.took)
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

func (s *junitSuites) addCase(of *junitSuite, r caseResult) {
	shown := junitCase{ClassName: r.AgentName, Name: r.TestName, File: r.at.File, Line: r.at.Line, Time: formatSeconds(r.DurationMS)}
	s.Tests, of.Tests, s.took, of.took = s.Tests+1, of.Tests+1, s.took+r.DurationMS, of.took+r.DurationMS
	of.Time = formatSeconds(of.took)
	if r.FailureReason != nil {
		s.Failures, of.Failures = s.Failures+1, of.Failures+1
		var text strings.Builder
		for _, f := range r.Findings {
			fmt.Fprintf(&text, "%s\n  expected: %s\n  got:      %s\n", f.Position, printableLines(f.Expected), printableLines(f.Got))
		}
		for _, note := range r.Notes {
			fmt.Fprintf(&text, "note: %s\n", printableLines(note))
		}
		shown.Failure = &junitFailure{Message: printable(*r.FailureReason), Type: "unexpected", Text: text.String()}
	}
	of.Cases = append(of.Cases, shown)
}

// formatSeconds formats milliseconds in seconds.
func formatSeconds(milliseconds int64) string {
	return fmt.Sprintf("%.3f", (time.Duration(milliseconds) * time.Millisecond).Seconds())
}
