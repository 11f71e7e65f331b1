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

// phaseTesting is the phase in which the tests run.
const phaseTesting = "testing"

// maxReason is the most bytes of the reason for which a case failed; the log has more.
const maxReason = 2 << 10

// cases counts the test cases of a repository.
func cases(project *bundle.Project) (count int) {
	for _, s := range project.Suites {
		count += len(s.Cases)
	}
	return count
}

// test runs the tests of what was built. One case that fails fails the build.
func test(
	ctx context.Context, opts PackOptions, log *buildLog, project *bundle.Project, built dispatchapi.BuildResult,
) (dispatchapi.BuildResult, error) {
	switch {
	case opts.SkipTests:
		log.say("the test phase is left out, as the deployment asks")
		return built, nil
	case cases(project) == 0:
		return built, nil
	}
	if err := opts.Dispatch.ReportBuild(ctx, dispatchapi.BuildReport{Phase: phaseTesting}); err != nil {
		return dispatchapi.BuildResult{}, err
	}
	results, err := suite.Run(ctx, suite.Options{
		Project: project, Models: opts.Models, Variables: opts.Variables, Prices: opts.Prices, Tools: opts.Tools, Timeout: opts.TestTimeout, Now: opts.Now,
		Ended: func(p suite.Progress) {
			log.say("%s", p)
			if text := p.Explain(); text != "" {
				log.say("%s", text)
			}
		},
	})
	if err != nil {
		return dispatchapi.BuildResult{}, err
	}
	built.TestResults = reported(results)
	if failed, first := summary(results); failed != "" {
		log.say("%s", failed)
		return dispatchapi.BuildResult{
			BundleDigest: built.BundleDigest, TestResults: built.TestResults, FailureReason: dispatchapi.FailureTests,
			Message: failed + "; " + first + "; the build's log has all",
		}, nil
	}
	log.say("all %d test cases passed", len(results))
	return built, nil
}

// maxFirst is the most bytes of why the first case has failed, in a build's message.
const maxFirst = 500

// summary names the cases that failed, and tells why the first did; "" where none did.
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

// reported are results as dispatch takes them: where they are too large together, with
// shorter reasons.
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
