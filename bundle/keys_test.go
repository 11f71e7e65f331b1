// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
)

// everyType are the types of agents, also unsupported ones.
var everyType = []bundle.AgentType{bundle.AgentLLM, bundle.AgentSequential, bundle.AgentTool, bundle.AgentRemote}

// examplesOf returns the examples of the keys at the top of a kind of file, as YAML.
func examplesOf(kind bundle.Kind, include func(bundle.Key) bool) string {
	var text strings.Builder
	for _, key := range bundle.Keys(kind) {
		if !strings.Contains(key.Path, ".") && include(key) {
			fmt.Fprintf(&text, "%s: %s\n", strings.TrimSuffix(key.Path, "[]"), key.Example)
		}
	}
	return text.String()
}

// exampleAgent returns an agent with the keys of a type, and with the keys of all types if it is whole.
func exampleAgent(typeName bundle.AgentType, whole bool) string {
	return fmt.Sprintf("name: %s\ntype: %s\n", typeName, typeName) + examplesOf(bundle.KindAgent, func(key bundle.Key) bool {
		return key.Path != "name" && key.Path != "type" && key.Path != "agents[]" && // "steps" excludes "agents"
			(key.Types == nil && whole || slices.Contains(key.Types, string(typeName)))
	})
}

// everyKey returns a valid repository that has each key at least once, with its example.
func everyKey() bundle.Files {
	every := func(bundle.Key) bool { return true }
	out := newFiles(
		"agents/_defaults.yaml", "retry_options: {attempts: 2}\n",
		"agents/support.yaml", "name: support\nmodel: openai/gpt-5\ntools: [current_time, look, orders.look_up]\n"+
			"apis: {shop: {auth: {basic: {username: u, password: p}}}, other: {auth: {header: {X-Key: k}}}, third: {auth: {oauth_app: third}}}\n"+
			"mcp_servers: [{name: shop, url: 'https://mcp.example.com/mcp', oauth_app: shop}]\n",
		"agents/chain.yaml", "name: chain\ntype: sequential\nagents: [support]\n",
		"agents/pipeline.yaml", "name: pipeline\ntype: sequential\nsteps:\n"+
			"  - {tool: current_time, with: {timezone: input}, as: now}\n  - {script: steps.enrich.run, as: facts}\n"+
			"  - parallel: [{agent: support, when: now != null, input: now}, {tool: current_time, with: {timezone: now}, as: later}, {script: steps.enrich.run, as: more}]\n"+
			"output: later\n",
		"steps/enrich.star", "def run(input, steps, context):\n    return input\n",
		"models/spare.yaml", examplesOf(bundle.KindModel, every),
		"tests/full.yaml", examplesOf(bundle.KindSuite, every), "tests/files/invoice.txt", "Total: 4",
		"tests/lost.yaml", "agent: support\ncases: [{name: lost, payload: x, mocks: {mcp: [{server: shop, tool: get_customer, error: unreachable}], "+
			"http: [{request: GET /orders/1, text: Not found}]}}]\n",
		"tools/orders.yaml", examplesOf(bundle.KindTools, every),
		"apis/shop.yaml", "openapi: 3.1.0\npaths: {/a: {get: {}}}\n", "apis/other.json", `{"openapi":"3.1.0","paths":{"/a":{"get":{}}}}`,
		"apis/third.json", `{"openapi":"3.1.0","paths":{"/a":{"get":{}}}}`,
		"connectors/inbound.yaml", "type: webhook\nmode: inbound\nname: In\nenabled: false\n"+
			"config: {require_authentication: true, context_headers: [X-Event]}\nagents: [llm]\n",
		"connectors/sync.yaml", "type: webhook\nmode: sync\n"+
			"config: {authentication: github, files_required: true, timeout_seconds: 60}\nlinks: [{agent: llm, files_required: true}]\n",
		"connectors/cron.yaml", "type: cron\nmode: inbound\n"+
			"config: {schedule: '@daily', timezone: Europe/Paris, missed_ticks: latest, prompt: Go, payload: {a: 1}}\n",
		"connectors/out.yaml", `type: webhook
mode: outbound
config: {url: 'https://a.example.com', headers: {X-Key: k}, timeout_seconds: 5, retry: {max_attempts: 3, schedule_seconds: [0, 5]}}
links:
  - {agent: llm, outbound: {mode: automatic, source_connectors: [sync], statuses: [completed, failed, cancelled, delivery_failed]}}
  - {agent: support, outbound: {mode: agent_tool, action_name: send_it}}
`)
	for _, typeName := range everyType {
		out["agents/"+string(typeName)+".yaml"] = []byte(exampleAgent(typeName, typeName == bundle.AgentLLM))
	}
	out["agents/llm-test-short.yaml"] = []byte("name: short\nmodel: openai/gpt-5\n")
	for _, key := range bundle.Keys(bundle.KindAgent) {
		if key.File != "" {
			out[key.File] = []byte("{}")
		}
	}
	return out
}

// goTypes are the structs that files of each kind are decoded into.
var goTypes = map[bundle.Kind]reflect.Type{
	bundle.KindAgent: reflect.TypeFor[bundle.Agent](), bundle.KindConnector: reflect.TypeFor[bundle.Connector](),
	bundle.KindModel: reflect.TypeFor[bundle.Script](), bundle.KindSuite: reflect.TypeFor[bundle.Suite](),
	bundle.KindTools: reflect.TypeFor[bundle.ToolFile](),
}

// writtenKey is a key in a document.
type writtenKey struct {
	field reflect.StructField
	// path is the key in problems, such as guardrails.input[0].type.
	path   string
	parent map[string]any
	name   string
}

// eachWrittenKey calls visit for the keys of a document that is decoded into a Go type.
func eachWrittenKey(t reflect.Type, value any, path string, visit func(writtenKey)) {
	switch t.Kind() {
	case reflect.Pointer:
		eachWrittenKey(t.Elem(), value, path, visit)
	case reflect.Slice:
		items, _ := value.([]any)
		for i, item := range items {
			eachWrittenKey(t.Elem(), item, fmt.Sprintf("%s[%d]", path, i), visit)
		}
	case reflect.Map:
		entries, _ := value.(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(entries)) {
			eachWrittenKey(t.Elem(), entries[name], path+"."+name, visit)
		}
	case reflect.Struct:
		keys, _ := value.(map[string]any)
		for _, field := range reflect.VisibleFields(t) {
			name := field.Tag.Get("yaml")
			if _, written := keys[name]; name == "" || !written {
				continue
			}
			inner := strings.TrimPrefix(path+"."+name, ".")
			visit(writtenKey{field, inner, keys, name})
			eachWrittenKey(field.Type, keys[name], inner, visit)
		}
	}
}

// wrongValues returns values that the tags of the key rule out, by the kind of mistake.
func (k writtenKey) wrongValues() map[string]any {
	tag, wrong := k.field.Tag, map[string]any{}
	kind := k.field.Type.Kind()
	if kind == reflect.Pointer {
		kind = k.field.Type.Elem().Kind()
	}
	isList := kind == reflect.Slice
	text := func(value string) any {
		if isList {
			return []any{value}
		}
		return value
	}
	switch {
	case kind == reflect.Interface, k.field.Type == reflect.TypeFor[json.RawMessage](): // any value
	case kind == reflect.Struct:
		wrong["another type"] = []any{"zzz"}
	case kind == reflect.Bool:
		wrong["another type"] = "zzz"
	default:
		wrong["another type"] = true
	}
	if least, err := strconv.ParseFloat(tag.Get("min"), 64); err == nil {
		wrong["too small"] = least - 1
	}
	if most, err := strconv.ParseFloat(tag.Get("max"), 64); err == nil {
		wrong["too large"] = most + 1
	}
	if over, err := strconv.ParseFloat(tag.Get("over"), 64); err == nil {
		wrong["not more"] = over
	}
	for name, value := range map[string]string{"enum": "zzz", "form": "No form!", "file": "nowhere"} {
		if tag.Get(name) != "" {
			wrong[name] = text(value)
		}
	}
	typeName, _ := k.parent["type"].(string)
	if required := tag.Get("required"); required == "true" || typeName != "" && slices.Contains(strings.Split(required, ","), typeName) {
		wrong["missing"] = nil
		if isList {
			wrong["empty"] = []any{}
		} else if kind == reflect.String {
			wrong["empty"] = ""
		}
	}
	return wrong
}

// rightValues returns values that the tags of the key allow.
func (k writtenKey) rightValues() (right []any) {
	for _, bound := range []string{"min", "max"} {
		if value, err := strconv.ParseFloat(k.field.Tag.Get(bound), 64); err == nil {
			right = append(right, value)
		}
	}
	if enum := bundle.KindWords.Replace(k.field.Tag.Get("enum")); enum != "" && k.field.Type.Kind() == reflect.String {
		for value := range strings.SplitSeq(enum, ",") {
			right = append(right, value)
		}
	}
	return right
}

// eachKey calls try for each key that everyKey writes, with the value of the key changed.
func eachKey(t *testing.T, try func(t *testing.T, k writtenKey, problemsWith func(value any) bundle.Problems)) {
	repository := everyKey()
	for _, file := range repository.Paths() {
		root := goTypes[bundle.KindOf(file)]
		if root == nil {
			continue
		}
		data, err := yaml.YAMLToJSON(repository[file])
		require.NoError(t, err)
		var document any
		require.NoError(t, json.Unmarshal(data, &document))
		eachWrittenKey(root, document, "", func(k writtenKey) {
			was := k.parent[k.name]
			problemsWith := func(value any) (found bundle.Problems) {
				k.parent[k.name] = value
				changed, err := json.Marshal(document)
				require.NoError(t, err)
				k.parent[k.name] = was
				files := maps.Clone(repository)
				files[file] = changed
				_, problems := bundle.Examine(files)
				for _, p := range problems {
					if p.File == file && (strings.Contains(p.Message, `"`+k.path+`"`) || strings.Contains(p.Message, `"`+k.path+`[0]"`)) {
						found = append(found, p)
					}
				}
				return found
			}
			t.Run(file+" "+k.path, func(t *testing.T) { try(t, k, problemsWith) })
		})
	}
}

// An agent of each type may have all keys of the type, with their examples.
func TestKeys_AcceptExamples(t *testing.T) {
	t.Parallel()
	for _, typeName := range everyType {
		t.Run(string(typeName), func(t *testing.T) {
			t.Parallel()
			repository, name := everyKey(), string(typeName)
			repository["agents/"+name+".yaml"] = []byte(exampleAgent(typeName, true))
			repository["agents/"+name+"-test-short.yaml"] = []byte("name: short\nmodel: openai/gpt-5\n")
			if typeName != bundle.AgentLLM {
				delete(repository, "agents/llm-test-short.yaml")
				repository["agents/llm.yaml"] = []byte("name: llm\nmodel: openai/gpt-5\n")
			}
			project, err := bundle.Parse(repository)
			require.NoError(t, err)
			for _, key := range bundle.Keys(bundle.KindAgent) {
				if !strings.Contains(key.Path, ".") && (key.Types == nil || slices.Contains(key.Types, name)) && key.Path != "agents[]" {
					require.True(t, project.Agent(name).Has(strings.TrimSuffix(key.Path, "[]")), "%s: write an example into its tags", key.Path)
				}
			}
		})
	}
}

// Each value that a tag rules out has a problem that names the key.
func TestKeys_RejectWrongValues(t *testing.T) {
	t.Parallel()
	tried := 0
	eachKey(t, func(t *testing.T, k writtenKey, problemsWith func(any) bundle.Problems) {
		for name, value := range k.wrongValues() {
			require.NotEmpty(t, problemsWith(value), "%s: %v", name, value)
			tried++
		}
	})
	require.Greater(t, tried, 200)
}

func TestKeys_AcceptBoundsAndEnums(t *testing.T) {
	t.Parallel()
	eachKey(t, func(t *testing.T, k writtenKey, problemsWith func(any) bundle.Problems) {
		for _, value := range k.rightValues() {
			require.NotContains(t, problemsWith(value).Error(), `"`+k.path+`" must`, "%v", value)
		}
	})
}

// A key in an agent of another type is a problem, which names the supported types of the key.
func TestKeys_RejectOtherAgentTypes(t *testing.T) {
	t.Parallel()
	for _, key := range bundle.Keys(bundle.KindAgent) {
		for _, typeName := range everyType {
			if strings.Contains(key.Path, ".") || key.Types == nil || slices.Contains(key.Types, string(typeName)) {
				continue
			}
			t.Run(key.Path+" in "+string(typeName), func(t *testing.T) {
				t.Parallel()
				name := strings.TrimSuffix(key.Path, "[]")
				repository := everyKey()
				repository["agents/a.yaml"] = fmt.Appendf(nil, "name: a\ntype: %s\n%s: %s\n", typeName, name, key.Example)
				want := `agents/a.yaml:3:1: "` + name + `" is not supported by this release; remove it`
				if !key.Unsupported {
					supported := slices.DeleteFunc(bundle.AgentTypes(), func(t string) bool { return !slices.Contains(key.Types, t) })
					want = `agents/a.yaml:3:1: "` + name + `" is for type ` + strings.Join(supported, " or ") + `; remove it or change the type`
				}
				_, err := bundle.Parse(repository)
				require.ErrorContains(t, err, want)
			})
		}
	}
}
