// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"cmp"
	"encoding/json"
	"time"
)

// AgentType says how an agent works.
type AgentType string

// Types of agents.
const (
	// AgentLLM asks a model, which may call tools.
	AgentLLM AgentType = "llm"
	// AgentSequential runs other agents one after the other.
	AgentSequential AgentType = "sequential"
	// AgentTool calls one tool without a model.
	AgentTool AgentType = "tool"
	// AgentRemote asks an agent that is served elsewhere.
	AgentRemote AgentType = "remote"
)

// Defaults of agents' keys.
const (
	DefaultMaxIterations = 100
	DefaultTimeout       = 15 * time.Minute
	DefaultAttempts      = 3
	DefaultInitialDelay  = 10 * time.Second
	DefaultMaxDelay      = 30 * time.Second
)

// Agent is one agent, with the defaults of its folders folded in. What a key means is said in its
// tag doc, which people read in their editors; see schema.go.
type Agent struct {
	Version         string    `yaml:"version" enum:"1.0" doc:"Version of the keys."`
	Name            string    `yaml:"name" required:"true" form:"name" doc:"Name of the agent, unique in the repository: at most 63 lower-case letters, digits and inner dashes."`
	Description     string    `yaml:"description" doc:"What the agent is for, for people."`
	Type            AgentType `yaml:"type" enum:"llm,sequential,tool,remote" doc:"How the agent works: llm asks a model, sequential runs other agents one after the other."`
	Model           string    `yaml:"model" form:"model" doc:"The model, as provider/model: the provider is a prefix of the project's modelProviders, or scripted for a file of models/."`
	FallbackModel   string    `yaml:"fallback_model" form:"model" doc:"The model, as provider/model, that answers when the attempts of the first one are used up."`
	SystemPrompt    string    `yaml:"system_prompt" doc:"What the model is told. {field} stands for a field of the input, {run_id} and {agent_name} for those of the run, {headers.x-name} for a header, {env.NAME} for a variable of the environment."`
	Temperature     *float64  `yaml:"temperature" min:"0" max:"2" doc:"How freely the model answers, 0 to 2; without it as the model does."`
	ReasoningEffort string    `yaml:"reasoning_effort" enum:"minimal,low,medium,high" doc:"How long the model thinks; without it as the model does."`
	Tools           []Tool    `yaml:"tools" doc:"The tools that the model may call."`
	Agents          []string  `yaml:"agents" doc:"Names of the agents that a sequential agent runs, in order."`
	ToolName        string    `yaml:"tool_name" doc:"The tool that an agent of type tool calls."`
	URL             string    `yaml:"url" doc:"Where an agent of type remote is served, http or https."`
	OutputSchema    string    `yaml:"output_schema" doc:"File of schemas/, without its ending, whose JSON Schema the answer must fit."`
	// MaxConcurrentRuns is 0 without a limit.
	MaxConcurrentRuns int `yaml:"max_concurrent_runs" min:"1" without:"no limit" doc:"Most runs of the agent under way at a time, over all runners of the environment; those beyond wait in their order."`
	MaxIterations     int `yaml:"max_iterations" min:"1" max:"10000" doc:"Most model answers of the agent in one run."`
	// Timeout is 0 without a limit; see RunTimeout.
	Timeout       Duration       `yaml:"timeout" over:"0" without:"15 minutes" doc:"How long a run of the agent may take, over all its attempts; of an agent that is a step of another one, the step in one attempt."`
	Retry         Retry          `yaml:"retry_options" doc:"How failed model requests are repeated."`
	Concurrency   *Concurrency   `yaml:"concurrency" doc:"Lets one run of the agent with the same key be under way at a time."`
	Session       *Session       `yaml:"session" doc:"Keeps a conversation over the runs of a key."`
	Guardrails    *Guardrails    `yaml:"guardrails" doc:"What is checked of the input and of the answer."`
	Approval      *Approval      `yaml:"approval" doc:"Asks people before tools are called."`
	MCPServers    []MCPServer    `yaml:"mcp_servers" doc:"Servers whose tools the model may call, by the Model Context Protocol over HTTP."`
	FilesRequired bool           `yaml:"files_required" doc:"Whether a run fails before it begins when its event has no attachment, or one that was omitted."`
	Variants      map[string]int `yaml:"variants" doc:"Percentages of the agent's runs that its A/B variants execute, by the variants' names; the agent itself executes what they leave of 100."`

	// SourcePath is the agent's file.
	SourcePath string
	// VariantOf is the name of the agent of which this is an A/B variant, or "", and
	// TestName the variant's name.
	VariantOf, TestName string

	source *node
}

// Tool is a tool that an agent may call.
type Tool struct {
	// Reference names a built-in tool, or a function as folder.file.function.
	Reference string
	// Condition says when the tool is offered: CEL or free text, "" for always.
	Condition string
}

// Retry says how failed model requests are repeated.
type Retry struct {
	Attempts     int      `yaml:"attempts" min:"1" max:"20" doc:"How often a request is made, the first one counted."`
	InitialDelay Duration `yaml:"initial_delay" doc:"Wait before the second attempt; it doubles with each one after."`
	MaxDelay     Duration `yaml:"max_delay" doc:"Longest wait before an attempt, also where the provider asks for a longer one."`
}

// Concurrency lets one run of the agent at a time have a key.
type Concurrency struct {
	Key string `yaml:"key" required:"true" doc:"CEL expression over the run's input, such as input.customer.id, which yields the key."`
	// OnConflict is queue where it is "".
	OnConflict string `yaml:"on_conflict" enum:"queue,drop" doc:"What becomes of a run whose key another one has: queue waits for it, drop cancels the run."`
}

// OnConflictDrop is the OnConflict by which a run whose key another one has is cancelled.
const OnConflictDrop = "drop"

// Session keeps a conversation over runs of the same key.
type Session struct {
	Key string   `yaml:"key" required:"true" doc:"CEL expression over the run's input, which yields the key of the conversation."`
	TTL Duration `yaml:"ttl" over:"0" without:"no limit" doc:"How long a conversation is kept after its last run."`
}

// Guardrails check what comes in and what goes out.
type Guardrails struct {
	Input  []Guardrail `yaml:"input" doc:"Checks of what the agent is asked."`
	Output []Guardrail `yaml:"output" doc:"Checks of what the agent answers."`
}

// Guardrail is one check.
type Guardrail struct {
	Type       string   `yaml:"type" required:"true" enum:"regex,pii,prompt_injection,moderation,topic,custom" doc:"What is looked for."`
	Mode       string   `yaml:"mode" enum:"block,warn,redact" doc:"What becomes of what is found."`
	Name       string   `yaml:"name" doc:"File of guardrails/, without its ending, for custom."`
	Pattern    string   `yaml:"pattern" doc:"Regular expression (RE2), for regex."`
	Topics     []string `yaml:"topics" doc:"What may not be talked of, for topic."`
	Entities   []string `yaml:"entities" doc:"What pii looks for; all without them."`
	Categories []string `yaml:"categories" doc:"What moderation looks for; all without them."`
	Threshold  *float64 `yaml:"threshold" min:"0" max:"1" doc:"How sure it must be, 0 to 1, for prompt_injection, moderation and topic."`
	Message    string   `yaml:"message" doc:"What is answered in place of what was blocked."`
	FailRun    bool     `yaml:"fail_run" doc:"Whether the run fails in place of completing with the message."`
}

// Approval asks people before tools are called.
type Approval struct {
	Tools       []string `yaml:"tools" doc:"The tools that people are asked about."`
	Timeout     Duration `yaml:"timeout" over:"0" without:"no limit" doc:"How long people have to answer."`
	Message     string   `yaml:"message" doc:"What people are asked."`
	OnRejection string   `yaml:"on_rejection" enum:"fail,continue" doc:"What becomes of the run when they say no."`
}

// MCPServer offers tools over HTTP.
type MCPServer struct {
	Name    string            `yaml:"name" required:"true" doc:"What the server is called here."`
	URL     string            `yaml:"url" required:"true" doc:"Where it is, http or https."`
	Tools   []string          `yaml:"tools" doc:"The tools that may be called; all without them."`
	Headers map[string]string `yaml:"headers" doc:"Headers that it is sent; a value may name variables of the environment as ${NAME}."`
}

// RunTimeout is how long a run of this agent may take, from the beginning of its
// first attempt.
func (a *Agent) RunTimeout() time.Duration {
	return cmp.Or(a.Timeout.Std(), DefaultTimeout)
}

// Has says whether a key is written, and not null.
func (a *Agent) Has(key string) bool { return a.source.has(key) }

// At is where a key of the agent is written, or one inside it, which may be a file
// of defaults: as far down as it is written, the agent's file when it is not at all.
func (a *Agent) At(keys ...string) Position {
	at, within := Position{File: a.SourcePath, Line: 1, Column: 1}, a.source
	for _, key := range keys {
		if within == nil {
			break
		}
		e := within.get(key)
		if e == nil {
			break
		}
		at, within = e.pos, e.value
	}
	return at
}

// Config is the agent's configuration as written, defaults folded in.
func (a *Agent) Config() json.RawMessage {
	data, err := json.Marshal(a.source.value())
	if err != nil {
		return nil // Cannot be: values are scalars, lists and maps.
	}
	return data
}

func (t *Tool) unmarshalNode(d *decoder, n *node, path string) {
	switch reference, isText := n.scalar.(string); {
	case isText:
		t.Reference = reference
	case n.kind == kindMap && len(n.entries) == 1:
		t.Reference = n.entries[0].key
		d.value(n.entries[0].value, reflectString(&t.Condition), join(path, t.Reference))
		if t.Condition == "" && n.entries[0].value.null() {
			d.problems.add(n.pos, "%q has no condition; write it after the colon, or the reference alone", path)
		}
	default:
		d.mismatch(n, path, "a tool's reference or {reference: condition}")
	}
}

// newAgent is an agent with the defaults of all keys, before it is decoded: what
// is written replaces them, be it zero, and what is absent or null does not.
func newAgent(file string, source *node) *Agent {
	return &Agent{
		MaxIterations: DefaultMaxIterations,
		Retry:         Retry{Attempts: DefaultAttempts, InitialDelay: Duration(DefaultInitialDelay), MaxDelay: Duration(DefaultMaxDelay)},
		SourcePath:    file,
		source:        source,
	}
}

// fillDefaults fills in the defaults that depend on what is written.
func (a *Agent) fillDefaults() {
	if a.Type == "" {
		a.Type = AgentLLM
	}
	if !a.source.written("retry_options", "max_delay") {
		a.Retry.MaxDelay = max(a.Retry.MaxDelay, a.Retry.InitialDelay)
	}
}
