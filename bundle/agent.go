// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"cmp"
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// AgentType is the way an agent works.
type AgentType string

// Types of agents.
const (
	// AgentLLM sends its input to a model, which may call tools.
	AgentLLM AgentType = "llm"
	// AgentSequential runs steps, such as other agents, one after the other.
	AgentSequential AgentType = "sequential"
	// AgentTool calls one tool without a model.
	AgentTool AgentType = "tool"
	// AgentRemote calls an agent that another service runs.
	AgentRemote AgentType = "remote"
)

// Defaults of agents' keys.
const (
	DefaultMaxIterations = 100
	DefaultToolCalls     = 1000
	DefaultMaxResult     = 64 << 10
	DefaultTimeout       = 15 * time.Minute
	DefaultAttempts      = 3
	DefaultInitialDelay  = 10 * time.Second
	DefaultMaxDelay      = 30 * time.Second
)

// Agent is one agent, merged with the defaults of its folders. Each field with the tag yaml is a key; type field
// explains the tags.
type Agent struct {
	Version         string    `yaml:"version" enum:"1.0" without:"1.0" example:"'1.0'" doc:"Version of the keys."`
	Name            string    `yaml:"name" required:"true" form:"name" defaults:"false" example:"support" doc:"Name of the agent, unique in the repository: at most 63 lower-case letters, digits and inner dashes."`
	Description     string    `yaml:"description" example:"Answers questions of customers" doc:"Description for people."`
	Type            AgentType `yaml:"type" enum:"llm,sequential,tool,remote" unsupportedValues:"remote" without:"llm" example:"llm" doc:"How the agent works: 'llm' sends the input to a model, 'sequential' runs other agents or tools, in order or at the same time, 'tool' calls one tool with the input as its arguments, without a model."`
	Model           string    `yaml:"model" types:"llm" required:"llm" form:"model" example:"openai/gpt-5" doc:"Model, as 'provider/model'. The provider is a prefix of the project's 'modelProviders', or 'scripted' for a file in 'models/'."`
	FallbackModel   string    `yaml:"fallback_model" types:"llm" form:"model" example:"openai/gpt-5-mini" doc:"Model, as 'provider/model', that answers when all attempts of the first model have failed."`
	SystemPrompt    string    `yaml:"system_prompt" variables:"prompt" types:"llm" example:"Help {name} with the order." doc:"Instructions for the model, with placeholders such as '{field}' for a field of the input."`
	Temperature     *float64  `yaml:"temperature" types:"llm" min:"0" max:"2" without:"the default of the model" example:"0.5" doc:"Randomness of the answers."`
	ReasoningEffort string    `yaml:"reasoning_effort" types:"llm" enum:"minimal,low,medium,high" without:"the default of the model" example:"low" doc:"How long the model thinks."`
	// MaxOutputTokens is 0 for the default of the model.
	MaxOutputTokens int `yaml:"max_output_tokens" types:"llm" min:"1" max:"1000000" without:"the default of the model" example:"2000" doc:"Maximum number of tokens in one answer of the model, including thinking. 'on_truncation' says what happens with an answer that this limit cut off."`
	// OnTruncation is "" for TruncationKeep.
	OnTruncation string `yaml:"on_truncation" types:"llm" enum:"keep,fail" without:"keep" example:"fail" doc:"What happens with an answer that a limit of tokens cut off: 'keep' uses it, 'fail' fails the run with 'model_answer_truncated'."`
	Tools        []Tool `yaml:"tools" types:"llm" example:"[current_time]" doc:"Tools that the model may call: HTTP tools as 'folder.file.name', functions of scripts as 'folder.file.function', all of a file as 'folder.file.*', operations of OpenAPI documents as 'api:name.operationId' or 'api:name.*', or a built-in tool such as 'current_time'. 'reference: condition' offers a tool only while a CEL condition over 'input', 'context' and 'headers' is true. At most 128."`
	// DiscoverableTools are not part of requests to the model.
	DiscoverableTools []Tool `yaml:"discoverable_tools" types:"llm" example:"[current_time]" doc:"Tools that the model finds with 'search_tools' and calls with 'use_tool', so that their descriptions cost no tokens in each request. References and conditions as in 'tools'. At most 1000."`
	// ToolOptions apply to all tools of the agent.
	ToolOptions ToolOptions `yaml:"tool_options" types:"llm" doc:"How results of tools reach the model."`
	Agents      []string    `yaml:"agents" types:"sequential" required:"sequential" choice:"steps" example:"[support]" doc:"Names of the agents to run, in order. Each answers the answer of the agent before it, and sees the whole conversation. With the agents that these run, at most 100."`
	// Steps are an alternative to Agents, with results that have names.
	Steps        []SequenceStep `yaml:"steps" types:"sequential" required:"sequential" choice:"steps" defaults:"false" doc:"Steps to run, in order. With the steps of the agents that these run, at most 100."`
	Output       Expression     `yaml:"output" types:"sequential" defaults:"false" without:"the output of the last step that ran" example:"reply" doc:"CEL expression that returns the output of an agent with 'steps'. Text is the output as it is, any other value is JSON."`
	ToolName     string         `yaml:"tool_name" types:"tool" required:"tool" example:"current_time" doc:"Tool that the agent calls: a reference as in 'tools' that names one tool, or the name of a tool of 'mcp_servers' with its 'prefix'. The input is a JSON object with the arguments. A tool whose only parameter is 'payload' gets the whole input. The output is the result as JSON."`
	URL          string         `yaml:"url" types:"remote" required:"remote" form:"url" example:"https://agents.example.com/support" doc:"URL of the remote agent, http or https."`
	OutputSchema string         `yaml:"output_schema" unsupported:"true" file:"schemas/*.json" example:"answer" doc:"File in 'schemas/', without '.json', with the JSON Schema of the answer."`
	// MaxConcurrentRuns is 0 without a limit.
	MaxConcurrentRuns int `yaml:"max_concurrent_runs" scope:"base" min:"1" without:"no limit" example:"3" doc:"Maximum number of concurrent runs of the agent, over all runners of the environment. More runs wait in their order."`
	MaxIterations     int `yaml:"max_iterations" types:"llm" min:"1" max:"10000" example:"7" doc:"Maximum number of model answers of the agent in one run."`
	// Timeout is 0 without a limit; see RunTimeout.
	Timeout       Duration       `yaml:"timeout" types:"llm,sequential,tool" over:"0" without:"15 minutes" example:"1m30s" doc:"Time limit of a run over all its attempts, in seconds or as text such as '1m30s'. For an agent that is a step of another agent: time limit of the step in one attempt, without a default."`
	Limits        Limits         `yaml:"limits" types:"llm,sequential" doc:"Limits of what the agent and its steps do in one run, over all attempts. A run that needs more fails with 'run_limit_exceeded'."`
	Retry         Retry          `yaml:"retry_options" types:"llm,tool" doc:"Retries of failed model requests. For an agent of type 'tool': of calls that failed because a service was unavailable, or in a script, if the tool is idempotent."`
	Concurrency   *Concurrency   `yaml:"concurrency" scope:"base" doc:"Allows one open run per key: runs of the agent with the same key run one at a time."`
	Session       *Session       `yaml:"session" scope:"base" unsupported:"true" doc:"Conversation that the runs with the same key share."`
	Guardrails    *Guardrails    `yaml:"guardrails" unsupported:"true" doc:"Checks of the input and of the answer."`
	Approval      *Approval      `yaml:"approval" unsupported:"true" doc:"Approval by people before the agent calls a tool."`
	MCPServers    []MCPServer    `yaml:"mcp_servers" types:"llm,tool" doc:"Servers whose tools the agent may call, by the Model Context Protocol over HTTP."`
	APIs          map[string]API `yaml:"apis" types:"llm,sequential,tool" example:"{shop: {base_url: '${SHOP_URL}', auth: {bearer: '${SHOP_TOKEN}'}}}" doc:"Base URLs and credentials of the OpenAPI documents in 'apis/', by the names of the files without extension."`
	FilesRequired bool           `yaml:"files_required" without:"false" example:"true" doc:"Fails a run with 'files_required' before it starts if its event has no attachment, or an attachment was omitted. Without effect for an agent that is a step of another agent."`
	Variants      map[string]int `yaml:"variants" scope:"base" defaults:"false" example:"{short: 10}" doc:"Percentages of the agent's runs that its A/B variants execute, by the names of the variants. The agent itself executes the rest."`

	// SourcePath is the agent's file.
	SourcePath string
	// VariantOf is the name of the base if the agent is an A/B variant, else "". TestName is the variant's name.
	VariantOf, TestName string

	source *node
	access map[string]*apiAccess // by the name of the API
}

// Tool is a tool that an agent may call.
type Tool struct {
	// Reference names a built-in tool, or a function as folder.file.function.
	Reference string
	// Condition decides before each model request whether the model may call the tool. Without one it always may.
	Condition Expression
}

// ToolOptions configure how results of tools reach the model.
type ToolOptions struct {
	MaxResult     int    `yaml:"max_result" min:"1024" max:"262144" example:"32768" doc:"Maximum size of a result that the model sees, in bytes of JSON. The middle of a longer result is left out. The run keeps up to 256 KiB of each result, and saves a larger one as a file. MCP servers have a 'max_result' of their own."`
	OnInterrupted string `yaml:"on_interrupted" enum:"fail,tell" without:"fail" example:"tell" doc:"What happens if the runner is lost during a call or a request that is not idempotent: 'fail' fails the run with 'tool_interrupted', 'tell' tells the model that the outcome is unknown."`
}

// TruncationFail is the value of OnTruncation that fails the run.
const TruncationFail = "fail"

// InterruptedTell is the value of OnInterrupted that tells the model about an interrupted call.
const InterruptedTell = "tell"

// TellsInterrupted reports whether the model learns of an interrupted call, and the run continues.
func (o ToolOptions) TellsInterrupted() bool { return o.OnInterrupted == InterruptedTell }

// Retry configures the retries of failed model requests and of tools.
type Retry struct {
	Attempts     int      `yaml:"attempts" min:"1" max:"20" example:"2" doc:"Maximum number of attempts, including the first."`
	InitialDelay Duration `yaml:"initial_delay" example:"0.5" doc:"Delay before the second attempt. It doubles with each further attempt."`
	MaxDelay     Duration `yaml:"max_delay" example:"4" doc:"Maximum delay before an attempt, also if the provider asks for a longer one. At least 'initial_delay'."`
}

// Limits bound what an agent does in a run. Zero is no limit.
type Limits struct {
	ToolCalls int    `yaml:"tool_calls" min:"1" max:"10000" example:"200" doc:"Maximum number of tool calls."`
	Tokens    int64  `yaml:"tokens" min:"1" without:"no limit" example:"2000000" doc:"Number of tokens after which no further model request is sent."`
	Cost      string `yaml:"cost" form:"cost" without:"no limit" example:"'5.00 USD'" doc:"Cost of model requests after which no further one is sent, in the currency of the models' prices, USD or EUR. A run whose prices have the other currency fails. Requests without a known price cost nothing."`
}

// CostLimit returns the limit of the cost in billionths of a currency, 0 without a limit.
func (l Limits) CostLimit() (nanos int64, currency string) {
	amount, currency, _ := strings.Cut(l.Cost, " ")
	whole, part, _ := strings.Cut(amount, ".")
	nanos, err := strconv.ParseInt(whole+part+strings.Repeat("0", costDecimals-len(part)), 10, 64)
	if err != nil {
		return 0, "" // Not set: the form of a cost was checked.
	}
	return nanos, currency
}

// costDecimals is the number of decimals of a billionth.
const costDecimals = 9

// Concurrency allows one open run per key.
type Concurrency struct {
	Key string `yaml:"key" required:"true" example:"input.id" doc:"CEL expression over the input of the run, such as 'input.customer.id', that returns the key."`
	// OnConflict is queue if it is "".
	OnConflict string `yaml:"on_conflict" enum:"queue,drop" without:"queue" example:"drop" doc:"What a run does if another open run has its key: 'queue' waits, 'drop' cancels the run."`
}

// OnConflictDrop is the value of OnConflict that cancels a run if another open run has its key.
const OnConflictDrop = "drop"

// Session shares a conversation between the runs with the same key.
type Session struct {
	Key string   `yaml:"key" required:"true" example:"input.user" doc:"CEL expression over the input of the run that returns the key of the conversation."`
	TTL Duration `yaml:"ttl" over:"0" without:"no limit" example:"3600" doc:"Retention of a conversation after its last run."`
}

// Guardrails check the input and the answer of an agent.
type Guardrails struct {
	Input  []Guardrail `yaml:"input" doc:"Checks of the input."`
	Output []Guardrail `yaml:"output" doc:"Checks of the answer."`
}

// Guardrail is one check.
type Guardrail struct {
	Type       string   `yaml:"type" required:"true" enum:"regex,pii,prompt_injection,moderation,topic,custom" example:"regex" doc:"What the check looks for."`
	Mode       string   `yaml:"mode" enum:"block,warn,redact" example:"redact" doc:"What the check does with a finding."`
	Name       string   `yaml:"name" required:"custom" file:"guardrails/*.star" example:"polite" doc:"File in 'guardrails/', without '.star', for the type 'custom'."`
	Pattern    *Pattern `yaml:"pattern" required:"regex" example:"(?i)secret" doc:"Regular expression (RE2), for the type 'regex'."`
	Topics     []string `yaml:"topics" required:"topic" example:"[politics]" doc:"Forbidden topics, for the type 'topic'."`
	Entities   []string `yaml:"entities" example:"[email]" without:"all" doc:"Kinds of personal data, for the type 'pii'."`
	Categories []string `yaml:"categories" example:"[hate]" without:"all" doc:"Categories of content, for the type 'moderation'."`
	Threshold  *float64 `yaml:"threshold" min:"0" max:"1" example:"0.5" doc:"Minimum score of a finding, for the types 'prompt_injection', 'moderation' and 'topic'."`
	Message    string   `yaml:"message" example:"I cannot say that." doc:"Answer in place of blocked content."`
	FailRun    bool     `yaml:"fail_run" example:"true" doc:"Fails the run, which otherwise completes with the message."`
}

// Approval asks people before the agent calls a tool.
type Approval struct {
	Tools       []string `yaml:"tools" example:"[current_time]" doc:"Tools that need an approval."`
	Timeout     Duration `yaml:"timeout" over:"0" without:"no limit" example:"60" doc:"Time that people have to decide."`
	Message     string   `yaml:"message" example:"May I look at the clock?" doc:"Question to the people who decide."`
	OnRejection string   `yaml:"on_rejection" enum:"fail,continue" example:"continue" doc:"What the run does after a rejection."`
}

// RunTimeout returns the time limit of a run of this agent, measured from the start of its first attempt.
func (a *Agent) RunTimeout() time.Duration {
	return cmp.Or(a.Timeout.Std(), DefaultTimeout)
}

// Has reports whether a key is written and not null.
func (a *Agent) Has(key string) bool { return a.source.hasValue(key) }

// At returns the position of a key of the agent, or of a key inside it. The position may be in a file of defaults. For a
// missing key it is the position of the deepest written key above it, else the start of the agent's file.
func (a *Agent) At(keys ...string) Position {
	at, within := Position{File: a.SourcePath, Line: 1, Column: 1}, a.source
	for _, key := range keys {
		if within == nil {
			break
		}
		e := within.findEntry(key)
		if e == nil {
			break
		}
		at, within = e.pos, e.value
	}
	return at
}

// Config returns the agent's configuration as written, merged with the defaults of its folders.
func (a *Agent) Config() json.RawMessage {
	data, err := json.Marshal(a.source.toValue())
	if err != nil {
		return nil // Impossible: values are scalars, lists and maps.
	}
	return data
}

func (t *Tool) unmarshalNode(d *decoder, n *node, path string) {
	switch reference, isText := n.scalar.(string); {
	case isText:
		t.Reference = reference
	case n.kind == kindMap && len(n.entries) == 1:
		t.Reference = n.entries[0].key
		t.Condition.unmarshalNode(d, n.entries[0].value, joinPath(path, t.Reference))
		if t.Condition.text == "" && n.entries[0].value.kind == kindScalar {
			d.report(n.pos, "%q has no condition; write it after the colon, or write the reference alone", path)
		}
	default:
		d.reportMismatch(n, path, "a tool's reference or {reference: condition}")
	}
}

// newAgent returns an agent with the defaults of all keys, to decode a file into. Written values replace the defaults,
// also if they are zero. Missing and null values do not.
func newAgent(file string, source *node) *Agent {
	return &Agent{
		MaxIterations: DefaultMaxIterations,
		Limits:        Limits{ToolCalls: DefaultToolCalls},
		ToolOptions:   ToolOptions{MaxResult: DefaultMaxResult},
		Retry:         Retry{Attempts: DefaultAttempts, InitialDelay: Duration(DefaultInitialDelay), MaxDelay: Duration(DefaultMaxDelay)},
		SourcePath:    file,
		source:        source,
	}
}

// fillDefaults sets the defaults that depend on other values.
func (a *Agent) fillDefaults() {
	if a.Type == "" {
		a.Type = AgentLLM
	}
	a.fillNames()
	if !a.source.isWritten("retry_options", "max_delay") {
		a.Retry.MaxDelay = max(a.Retry.MaxDelay, a.Retry.InitialDelay)
	}
}
