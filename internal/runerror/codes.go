// SPDX-License-Identifier: Apache-2.0

package runerror

// ModelPrefix begins the codes of runs that failed at a model service.
const ModelPrefix = "model_"

// Codes of runs that ended before an agent answered. Table describes them.
const (
	AgentNotFound      Code = "agent_not_found"
	BundleUnavailable  Code = "bundle_unavailable"
	Cancelled          Code = "cancelled"
	ConcurrencyDropped Code = "concurrency_dropped"
	EnvironmentDeleted Code = "environment_deleted"
	Expired            Code = "expired"
	FilesRequired      Code = "files_required"
	InputInvalid       Code = "input_invalid"
	InputTooComplex    Code = "input_too_complex"
	KeyUnavailable     Code = "key_unavailable"
)

// Codes of runs that failed at a model service.
const (
	ModelAddressForbidden Code = ModelPrefix + "address_forbidden"
	ModelAnswerInvalid    Code = ModelPrefix + "answer_invalid"
	ModelAnswerTooLarge   Code = ModelPrefix + "answer_too_large"
	ModelAnswerTruncated  Code = ModelPrefix + "answer_truncated"
	ModelRateLimited      Code = ModelPrefix + "rate_limited"
	ModelRequestRejected  Code = ModelPrefix + "request_rejected"
	ModelTimeout          Code = ModelPrefix + "timeout"
	ModelUnauthorized     Code = ModelPrefix + "unauthorized"
	ModelUnavailable      Code = ModelPrefix + "unavailable"
	ModelUnknownProvider  Code = ModelPrefix + "provider_unknown"
)

// Codes of runs that failed in a tool, a script or an expression.
const (
	ExpressionFailed     Code = "expression_failed"
	HookFailed           Code = "hook_failed"
	MCPUnavailable       Code = "mcp_unavailable"
	MiddlewareFailed     Code = "middleware_failed"
	ScriptDiverged       Code = "script_diverged"
	ScriptError          Code = "script_error"
	ScriptLimit          Code = "script_limit"
	TooManyTools         Code = "too_many_tools"
	ToolArgumentsInvalid Code = "tool_arguments_invalid"
	ToolFailed           Code = "tool_failed"
	ToolInterrupted      Code = "tool_interrupted"
	ToolNameTaken        Code = "tool_name_taken"
	VariableUnavailable  Code = "variable_unavailable"
)

// Codes of runs that reached a limit.
const (
	ContextTooLarge       Code = "context_too_large"
	JournalTooLarge       Code = "journal_too_large"
	MaxIterationsExceeded Code = "max_iterations_exceeded"
	OutputTooLarge        Code = "output_too_large"
	RunLimitExceeded      Code = "run_limit_exceeded"
	StepTooLarge          Code = "step_too_large"
	Timeout               Code = "timeout"
)

// Codes of runs that the platform could not execute.
const (
	Internal      Code = "internal_error"
	NotSupported  Code = "not_supported"
	ReportInvalid Code = "report_invalid"
	RunnerLost    Code = "runner_lost"
)
