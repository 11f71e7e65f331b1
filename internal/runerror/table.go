// SPDX-License-Identifier: Apache-2.0

package runerror

// Table describes all codes that this release sets.
var Table = []Group{
	{Title: "Before the agent starts", Entries: before},
	{Title: "Model services", Entries: models},
	{Title: "Tools, scripts and expressions", Entries: tools},
	{Title: "Limits", Entries: limits},
	{Title: "Platform", Entries: platform},
}

var before = []Entry{
	{
		Code: AgentNotFound, Retry: RetryAfterFix,
		Meaning: "The live deployment has no such agent, or no such A/B variant.",
		Remedy:  "Deploy a version with the agent, or link the connector to another agent.",
	},
	{
		Code: BundleUnavailable, Retry: RetryAfterFix,
		Meaning: "The store no longer has the bundle of the deployment.",
		Remedy:  "Deploy again.",
	},
	{
		Code: Cancelled, Retry: RetryHelps,
		Meaning: "A project member cancelled the run.",
		Remedy:  "Replay the event if the cancellation was a mistake.",
	},
	{
		Code: ConcurrencyDropped, Retry: RetryHelps,
		Meaning: "Another open run had the same concurrency key, and the agent has `on_conflict: drop`.",
		Remedy:  "Use `on_conflict: queue` if each event must have a run.",
	},
	{
		Code: EnvironmentDeleted, Retry: RetryFails,
		Meaning: "The environment of the run was deleted.",
		Remedy:  "Send the event to another environment.",
	},
	{
		Code: Expired, Retry: RetryHelps,
		Meaning: "The run was open for the maximum time.",
		Remedy:  "Look for runners that are missing or overloaded.",
	},
	{
		Code: FilesRequired, Retry: RetryFails,
		Meaning: "The agent, the connector or the link has `files_required`. The event has no accepted file, or a file was omitted.",
		Remedy:  "Send the files in an accepted type and size. `file_issues` of the input names the reason of each omission.",
	},
	{
		Code: InputInvalid, Retry: RetryFails,
		Meaning: "The input or a file of the event cannot be read.",
		Remedy:  "Send the event again with valid data.",
	},
	{
		Code: InputTooComplex, Retry: RetryFails,
		Meaning: "The JSON input has too many values or too many levels.",
		Remedy:  "Send less, or send the data as a file.",
	},
	{
		Code: KeyUnavailable, Retry: RetryAfterFix,
		Meaning: "The expression `concurrency.key` of the agent yields no key for the input.",
		Remedy:  "Correct the expression, or send the field that it reads.",
	},
}

var models = []Entry{
	{
		Code: ModelAddressForbidden, Retry: RetryAfterFix,
		Meaning: "The address of the model service is not public, and the platform does not allow its range.",
		Remedy:  "Correct `baseURL` of the provider, or ask the platform operator to allow the range.",
	},
	{
		Code: ModelAnswerInvalid, Retry: RetryHelps,
		Meaning: "The response of the model service is empty, incomplete, too large or not in its format.",
		Remedy:  "Retry later. If the error remains, try another model.",
	},
	{
		Code: ModelAnswerTooLarge, Retry: RetryAfterFix,
		Meaning: "An answer of the model exceeds the limit of the store.",
		Remedy:  "Ask the model for shorter answers.",
	},
	{
		Code: ModelAnswerTruncated, Retry: RetryAfterFix,
		Meaning: "A limit of tokens cut off an answer of the model, and the agent has `on_truncation: fail`.",
		Remedy:  "Ask the model for shorter answers, raise the limit at the model service, or remove `on_truncation`.",
	},
	{
		Code: ModelRateLimited, Retry: RetryHelps,
		Meaning: "The rate limit or quota of the model service is reached, also after the retries of the agent.",
		Remedy:  "Retry later, set `fallback_model`, or raise the quota at the service.",
	},
	{
		Code: ModelRequestRejected, Retry: RetryAfterFix,
		Meaning: "The model service rejected the request or filtered the answer. A scripted model has no step for the conversation.",
		Remedy:  "Read the error text. Correct the model, its settings or the prompt.",
	},
	{
		Code: ModelTimeout, Retry: RetryHelps,
		Meaning: "The model service did not respond in time.",
		Remedy:  "Retry later, or set `fallback_model`.",
	},
	{
		Code: ModelUnauthorized, Retry: RetryAfterFix,
		Meaning: "The model service rejected the API key, or the key of the provider cannot be read.",
		Remedy:  "Correct the Secret of the provider in the Project.",
	},
	{
		Code: ModelUnavailable, Retry: RetryHelps,
		Meaning: "The model service cannot be reached or reports an error of its own.",
		Remedy:  "Retry later, or set `fallback_model`.",
	},
	{
		Code: ModelUnknownProvider, Retry: RetryAfterFix,
		Meaning: "The Project has no provider for the prefix of the model, or the repository has no such scripted model.",
		Remedy:  "Add the provider to `modelProviders` of the Project, or correct the model.",
	},
}

var tools = []Entry{
	{
		Code: ExpressionFailed, Retry: RetryAfterFix,
		Meaning: "An expression in `steps` or `output` cannot be evaluated for this run.",
		Remedy:  "Correct the expression. Use `has()` for fields that can be missing.",
	},
	{
		Code: HookFailed, Retry: RetryAfterFix,
		Meaning: "A hook of the agent's tools failed.",
		Remedy:  "Correct the script. The log of the run has the position in it.",
	},
	{
		Code: MCPUnavailable, Retry: RetryHelps,
		Meaning: "The response of an MCP server to a call was lost, or a live server lists too many tools or two tools of one name.",
		Remedy:  "Find out whether the call had its effect before you repeat it. If the list is wrong, correct the server.",
	},
	{
		Code: MiddlewareFailed, Retry: RetryAfterFix,
		Meaning: "A middleware script of the agent failed.",
		Remedy:  "Correct the script. The log of the run has the position in it.",
	},
	{
		Code: ScriptDiverged, Retry: RetryHelps,
		Meaning: "A resumed script made another request than in the earlier attempt.",
		Remedy:  "Find out first which requests had their effect. The steps of the run list them.",
	},
	{
		Code: ScriptError, Retry: RetryAfterFix,
		Meaning: "The script of a step failed.",
		Remedy:  "Correct the script. The log of the run has the position in it.",
	},
	{
		Code: ScriptLimit, Retry: RetryAfterFix,
		Meaning: "Scripts exceeded their limits of time, memory, steps or requests.",
		Remedy:  "Let the script do less, in memory, steps or requests.",
	},
	{
		Code: TooManyTools, Retry: RetryAfterFix,
		Meaning: "An agent has more tools than a request to a model can have. Live MCP servers and links add tools that the build did not see.",
		Remedy:  "Name fewer tools, set `discoverable` of an MCP server, or remove a link.",
	},
	{
		Code: ToolArgumentsInvalid, Retry: RetryHelps,
		Meaning: "The arguments for a tool do not match its schema: three times in a row from a model, or once from a step or an input.",
		Remedy:  "Describe the parameters of the tool better, or correct the step or the input.",
	},
	{
		Code: ToolFailed, Retry: RetryAfterFix,
		Meaning: "The tool of a step or of an agent of type `tool` returned an error or is not available.",
		Remedy:  "Read the error text. It has the message of the tool.",
	},
	{
		Code: ToolInterrupted, Retry: RetryHelps,
		Meaning: "The runner was lost during a call that is not idempotent, so the call may have had its effect.",
		Remedy:  "Find out first whether the call had its effect. Declare tools as idempotent if they are, or set `on_interrupted: tell`.",
	},
	{
		Code: ToolNameTaken, Retry: RetryAfterFix,
		Meaning: "A tool of the agent has the same name as the tool of an outbound link.",
		Remedy:  "Rename the tool or the connector.",
	},
	{
		Code: VariableUnavailable, Retry: RetryAfterFix,
		Meaning: "The environment lacks a variable or an OAuth app, a header of an MCP server needs a value that the context of the run " +
			"lacks, or a sensitive variable cannot be used there.",
		Remedy: "Add the variable or the OAuth app to the environment, or correct the name.",
	},
}

var limits = []Entry{
	{
		Code: ContextTooLarge, Retry: RetryAfterFix,
		Meaning: "Scripts that ran at the same time together set more data in the context of the run than it can hold.",
		Remedy:  "Store less in the context.",
	},
	{
		Code: JournalTooLarge, Retry: RetryAfterFix,
		Meaning: "The journal of the run, or one of its entries, exceeds the limit.",
		Remedy:  "Let tools return less, and lower `max_iterations`.",
	},
	{
		Code: MaxIterationsExceeded, Retry: RetryAfterFix,
		Meaning: "The agent gave as many model answers as `max_iterations` allows without an end.",
		Remedy:  "Look for a loop in the steps of the run, or raise `max_iterations`.",
	},
	{
		Code: OutputTooLarge, Retry: RetryAfterFix,
		Meaning: "The output of the run exceeds the limit of the store.",
		Remedy:  "Let the agent answer with less.",
	},
	{
		Code: RunLimitExceeded, Retry: RetryAfterFix,
		Meaning: "The run needs more than `limits` of the agent allows.",
		Remedy:  "Look for a loop in the steps of the run, or raise the limit that the error text names.",
	},
	{
		Code: StepTooLarge, Retry: RetryAfterFix,
		Meaning: "The result of a step of the pipeline is too large.",
		Remedy:  "Let the step return less.",
	},
	{
		Code: Timeout, Retry: RetryHelps,
		Meaning: "The run took longer than `timeout` of the agent.",
		Remedy:  "Look for slow steps, or raise `timeout`.",
	},
}

var platform = []Entry{
	{
		Code: Internal, Retry: RetryHelps,
		Meaning: "The runner failed for a cause inside the platform.",
		Remedy:  "Retry once. If the error remains, ask the platform operator. The log of the runner has the cause.",
	},
	{
		Code: NotSupported, Retry: RetryAfterFix,
		Meaning: "The bundle uses a feature that the release of the runner does not support.",
		Remedy:  "Remove the feature, or ask the platform operator for a newer release of the runner.",
	},
	{
		Code: ReportInvalid, Retry: RetryHelps,
		Meaning: "The runner reported the end of the run in an invalid form.",
		Remedy:  "Ask the platform operator: runner and gateway may have incompatible releases.",
	},
	{
		Code: RunnerLost, Retry: RetryAfterFix,
		Meaning: "The run lost its runner too often. It may need more memory than a runner has.",
		Remedy:  "Give the runners of the environment more memory, or let the agent do less.",
	},
}
