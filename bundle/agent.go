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

// Agent is one agent, with the defaults of its folders folded in.
type Agent struct {
	// Version of the keys; "1.0".
	Version     string    `yaml:"version"`
	Name        string    `yaml:"name"`
	Description string    `yaml:"description"`
	Type        AgentType `yaml:"type"`
	// Model and FallbackModel are provider/model.
	Model         string `yaml:"model"`
	FallbackModel string `yaml:"fallback_model"`
	// SystemPrompt may hold {var} from the run's context.
	SystemPrompt    string   `yaml:"system_prompt"`
	Temperature     *float64 `yaml:"temperature" min:"0" max:"2"`
	ReasoningEffort string   `yaml:"reasoning_effort"`
	Tools           []Tool   `yaml:"tools"`
	// Agents are the names of the steps of a sequential agent.
	Agents []string `yaml:"agents"`
	// ToolName is the tool of a tool agent.
	ToolName string `yaml:"tool_name"`
	// URL is where a remote agent is served.
	URL string `yaml:"url"`
	// OutputSchema is the stem of a file in schemas/.
	OutputSchema string `yaml:"output_schema"`
	// MaxConcurrentRuns is 0 without a limit.
	MaxConcurrentRuns int `yaml:"max_concurrent_runs" min:"1" without:"no limit"`
	// MaxIterations is the most model answers of one run of this agent.
	MaxIterations int `yaml:"max_iterations" min:"1" max:"10000"`
	// Timeout is of a run of this agent over all its attempts, see RunTimeout; where
	// the agent is a step of another, of the step in one attempt, 0 without a limit.
	Timeout       Duration     `yaml:"timeout" over:"0" without:"15 minutes"`
	Retry         Retry        `yaml:"retry_options"`
	Concurrency   *Concurrency `yaml:"concurrency"`
	Session       *Session     `yaml:"session"`
	Guardrails    *Guardrails  `yaml:"guardrails"`
	Approval      *Approval    `yaml:"approval"`
	MCPServers    []MCPServer  `yaml:"mcp_servers"`
	FilesRequired bool         `yaml:"files_required"`
	// Variants are the percentages of the agent's runs that its A/B variants execute, by
	// the variants' names; the agent itself executes what they leave.
	Variants map[string]int `yaml:"variants"`

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
	// Attempts counts the first one.
	Attempts     int      `yaml:"attempts" min:"1" max:"20"`
	InitialDelay Duration `yaml:"initial_delay"`
	MaxDelay     Duration `yaml:"max_delay"`
}

// Concurrency lets one run of the agent at a time have a key.
type Concurrency struct {
	// Key is a CEL expression over the run's input.
	Key string `yaml:"key"`
	// OnConflict is what becomes of a run whose key another one has: queue, which is
	// also "", or drop.
	OnConflict string `yaml:"on_conflict"`
}

// OnConflictDrop is the OnConflict by which a run whose key another one has is cancelled.
const OnConflictDrop = "drop"

// Session keeps a conversation over runs of the same key.
type Session struct {
	Key string   `yaml:"key"`
	TTL Duration `yaml:"ttl" over:"0" without:"no limit"`
}

// Guardrails check what comes in and what goes out.
type Guardrails struct {
	Input  []Guardrail `yaml:"input"`
	Output []Guardrail `yaml:"output"`
}

// Guardrail is one check.
type Guardrail struct {
	Type string `yaml:"type"` // regex, pii, prompt_injection, moderation, topic, custom
	Mode string `yaml:"mode"` // block, warn, redact
	// Name is the stem of a file in guardrails/, for custom.
	Name string `yaml:"name"`
	// Pattern is a regular expression (RE2), for regex.
	Pattern string `yaml:"pattern"`
	// Topics are what may not be talked of, for topic.
	Topics []string `yaml:"topics"`
	// Entities narrow what pii finds.
	Entities []string `yaml:"entities"`
	// Categories narrow what moderation finds.
	Categories []string `yaml:"categories"`
	// Threshold is between 0 and 1, for prompt_injection, moderation and topic.
	Threshold *float64 `yaml:"threshold" min:"0" max:"1"`
	// Message is the rejection text.
	Message string `yaml:"message"`
	// FailRun fails the run instead of completing it with the rejection text.
	FailRun bool `yaml:"fail_run"`
}

// Approval asks people before tools are called.
type Approval struct {
	Tools       []string `yaml:"tools"`
	Timeout     Duration `yaml:"timeout" over:"0" without:"no limit"`
	Message     string   `yaml:"message"`
	OnRejection string   `yaml:"on_rejection"` // fail or continue
}

// MCPServer offers tools over HTTP.
type MCPServer struct {
	Name string `yaml:"name"`
	URL  string `yaml:"url"`
	// Tools narrows to these; empty means all.
	Tools   []string          `yaml:"tools"`
	Headers map[string]string `yaml:"headers"`
}

// RunTimeout is how long a run of this agent may take, from the beginning of its
// first attempt.
func (a *Agent) RunTimeout() time.Duration {
	return cmp.Or(a.Timeout.Std(), DefaultTimeout)
}

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
