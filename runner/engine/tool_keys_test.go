// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/agentplatform/agentplatform/bundle"
)

// Each key of a file of HTTP tools changes the tools that the runner gets. TestKeys_HaveReaders shows that the runner reads all
// fields of a tool.
func TestToolKeys_HaveEffects(t *testing.T) {
	t.Parallel()
	keys := bundle.Keys(bundle.KindTools)
	whole := map[string]any{}
	for _, key := range keys {
		if !strings.Contains(key.Path, ".") {
			whole[key.Path] = decodeYAML(t, key.Example)
		}
	}
	require.NotEmpty(t, whole)
	tools := func(file map[string]any) string {
		p, _ := bundle.Examine(bundle.Files{"tools/a.yaml": encodeYAML(t, file)})
		return toolsText(t, p, &bundle.Agent{}, "a.*")
	}
	for _, key := range keys {
		t.Run(key.Path, func(t *testing.T) {
			t.Parallel()
			require.NotEqual(t, tools(whole), tools(withoutKey(t, whole, key.Path)), "the key has no effect")
		})
	}
}

// Each key of apis changes the tools of a document that the agent gets.
func TestAPIKeys_HaveEffects(t *testing.T) {
	t.Parallel()
	const document = "openapi: 3.1.0\ninfo: {title: a, version: '1'}\nservers: [{url: 'https://a.example'}]\npaths: {/a: {get: {operationId: a, responses: {}}}}\n"
	tools := func(agent map[string]any) string {
		p, _ := bundle.Examine(bundle.Files{"agents/a.yaml": encodeYAML(t, agent), "apis/shop.yaml": []byte(document)})
		require.NotNil(t, p.Agent("a"))
		return toolsText(t, p, p.Agent("a"), "api:shop.a")
	}
	checked := 0
	for _, key := range bundle.Keys(bundle.KindAgent) {
		inner, isOfAPIs := strings.CutPrefix(key.Path, "apis.*.")
		if !isOfAPIs {
			continue
		}
		checked++
		t.Run(inner, func(t *testing.T) {
			t.Parallel()
			// The forms of credentials exclude each other.
			auth := map[string]any{"oauth_app": "shop"}
			switch name, _, _ := strings.Cut(strings.TrimPrefix(inner, "auth."), "."); name {
			case "bearer":
				auth = map[string]any{name: "${TOKEN}"}
			case "header":
				auth = map[string]any{name: map[string]any{"X-Key": "${KEY}"}}
			case "basic":
				auth = map[string]any{name: map[string]any{"username": "${USER}", "password": "${PASSWORD}"}}
			}
			agent := map[string]any{
				"name": "a", "model": "openai/x", "tools": []any{"api:shop.a"},
				"apis": map[string]any{"shop": map[string]any{"base_url": "${URL}", "auth": auth}},
			}
			require.NotEqual(t, tools(agent), tools(withoutKey(t, agent, key.Path)), "the key has no effect")
		})
	}
	require.Greater(t, checked, 5)
}

// toolsText returns the HTTP tools that a reference of an agent names, with all exported fields.
func toolsText(t *testing.T, p *bundle.Project, agent *bundle.Agent, reference string) string {
	t.Helper()
	var tools []*bundle.HTTPTool
	for _, tool := range p.HTTPTools(reference) {
		tools = append(tools, tool.ForAgent(agent))
	}
	text, err := json.Marshal(tools)
	require.NoError(t, err)
	return string(text)
}

func decodeYAML(t *testing.T, text string) (value any) {
	t.Helper()
	require.NoError(t, yaml.Unmarshal([]byte(text), &value))
	return value
}

func encodeYAML(t *testing.T, value any) []byte {
	t.Helper()
	text, err := yaml.Marshal(value)
	require.NoError(t, err)
	return text
}

// withoutKey returns a file without the key with a path, such as tools.*.request. The path must be in the file.
func withoutKey(t *testing.T, file map[string]any, path string) map[string]any {
	t.Helper()
	removed := 0
	var remove func(value map[string]any, keys []string) map[string]any
	remove = func(value map[string]any, keys []string) map[string]any {
		out := maps.Clone(value)
		for name, inner := range value {
			switch nested, isMap := inner.(map[string]any); {
			case keys[0] != name && keys[0] != "*":
			case len(keys) == 1:
				delete(out, name)
				removed++
			case isMap:
				out[name] = remove(nested, keys[1:])
			}
		}
		return out
	}
	out := remove(file, strings.Split(path, "."))
	require.Positive(t, removed, path)
	return out
}
