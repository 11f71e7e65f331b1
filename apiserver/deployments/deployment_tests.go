// SPDX-License-Identifier: Apache-2.0

package deployments

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/agentplatform/agentplatform/apiserver/costs"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/store"
)

// TestRunsInput selects the deployment of test results.
type TestRunsInput struct {
	DeploymentPath
	costs.CostsQuery
}

var listTestRuns = rest.Handle((*API).listTestRuns, rest.Endpoint{
	Method: rest.Get, Path: "/deployments/{deployment_id}/test-runs", ID: "listTestRuns",
	Permissions: rest.Requires("deployments.test"), Errors: rest.ReadErrors,
	Summary: "List the test results of a deployment",
	Doc: "Returns the results of the test phase by agent and test name. The list is empty if the phase has not run. Responses " +
		"of mocked models have no price.",
	Example: rest.Example{Path: "/deployments/{deployment}/test-runs"},
})

// listTestRuns lists the results of test cases by agent and test name.
func (s *API) listTestRuns(ctx context.Context, c *rest.Caller, in *TestRunsInput) (rest.Response[[]TestResult], error) {
	d, err := s.Deployment(ctx, c, in.DeploymentID)
	if err != nil {
		return rest.Response[[]TestResult]{}, err
	}
	results := recordedResults(d.TestResults)
	var calls []store.Calls
	for _, r := range results {
		calls = append(calls, r.calls()...)
	}
	e, err := s.Costs.Exchange(ctx, in.ConvertCostsTo, calls)
	return rest.NewResponse(testResults(e, results), err)
}

// recordedResult is a recorded test result with the cost of its runs.
type recordedResult struct {
	TestResult
	Costs []struct {
		Day, Calls, Nanos int64
		Currency          store.Currency
	} `json:"costs"`
}

func (r recordedResult) calls() (calls []store.Calls) {
	for _, c := range r.Costs {
		calls = append(calls, store.Calls{Day: store.Day(c.Day), Number: c.Calls, Cost: store.Cost{Currency: c.Currency, Nanos: c.Nanos}})
	}
	return calls
}

// recordedResults returns the recorded test results by agent and test.
func recordedResults(list json.RawMessage) []recordedResult {
	out := recorded[recordedResult](list)
	slices.SortStableFunc(out, func(a, b recordedResult) int {
		return cmp.Or(rest.CompareNames(a.AgentName, b.AgentName), rest.CompareNames(a.TestName, b.TestName))
	})
	return out
}

// testResults returns the test results with their costs.
func testResults(e costs.Exchange, list []recordedResult) []TestResult {
	out := make([]TestResult, len(list))
	for i, r := range list {
		out[i] = r.TestResult
		var used costs.TokenUsage
		if r.TokenUsage.Value != nil {
			used = *r.TokenUsage.Value
		}
		out[i].Costing = e.CostingOf(r.calls(), used)
		if out[i].AgentRunIDs == nil {
			out[i].AgentRunIDs = []string{}
		}
	}
	return out
}
