// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/later"
)

const (
	everyKeyOfAgents = `version: "1.0"
name: full
description: All keys
type: llm
model: openai/gpt-5
fallback_model: scripted/spare
system_prompt: Hello {name}
temperature: 0.5
reasoning_effort: low
tools: [current_time, {current_time: input.amount >= 40}]
output_schema: answer
max_concurrent_runs: 3
max_iterations: 7
timeout: 1m30s
retry_options: {attempts: 2, initial_delay: 0.5, max_delay: 4}
concurrency: {key: input.id, on_conflict: drop}
session: {key: input.user, ttl: 3600}
guardrails:
  input:
    - {type: regex, mode: block, pattern: "(?i)secret", message: no, fail_run: true}
    - {type: pii, entities: [email]}
    - {type: moderation, categories: [hate], threshold: 0.5}
  output:
    - {type: topic, topics: [politics], mode: redact}
    - {type: custom, name: polite}
approval: {tools: [current_time], timeout: 60, message: Really?, on_rejection: continue}
mcp_servers:
  - {name: files, url: "https://mcp.example.com", tools: [read], headers: {Authorization: "Bearer ${TOKEN}"}}
files_required: true
variants: {short: 10}
`
	everyKeyOfSuites = `agent: full
mocks: {tools: {current_time: {result: {time: noon}}}}
cases:
  - name: one
    payload: {a: 1}
    files: [files/a.txt]
    context: {headers: {x-event: push}}
    runs: 2
    success_threshold: 0.5
    timeout_s: 30
    mocks: {models: {openai/gpt-5: scripted/spare, scripted/spare: {steps: [{text: x}]}}, tools: {current_time: {error: broken}}}
    expected_result: output == "x"
    expected_tool_calls: [{tool: current_time, arguments: {timezone: UTC}, times: 1}]
    expected_no_tool_calls: [current_time]
    approval_decisions: [approve]
`
)

// everyKey is a valid repository that has each key at least once.
func everyKey() bundle.Files {
	return files(
		"agents/_defaults.yaml", "retry_options: {attempts: 2}\n",
		"agents/full.yaml", everyKeyOfAgents,
		"agents/full-test-short.yaml", "name: full-short\nmodel: openai/gpt-5\n",
		"agents/steps.yaml", "name: steps\ntype: sequential\nagents: [full, full]\n",
		"agents/call.yaml", "name: call\ntype: tool\ntool_name: current_time\n",
		"agents/away.yaml", "name: away\ntype: remote\nurl: https://agents.example.com/a\n",
		"connectors/inbound.yaml", "type: webhook\nmode: inbound\nname: In\nenabled: false\nconfig: {require_authentication: true, context_headers: [X-Event]}\nagents: [full]\n",
		"connectors/sync.yaml", "type: webhook\nmode: sync\nconfig: {authentication: github, files_required: true, timeout_seconds: 60}\nlinks: [{agent: full, files_required: true}]\n",
		"connectors/cron.yaml", "type: cron\nmode: inbound\nconfig: {schedule: '@daily', timezone: Europe/Paris, missed_ticks: latest, prompt: Go, payload: {a: 1}}\n",
		"connectors/out.yaml", `type: webhook
mode: outbound
config: {url: 'https://a.example.com', headers: {X-Key: k}, timeout_seconds: 5, retry: {max_attempts: 3, schedule_seconds: [0, 5]}}
links:
  - {agent: full, outbound: {mode: automatic, source_connectors: [sync], statuses: [completed, failed, cancelled, delivery_failed]}}
  - {agent: steps, outbound: {mode: agent_tool, action_name: send_it}}
`,
		"models/spare.yaml", `steps:
  - {turn: 1, match: hi, tool_calls: [{name: current_time, arguments: {timezone: UTC}}], delay: 0.1}
  - {error: {status: 503, message: away, times: 1}, tokens: {input: 1, output: 1, thinking: 1, cached_input: 1}}
  - {text: hi}
`,
		"tests/full.yaml", everyKeyOfSuites,
		"tests/files/a.txt", "a", "guardrails/polite.star", "", "schemas/answer.json", "{}",
	)
}

// schemas are those of all kinds, compiled.
func schemas(t *testing.T) map[bundle.Kind]*jsonschema.Schema {
	t.Helper()
	out := map[bundle.Kind]*jsonschema.Schema{}
	for _, k := range bundle.Kinds {
		text, err := bundle.FullSchema(k.Kind)
		require.NoError(t, err)
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		require.NoError(t, err)
		compiler := jsonschema.NewCompiler()
		compiler.DefaultDraft(jsonschema.Draft2020)
		require.NoError(t, compiler.AddResource("schema.json", value))
		out[k.Kind], err = compiler.Compile("schema.json")
		require.NoError(t, err)
	}
	return out
}

// fits says what the schema of a file says of its text; readable is false of what is no YAML.
func fits(t *testing.T, all map[bundle.Kind]*jsonschema.Schema, file string, text []byte) (err error, readable bool) {
	t.Helper()
	data, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, false
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return nil, false
	}
	return all[bundle.KindOf(file)].Validate(value), true
}

// structural are the problems that a schema has to see: keys, types, bounds and words.
var structural = regexp.MustCompile(`unknown key|" must be (text|true or false|a whole number|a number|a list|keys and values|between|at least \d|more than|one of)|must hold|is not one of|is not for .* connectors|must be skip or latest`)

// typed is an agent that names its type.
var typed = regexp.MustCompile(`(?m)^type: \w|"type":"`)

// agree holds the schemas to the parser, of these files or all: they refuse nothing that it takes,
// and what it refuses for how the file is built.
func agree(t *testing.T, all map[bundle.Kind]*jsonschema.Schema, repository bundle.Files, about string, files ...string) {
	t.Helper()
	_, problems := bundle.Examine(repository)
	if files == nil {
		files = repository.Paths()
	}
	for _, file := range files {
		text := repository[file]
		if bundle.KindOf(file) == "" {
			continue
		}
		refused, readable := fits(t, all, file, text)
		if !readable {
			continue
		}
		var own bundle.Problems
		needed := false
		for _, p := range problems {
			if p.File == file {
				own = append(own, p)
				needed = needed || structural.MatchString(p.Message) ||
					// An agent without a type may have it from a file of defaults.
					strings.Contains(p.Message, "is for agents of type") && typed.Match(text)
			}
		}
		if refused != nil {
			assert.NotEmpty(t, own, "%s: the schema refuses what a build takes: %s\n%s\n%v", about, file, text, refused)
		}
		if needed {
			assert.Error(t, refused, "%s: the schema takes what a build refuses: %s\n%s\n%v", about, file, text, own)
		}
	}
}

func TestSchemasTakeWhatABuildTakes(t *testing.T) {
	t.Parallel()
	all := schemas(t)
	_, err := bundle.Parse(everyKey())
	require.NoError(t, err)
	agree(t, all, everyKey(), "every key")
	examples := os.DirFS("../examples")
	entries, err := fs.ReadDir(examples, ".")
	require.NoError(t, err)
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		root, err := fs.Sub(examples, entry.Name())
		require.NoError(t, err)
		repository, err := bundle.ReadFiles(root)
		require.NoError(t, err)
		agree(t, all, repository, entry.Name())
	}
}

func TestSchemasRefuseWhatTheParserRefuses(t *testing.T) {
	t.Parallel()
	all := schemas(t)
	for name, tt := range problemCases {
		agree(t, all, tt.files, name)
	}
	for name, tt := range numberCases {
		for _, value := range strings.Fields(tt.inside + " " + tt.outside) {
			if value == "0.0000000001" || value == "0s" && name == "Agent.Timeout" {
				continue // too little for the clock
			}
			repository := files("agents/ok.yaml", "name: other\nmodel: openai/x\n")
			repository[tt.file] = []byte(strings.Replace(tt.text, "#", value, 1))
			agree(t, all, repository, name+" "+value)
		}
	}
}

// TestSchemasAgreeWithTheParser: each value of every key changed to what is wrong in each way.
func TestSchemasAgreeWithTheParser(t *testing.T) {
	t.Parallel()
	all, tried := schemas(t), 0
	for file, text := range everyKey() {
		if bundle.KindOf(file) == "" {
			continue
		}
		data, err := yaml.YAMLToJSON(text)
		require.NoError(t, err)
		var document any
		require.NoError(t, json.Unmarshal(data, &document))
		mutate(document, func(about string) {
			changed, err := json.Marshal(document)
			require.NoError(t, err)
			repository := everyKey()
			repository[file] = changed
			agree(t, all, repository, file+" "+about, file)
			tried++
		})
	}
	require.Greater(t, tried, 500)
}

// mutate changes a value inside in one way after the other, and back, and calls try each time.
func mutate(value any, try func(about string)) {
	wrong := []any{"zzz", 0.5, float64(-1), true, []any{"zzz"}, map[string]any{"zzz": float64(1)}}
	switch v := value.(type) {
	case map[string]any:
		v["zzz"] = "x"
		try("a key more")
		delete(v, "zzz")
		for _, key := range slices.Sorted(maps.Keys(v)) {
			was := v[key]
			delete(v, key)
			try("without " + key)
			for _, other := range append(wrong, nil) {
				v[key] = other
				try(fmt.Sprintf("%s: %v", key, other))
			}
			v[key] = was
			mutate(was, try)
		}
	case []any:
		for i, was := range v {
			for _, other := range append(wrong, nil) {
				v[i] = other
				try(fmt.Sprintf("[%d]: %v", i, other))
			}
			v[i] = was
			mutate(was, try)
		}
	}
}

// TestSchemasHaveEveryKey: that the parser knows, with what it means; and everyKey has it.
func TestSchemasHaveEveryKey(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	for kind, root := range map[bundle.Kind]reflect.Type{
		bundle.KindAgent: reflect.TypeFor[bundle.Agent](), bundle.KindConnector: reflect.TypeFor[bundle.Connector](),
		bundle.KindModel: reflect.TypeFor[bundle.Script](), bundle.KindSuite: reflect.TypeFor[bundle.Suite](),
	} {
		text, err := bundle.FullSchema(kind)
		require.NoError(t, err)
		var s map[string]any
		require.NoError(t, json.Unmarshal(text, &s))
		var written []any
		for file, text := range everyKey() {
			if bundle.KindOf(file) == kind {
				var document any
				require.NoError(t, yaml.Unmarshal(text, &document))
				written = append(written, document)
			}
		}
		haveKeys(t, string(kind), root, s, written, found)
	}
	for key, isWritten := range found {
		require.True(t, isWritten, "%s: write it into everyKey", key)
	}
	defaults, err := bundle.Schema(bundle.KindDefaults)
	require.NoError(t, err)
	require.NotContains(t, string(defaults), `"name": {`+"\n"+`      "description": "Name of the agent`)
	_, err = bundle.Schema("nothing")
	require.ErrorContains(t, err, "there is agent, defaults, connector, model, suite")
}

// An editor offers nothing that a build refuses as unsupported.
func TestSchema_OffersWhatIsSupported(t *testing.T) {
	t.Parallel()
	text := map[bundle.Kind]string{}
	for _, k := range bundle.Kinds {
		data, err := bundle.Schema(k.Kind)
		require.NoError(t, err)
		text[k.Kind] = string(data)
	}
	kinds := map[string][]bundle.Kind{"agent": {bundle.KindAgent, bundle.KindDefaults}, "case": {bundle.KindSuite}, "link": {bundle.KindConnector}, "tool": {bundle.KindAgent}}
	for _, name := range later.At(later.File) {
		thing, field, _ := strings.Cut(name.Field, ".")
		for _, kind := range kinds[thing] {
			switch {
			case thing == "tool":
				require.Regexp(t, `"tools": \{[^}]*"items": \{\s*"type": "string"\s*\}`, text[kind])
			case name.Value != "":
				require.NotContains(t, text[kind], `"`+name.Value+`"`, "%s of %s", name, kind)
			default:
				require.NotContains(t, text[kind], `"`+field+`"`, "%s of %s", name, kind)
			}
		}
	}
	require.NotContains(t, text[bundle.KindAgent], `"tool_name"`, "it is for agents of a type that is unsupported")
	require.Contains(t, text[bundle.KindAgent], `"system_prompt"`)
}

// A message offers nothing either, and says of what is unsupported that it is, before it is asked to be in its form.
func TestProblems_OfferWhatIsSupported(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"an unknown key":   {"zzzzz: 1\n", "the keys here are agents, concurrency, description, fallback_model, files_required, max_concurrent_runs, max_iterations, model, name, reasoning_effort, retry_options, system_prompt, temperature, timeout, tools, type, variants, version"},
		"almost a key":     {"aproval: {}\n", "the keys here are"},
		"an unknown type":  {"type: magic\n", `"type" must be one of llm, sequential, not "magic"`},
		"a key of another": {"url: https://x.example.com\n", `"url" is not supported by this release; remove it`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := bundle.Parse(files("agents/ok.yaml", okAgent+c.text))
			require.ErrorContains(t, err, c.want)
		})
	}
	for name, text := range map[string]string{
		"a part":       "guardrails: {input: [{pattern: x}]}\n",
		"a list":       "guardrails: []\n",
		"a text":       "guardrails: strict\n",
		"many lines":   "guardrails:\n  input:\n    - type: magic\n      zzz: 1\n",
		"not a number": "guardrails: {input: [{type: topic, topics: [x], threshold: high}]}\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			project, problems := bundle.Examine(files("agents/ok.yaml", okAgent+text+"modle: x\n"))
			lines := strings.Split(problems.With(project.Agent("ok").Unsupported()).Error(), "\n")
			require.Len(t, lines, 2)
			require.Equal(t, `agents/ok.yaml:3:1: "guardrails" is not supported by this release; remove it`, lines[0])
			require.Contains(t, lines[1], `unknown key "modle"`)
		})
	}
}

// haveKeys walks a struct, its schema and what is written of it, and notes which keys are.
func haveKeys(t *testing.T, at string, typ reflect.Type, s map[string]any, written []any, found map[string]bool) {
	t.Helper()
	for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice || typ.Kind() == reflect.Map {
		var inside []any
		for _, one := range written {
			switch v := one.(type) {
			case []any:
				inside = append(inside, v...)
			case map[string]any:
				if typ.Kind() == reflect.Map {
					inside = slices.AppendSeq(inside, maps.Values(v))
				} else {
					inside = append(inside, v)
				}
			}
		}
		for _, key := range []string{"items", "additionalProperties"} {
			if below, ok := s[key].(map[string]any); ok && typ.Kind() != reflect.Pointer {
				s = below
			}
		}
		typ, written = typ.Elem(), inside
	}
	if typ.Kind() != reflect.Struct || typ == reflect.TypeFor[bundle.Tool]() || typ == reflect.TypeFor[bundle.ModelMock]() || typ == reflect.TypeFor[bundle.Pattern]() {
		return
	}
	properties, _ := s["properties"].(map[string]any)
	for field := range typ.Fields() {
		key := field.Tag.Get("yaml")
		if key == "" {
			continue
		}
		own, ok := properties[key].(map[string]any)
		require.True(t, ok, "%s has no %s", at, key)
		require.NotEmpty(t, own["description"], "%s.%s: write its meaning into the tag doc", at, key)
		var below []any
		for _, one := range written {
			if m, ok := one.(map[string]any); ok && m[key] != nil {
				below = append(below, m[key])
			}
		}
		name := typ.Name() + "." + key
		found[name] = found[name] || len(below) > 0
		haveKeys(t, at+"."+key, field.Type, own, below, found)
	}
}

// TestThePageNamesWordsAndBounds: of the keys of agents, those that the parser knows.
func TestThePageNamesWordsAndBounds(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/spec/repository.md")
	require.NoError(t, err)
	for field := range reflect.TypeFor[bundle.Agent]().Fields() {
		key := field.Tag.Get("yaml")
		row := regexp.MustCompile("(?m)^\\|[^|]*`" + key + "(\\[\\])?`[^|]*\\|.*$").FindString(string(page))
		if key == "" {
			continue
		}
		require.NotEmpty(t, row, key)
		for word := range strings.SplitSeq(field.Tag.Get("enum"), ",") {
			require.Contains(t, row, word, key)
		}
		for _, bound := range []string{"min", "max"} {
			require.Contains(t, row, field.Tag.Get(bound), key)
		}
	}
}
