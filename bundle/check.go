// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/agentplatform/agentplatform/internal/pattern"
)

var (
	agentName  = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
	modelName  = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?/\S+$`)
	stemName   = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?$`)
	toolName   = regexp.MustCompile(`^[a-z0-9_-]+$`)
	codeName   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+$`)
	dnsLabel40 = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)
)

// scriptedProvider is the prefix of models that are scripts in models/.
const scriptedProvider = "scripted/"

// checkAgent checks what one agent says, without looking at other files.
func (p *parsing) checkAgent(a *Agent) {
	switch {
	case a.source.get("name") == nil:
		p.problems.add(Position{File: a.SourcePath, Line: 1, Column: 1}, `missing key "name"; add name: %s`, suggestName(a.SourcePath))
	case !agentName.MatchString(a.Name) || len(a.Name) > maxName:
		p.problems.add(a.At("name"), `"name" must be at most 63 lower-case letters, digits and inner dashes, not %q`, a.Name)
	}
	if a.Version != "" && !slices.Contains(allowed[Agent]("version"), a.Version) {
		p.problems.add(a.At("version"), `"version" must be "1.0", not %q`, a.Version)
	}
	p.checkType(a)
	p.checkModels(a)
	p.checkDelays(a)
	p.oneOf(a, "reasoning_effort", a.ReasoningEffort, allowed[Agent]("reasoning_effort")...)
	if a.Concurrency != nil {
		p.required(a, "concurrency", "key", a.Concurrency.Key)
		p.oneOf(a, "concurrency", a.Concurrency.OnConflict, allowed[Concurrency]("on_conflict")...)
	}
	if a.Session != nil {
		p.required(a, "session", "key", a.Session.Key)
	}
	if a.Approval != nil {
		p.oneOf(a, "approval", a.Approval.OnRejection, allowed[Approval]("on_rejection")...)
	}
	for _, server := range a.MCPServers {
		p.required(a, "mcp_servers", "name", server.Name)
		p.checkURL(a, "mcp_servers", server.URL)
	}
	if a.Guardrails != nil {
		p.checkGuardrails(a, a.Guardrails.Input)
		p.checkGuardrails(a, a.Guardrails.Output)
	}
}

// suggestName is the file's stem as a name.
func suggestName(file string) string {
	name := strings.Trim(strings.ReplaceAll(strings.ToLower(stem(file)), "_", "-"), "-")
	if !agentName.MatchString(name) {
		return "my-agent"
	}
	return name
}

func (p *parsing) checkModels(a *Agent) {
	for key, model := range map[string]string{"model": a.Model, "fallback_model": a.FallbackModel} {
		if model != "" && !modelName.MatchString(model) {
			p.problems.add(a.At(key), "%q must be provider/model, such as openai/gpt-5, not %q", key, model)
		}
	}
}

// checkDelays checks what two numbers have to do with each other; what each may
// be is said at its field.
func (p *parsing) checkDelays(a *Agent) {
	if a.Retry.MaxDelay < a.Retry.InitialDelay {
		at := a.source.path("retry_options", "max_delay").pos
		p.problems.add(at, `"retry_options.max_delay" must be at least the initial_delay of %s`, a.Retry.InitialDelay.Std())
	}
}

func (p *parsing) checkGuardrails(a *Agent, list []Guardrail) {
	for _, g := range list {
		p.required(a, "guardrails", "type", g.Type)
		p.oneOf(a, "guardrails", g.Type, allowed[Guardrail]("type")...)
		p.oneOf(a, "guardrails", g.Mode, allowed[Guardrail]("mode")...)
		switch g.Type {
		case "regex":
			p.required(a, "guardrails", "pattern", g.Pattern)
			if _, _, err := pattern.Compile(g.Pattern); err != nil {
				p.problems.add(a.At("guardrails"), "guardrail pattern %q is not a regular expression (RE2) that can be used: %v", g.Pattern, err)
			}
		case "topic":
			if len(g.Topics) == 0 {
				p.problems.add(a.At("guardrails"), `a guardrail of type topic needs "topics"`)
			}
		case "custom":
			p.required(a, "guardrails", "name", g.Name)
			p.fileOf(a, "guardrails", g.Name, "guardrails/", ".star")
		}
	}
}

// linkAgent checks what an agent refers to.
func (p *parsing) linkAgent(a *Agent) {
	for _, name := range a.Agents {
		if !p.refusesVariant(a.At("agents"), name) && p.project.byName[name] == nil {
			p.problems.add(a.At("agents"), "no agent is named %q; write it or correct the name", name)
		}
	}
	for key, model := range map[string]string{"model": a.Model, "fallback_model": a.FallbackModel} {
		if file, ok := strings.CutPrefix(model, scriptedProvider); ok && !p.exists("models/"+file+".yaml") {
			p.problems.add(a.At(key), "model %q needs the script models/%s.yaml, which is not there", model, file)
		}
	}
	for _, t := range a.Tools {
		p.checkTool(a, "tools", t.Reference)
	}
	if a.ToolName != "" {
		p.checkTool(a, "tool_name", a.ToolName)
	}
	p.fileOf(a, "output_schema", a.OutputSchema, "schemas/", ".json")
}

// checkTool checks a reference: folder.file.function is a file in tools/, all
// else the name of a built-in tool, which the runner knows.
func (p *parsing) checkTool(a *Agent, key, reference string) {
	switch {
	case codeName.MatchString(reference):
		parts := strings.Split(reference, ".")
		file := "tools/" + path.Join(parts[:len(parts)-1]...) + ".star"
		if !p.exists(file) {
			p.problems.add(a.At(key), "tool %q needs the file %s, which is not there", reference, file)
		}
	case !toolName.MatchString(reference):
		p.problems.add(a.At(key), "%q is not a tool; write folder.file.function or the name of a built-in tool", reference)
	}
}

// fileOf checks that a name refers to a file of the repository.
func (p *parsing) fileOf(a *Agent, key, name, folder, ext string) {
	switch {
	case name == "":
	case !stemName.MatchString(name):
		p.problems.add(a.At(key), "%q must name a file in %s without its ending, not %q", key, folder, name)
	case !p.exists(folder + name + ext):
		p.problems.add(a.At(key), "%q needs the file %s%s%s, which is not there", key, folder, name, ext)
	}
}

func (p *parsing) required(a *Agent, key, sub, value string) {
	if value == "" {
		p.problems.add(a.At(key), "%q needs %q", key, sub)
	}
}

func (p *parsing) oneOf(a *Agent, key, value string, allowed ...string) {
	if value != "" && !slices.Contains(allowed, value) {
		p.problems.add(a.At(key), "%q: %q is not one of %s", key, value, strings.Join(allowed, ", "))
	}
}

func (p *parsing) checkURL(a *Agent, key, address string) {
	if strings.Contains(address, "${") {
		return // Resolved from the environment's variables later.
	}
	if u, err := url.Parse(address); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		p.problems.add(a.At(key), "%q needs an http or https URL, not %q", key, address)
	}
}
