// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"testing"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/connector"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/fields"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/internal/testenv/refpage"
	"github.com/agentplatform/agentplatform/store"
)

// The page docs/reference/limits.md states the size limits of data, as the packages declare them.
func TestReference_ListsSizeLimits(t *testing.T) {
	for part, limits := range map[string][]refpage.Limit{
		"events": eventLimits(), "runs": runLimits(), "builds and links": buildLimits(), "repositories": repositoryLimits(), "lists": listLimits(),
	} {
		refpage.CheckPart(t, "limits.md", part, refpage.LimitTable("Data", limits))
	}
}

func eventLimits() []refpage.Limit {
	return []refpage.Limit{
		{
			Resource: "JSON input of a run, as decoded by a runner",
			Value:    fmt.Sprintf("%s values, %d levels", refpage.Count(dispatchapi.MaxInputValues), dispatchapi.MaxInputDepth),
			Beyond:   fmt.Sprintf("The run fails with `%s`.", runerror.InputTooComplex),
		},
		{
			Resource: "Form or query of a webhook", Value: fmt.Sprintf("%d fields, with names of %d bytes each", fields.MaxFields, fields.MaxKey),
			Beyond: "400 `invalid_form`",
		},
		{
			Resource: "Attachments of an event", Value: fmt.Sprintf("%d, with %s together", store.MaxFiles, refpage.Bytes(dispatchapi.MaxFiles)),
			Beyond: "Further attachments are omitted, and the response says so.",
		},
		{Resource: "Attachments of a request, including omitted ones", Value: refpage.Count(store.MaxNamedFiles), Beyond: "400 `invalid_form`"},
		{
			Resource: "Attachment bytes in each model request",
			Value:    refpage.Bytes(store.DefaultReviewBudget) + ", or `--review-budget` of the gateway (`webhookgw`, `all`)", Beyond: "See below.",
		},
		{
			Resource: "Platform deliveries that lead to an event", Value: refpage.Count(store.MaxHops),
			Beyond: "422 `too_many_hops`. See [Loop detection](../webhooks.md#loop-detection).",
		},
	}
}

func runLimits() []refpage.Limit {
	return []refpage.Limit{
		{Resource: "Output", Value: refpage.Bytes(store.MaxOutput), Beyond: failsWith(runerror.OutputTooLarge)},
		{Resource: "Response of a model", Value: refpage.Bytes(store.MaxModelAnswer), Beyond: failsWith(runerror.ModelAnswerTooLarge)},
		{Resource: "Result of a tool", Value: refpage.Bytes(store.MaxToolResult), Beyond: "Saved as a file of the run, up to the size of a saved file. The model sees both ends. The run does not keep the middle of a larger result."},
		{Resource: "Journal", Value: refpage.Bytes(store.MaxJournal), Beyond: failsWith(runerror.JournalTooLarge)},
		{
			Resource: "Error code, and kind of a journal entry", Value: fmt.Sprintf("%d lower-case letters, digits and underscores", store.MaxCode),
			Beyond: "422, and nothing is stored.",
		},
		{Resource: "Error text of a run or build", Value: refpage.Bytes(store.MaxError), Beyond: "Truncated with a mark."},
		{
			Resource: "Payload that a tool sends",
			Value: fmt.Sprintf("%s each, %s in %d deliveries per run",
				refpage.Bytes(store.MaxPayload), refpage.Bytes(store.MaxSent), store.MaxSends),
			Beyond: "The tool rejects it, and the model gets the error.",
		},
		{Resource: "Response of a destination", Value: refpage.Bytes(store.MaxExcerpt) + " of each attempt", Beyond: "Truncated."},
		{Resource: "Name of a model in the cost of a call", Value: refpage.Bytes(dispatchapi.MaxModel), Beyond: "Truncated with a mark."},
		{
			Resource: "Cost of one model call", Value: refpage.Count(store.MaxCost/1_000_000_000) + " units of its currency",
			Beyond: "This amount is recorded.",
		},
	}
}

func buildLimits() []refpage.Limit {
	return []refpage.Limit{
		{
			Resource: "Links of a connector", Value: refpage.Count(store.MaxLinks),
			Beyond: "The ConnectorLink is `Stalled` with `LimitReached`. The REST API returns 409.",
		},
		{
			Resource: "Links of an agent to outbound connectors of an environment", Value: refpage.Count(store.MaxOutboundLinks),
			Beyond: "as above",
		},
		{Resource: "Source connectors of a link", Value: refpage.Count(connector.MaxSources), Beyond: "The ConnectorLink is `Stalled`. The REST API returns 422."},
		{Resource: "Build log", Value: refpage.Bytes(store.MaxBuildLog), Beyond: "Truncated with a mark."},
		{
			Resource: "Request of a runner or build", Value: refpage.Bytes(dispatchapi.MaxRequest) + ". Bundles, inputs and journals are streams without this limit.",
			Beyond: "413",
		},
	}
}

func repositoryLimits() []refpage.Limit {
	const rejected = "The build fails and names the file."
	return []refpage.Limit{
		{Resource: "All files", Value: refpage.Bytes(bundle.MaxSize) + " in " + refpage.Count(bundle.MaxFiles) + " files", Beyond: rejected},
		{Resource: "All files outside of `tests/files/`", Value: refpage.Bytes(bundle.MaxCodeSize), Beyond: rejected},
		{Resource: "YAML file", Value: refpage.Bytes(bundle.MaxYAMLSize), Beyond: rejected},
		{
			Resource: "Agents", Value: fmt.Sprintf("%d, with configurations of %s each and %s together", bundle.MaxAgents,
				refpage.Bytes(bundle.MaxConfigSize), refpage.Bytes(bundle.MaxConfigs)),
			Beyond: rejected,
		},
		{
			Resource: "Connectors", Value: fmt.Sprintf("%d, with %s of files, %d links each and %d links together", bundle.MaxConnectors,
				refpage.Bytes(bundle.MaxConnectorsSize), bundle.MaxConnectorLinks, bundle.MaxAllLinks),
			Beyond: rejected,
		},
		{Resource: "Agents and tools that a sequential agent runs, including nested ones", Value: refpage.Count(bundle.MaxSteps), Beyond: rejected},
		{Resource: "Steps of a sequential agent that run at the same time", Value: refpage.Count(bundle.MaxParallelSteps), Beyond: rejected},
		{Resource: "HTTP tools", Value: refpage.Count(bundle.MaxHTTPTools), Beyond: rejected},
		{
			Resource: "Tools of an agent in a request to a model", Value: refpage.Count(bundle.MaxTools),
			Beyond: rejected + " If live MCP servers or later links add the tools, the run fails with `" + string(runerror.TooManyTools) + "`.",
		},
		{Resource: "OpenAPI document", Value: refpage.Bytes(bundle.MaxAPISize), Beyond: rejected},
		{Resource: "Test cases of all suites", Value: fmt.Sprintf("%d, with %d runs", bundle.MaxTestCases, bundle.MaxTestRuns), Beyond: rejected},
		{
			Resource: "Files of a test case", Value: fmt.Sprintf("%d, with %s together", bundle.MaxAttachments, refpage.Bytes(bundle.MaxAttachmentsSize)),
			Beyond: rejected,
		},
	}
}

func listLimits() []refpage.Limit {
	return []refpage.Limit{{
		Resource: "`GET /deployments` of an environment",
		Value:    fmt.Sprintf("%d deployments, with %s of texts and agents", store.MaxDeployments, refpage.Bytes(store.MaxDeploymentsSize)),
		Beyond:   "The list ends with the newest deployments that fit.",
	}}
}

func failsWith(code runerror.Code) string { return fmt.Sprintf("The run fails with `%s`.", code) }
