// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/gitremote"
	"github.com/agentplatform/agentplatform/runner/suite"
)

// phaseTesting is the phase of the tests.
const phaseTesting = "testing"

// maxReason limits the cause of a failed case, in bytes. The log has more.
const maxReason = 2 << 10

// countCases returns the number of test cases of a repository.
func countCases(project *bundle.Project) (count int) {
	for _, s := range project.Suites {
		count += len(s.Cases)
	}
	return count
}

// testProject runs the tests of a bundle. One failed case fails the build.
func testProject(
	ctx context.Context, opts PackOptions, log *buildLog, project *bundle.Project, built dispatchapi.BuildResult,
) (dispatchapi.BuildResult, error) {
	switch {
	case opts.SkipTests:
		log.addLine("the deployment skips the test phase")
		return built, nil
	case countCases(project) == 0:
		return built, nil
	}
	if err := opts.Dispatch.ReportBuild(ctx, dispatchapi.BuildReport{Phase: phaseTesting}); err != nil {
		return dispatchapi.BuildResult{}, err
	}
	results, err := suite.Run(ctx, suite.Options{
		Project: project, Models: opts.Models, Variables: opts.Variables, Prices: opts.Prices, Tools: opts.Tools, Timeout: opts.TestTimeout, Now: opts.Now,
		Ended: func(p suite.Progress) {
			log.addLine("%s", p)
			if text := p.Explain(); text != "" {
				log.addLine("%s", text)
			}
		},
	})
	if err != nil {
		return dispatchapi.BuildResult{}, err
	}
	built.TestResults = reported(results)
	if failed, first := summary(results); failed != "" {
		log.addLine("%s", failed)
		return dispatchapi.BuildResult{
			BundleDigest: built.BundleDigest, TestResults: built.TestResults, FailureReason: dispatchapi.FailureTests,
			Message: failed + "; " + first + "; the build's log has all",
		}, nil
	}
	log.addLine("all %d test cases passed", len(results))
	return built, nil
}

// maxFirst limits the cause of the first failed case in a build's message, in bytes.
const maxFirst = 500

// summary names the failed cases and the cause of the first one. It returns "" if all passed.
func summary(results []suite.Result) (message, first string) {
	var failed []string
	for _, r := range results {
		if r.Passed {
			continue
		}
		name := r.Agent + "/" + r.Case.Name
		if first == "" {
			first = gitremote.Clip(name+": "+r.Reason(), maxFirst)
		}
		failed = append(failed, name)
	}
	if len(failed) == 0 {
		return "", ""
	}
	const most = 20
	names := strings.Join(failed[:min(len(failed), most)], ", ")
	if more := len(failed) - most; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%d of %d test cases failed: %s", len(failed), len(results), names), first
}

// reported converts results for dispatch. If they are too large together, it shortens the causes.
func reported(results []suite.Result) dispatchapi.Tests {
	for most := maxReason; ; most /= 2 {
		out := make(dispatchapi.Tests, len(results))
		for i, r := range results {
			out[i] = dispatchapi.TestResult{
				AgentName: r.Agent, TestName: r.Case.Name, Passed: r.Passed, Successes: r.Successes, Runs: r.Case.Runs,
				SuccessThreshold: r.Case.SuccessThreshold, DurationMS: r.Duration.Milliseconds(), TokenUsage: r.Usage, Costs: r.Costs,
			}
			if reason := gitremote.Clip(r.Reason(), most); !r.Passed {
				out[i].FailureReason = &reason
			}
		}
		if data, err := json.Marshal(out); most == 0 || err == nil && len(data) <= dispatchapi.MaxTestResults {
			return out
		}
	}
}
