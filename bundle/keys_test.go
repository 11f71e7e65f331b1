// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/later"
)

var quoted = regexp.MustCompile("`([a-z_]+)(\\[\\])?`")

// documented are the agents' keys in docs/spec/repository.md, each with its types.
func documented(t *testing.T, every []string) map[string][]string {
	t.Helper()
	page, err := os.ReadFile("../docs/spec/repository.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(page), "\n| Key | Types | Meaning | Default |\n|---|---|---|---|\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	out := map[string][]string{}
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		var types []string
		for _, name := range quoted.FindAllStringSubmatch(cells[2], -1) {
			types = append(types, name[1])
		}
		if strings.TrimSpace(cells[2]) == "all" {
			types = every
		}
		require.NotEmpty(t, types, line)
		for _, name := range quoted.FindAllStringSubmatch(cells[1], -1) {
			out[name[1]] = types
		}
	}
	return out
}

// TestKeysAreForTheTypesThatThePageNames: each key of an agent in an agent of each type.
func TestKeysAreForTheTypesThatThePageNames(t *testing.T) {
	t.Parallel()
	every := []string{"llm", "sequential", "tool", "remote"}
	page := documented(t, every)
	var keys []string
	for field := range reflect.TypeFor[bundle.Agent]().Fields() {
		key := field.Tag.Get("yaml")
		if key == "" {
			continue
		}
		keys = append(keys, key)
		require.Contains(t, page, key)
		for _, agentType := range every {
			agent := "name: a\ntype: " + agentType + "\n"
			if key != "name" && key != "type" {
				agent += key + ": x\n"
			}
			_, err := bundle.Parse(files("agents/a.yaml", agent))
			refused := `agents/a.yaml:3:1: "` + key + `" is not supported by this release; remove it`
			if supported := slices.DeleteFunc(slices.Clone(page[key]), func(t string) bool { return later.Has(later.File, "agent.type", t) }); len(supported) > 0 {
				refused = `agents/a.yaml:3:1: "` + key + `" is for agents of type ` + strings.Join(supported, ", ") + `; remove it or change the type`
			}
			if slices.Contains(page[key], agentType) {
				require.NotContains(t, fmt.Sprint(err), "is for agents of type", "%s in %s", key, agentType)
			} else {
				require.Contains(t, fmt.Sprint(err), refused, "%s in %s", key, agentType)
			}
		}
	}
	for key := range page {
		require.Contains(t, keys, key)
	}
}

// TestDefaultsServeAgentsOfSeveralTypes: each takes what its type knows.
func TestDefaultsServeAgentsOfSeveralTypes(t *testing.T) {
	t.Parallel()
	p, err := bundle.Parse(files(
		"agents/_defaults.yaml", "description: Ours\nmodel: openai/x\ntimeout: 60\ntools: [current_time]\n",
		"agents/ask.yaml", "name: ask\n",
		"agents/steps/_defaults.yaml", "type: sequential\nagents: [ask]\nretry_options: null\n",
		"agents/steps/twice.yaml", "name: twice\nagents: [once]\n",
		"agents/steps/once.yaml", "name: once\n",
		"agents/steps/plain.yaml", "name: plain\ntype: null\n",
	))
	require.NoError(t, err)
	require.JSONEq(t, `{"name":"twice","type":"sequential","description":"Ours","timeout":60,"agents":["ask","once"]}`, string(p.Agent("twice").Config()))
	require.Equal(t, time.Minute, p.Agent("twice").RunTimeout())
	require.Equal(t, time.Minute, p.Agent("ask").Timeout.Std())
	require.Equal(t, time.Minute, p.Agent("plain").Timeout.Std())
	require.Empty(t, p.Agent("plain").Agents)
}

// TestTypeOfDefaults: it is checked where it is written, whether an agent takes
// it or not, and no agent lacks its other defaults for it.
func TestTypeOfDefaults(t *testing.T) {
	t.Parallel()
	guarded := "model: openai/x\nsystem_prompt: Be kind.\nguardrails: {input: [{type: pii}]}\n"
	for written, name := range map[string]string{"sequental": "sequental", "LLM": "LLM", "'null'": "null"} {
		t.Run(written, func(t *testing.T) {
			problem := `:1:1: "type" must be one of llm, sequential, not "` + name + `"`
			mistyped := "type: " + written + "\n"
			for where, repository := range map[string]bundle.Files{
				"agents/_defaults.yaml":   files("agents/_defaults.yaml", mistyped+guarded, "agents/a.yaml", "name: a\n", "agents/b.yaml", "name: b\n"),
				"agents/x/_defaults.yaml": files("agents/x/_defaults.yaml", mistyped+guarded, "agents/x/a.yaml", "name: a\ntype: llm\n"),
				"agents/y/_defaults.yaml": files("agents/y/_defaults.yaml", mistyped, "agents/y/z/_defaults.yaml", "type: llm\n"+guarded, "agents/y/z/a.yaml", "name: a\n"),
			} {
				t.Run(where, func(t *testing.T) {
					_, err := bundle.Parse(repository)
					require.EqualError(t, err, where+problem)
				})
			}
		})
	}
	_, err := bundle.Parse(files("agents/_defaults.yaml", "type: llmm\ntimeout: soon\n", "agents/a.yaml", okAgent))
	require.EqualError(t, err, `agents/_defaults.yaml:1:1: "type" must be one of llm, sequential, not "llmm"`+"\n"+
		`agents/_defaults.yaml:2:10: "timeout" must be seconds or a duration such as "1m30s"`+", not text")

	// An empty type is none, in defaults and in an agent.
	for _, repository := range []bundle.Files{
		files("agents/_defaults.yaml", guarded+"type: ''\n", "agents/a.yaml", "name: a\n"),
		files("agents/_defaults.yaml", guarded, "agents/a.yaml", "name: a\ntype: ''\n"),
	} {
		p, err := bundle.Parse(repository)
		require.NoError(t, err)
		require.Equal(t, bundle.AgentLLM, p.Agent("a").Type)
		require.Equal(t, "Be kind.", p.Agent("a").SystemPrompt)
		require.NotNil(t, p.Agent("a").Guardrails)
	}
}

func TestDefaultsThatNoAgentTakes(t *testing.T) {
	t.Parallel()
	_, err := bundle.Parse(files(
		"agents/_defaults.yaml", "timeout: 60\nurl: https://agents.example.com/a\n",
		"agents/ask.yaml", "name: ask\nmodel: openai/x\n",
		"agents/none/_defaults.yaml", "version: '1.0'\n",
		"agents/steps/_defaults.yaml", "temperature: 1\nagents: [ask]\nmodel: null\n",
		"agents/steps/in/once.yaml", "name: once\ntype: sequential\n",
	))
	require.EqualError(t, err, strings.Join([]string{
		`agents/_defaults.yaml:2:1: "url" is not supported by this release; remove it`,
		`agents/none/_defaults.yaml:1:1: "version" is for agents of type llm, sequential, and there is none in agents/none; remove it`,
		`agents/steps/_defaults.yaml:1:1: "temperature" is for agents of type llm, and there is none in agents/steps; remove it`,
	}, "\n"))

	_, err = bundle.Parse(files("agents/_defaults.yaml", "timeout: 60\n", "agents/ask.yaml", "name: [\n"))
	require.EqualError(t, err, "agents/ask.yaml:1:7: sequence end token ']' not found", "it may be the one that takes them")
}
