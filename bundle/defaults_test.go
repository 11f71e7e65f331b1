// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
)

func TestDefaults_Merge(t *testing.T) {
	t.Parallel()
	p, err := bundle.Parse(newFiles(
		"agents/_defaults.yaml", "model: openai/outer\ntemperature: 1\ntools: [current_time]\nretry_options: {attempts: 5, max_delay: 60}\n",
		"agents/sales/_defaults.yaml", "model: openai/inner\ntools: [current_time, a.b.c]\n",
		"agents/sales/one.yaml", "name: one\ntools: [a.b.d, a.b.c]\nretry_options: {attempts: 1}\ntemperature: null\n",
		"agents/two.yaml", "name: two\n",
		"tools/a/b.star", "def c():\n    \"\"\"Calls.\"\"\"\n\ndef d():\n    \"\"\"Dials.\"\"\"\n",
	))
	require.NoError(t, err)
	one := p.Agent("one")
	require.Equal(t, "openai/inner", one.Model)
	require.Equal(t, []bundle.Tool{{Reference: "current_time"}, {Reference: "a.b.c"}, {Reference: "a.b.d"}}, one.Tools)
	require.Equal(t, 1, one.Retry.Attempts)
	require.Equal(t, time.Minute, one.Retry.MaxDelay.Std())
	require.Nil(t, one.Temperature)
	require.Equal(t, "openai/outer", p.Agent("two").Model)
	require.JSONEq(t, `{"name":"two","model":"openai/outer","temperature":1,"tools":["current_time"],"retry_options":{"attempts":5,"max_delay":60}}`, string(p.Agent("two").Config()))
}

// Each agent gets the defaults that its type has.
func TestDefaults_ServeSeveralTypes(t *testing.T) {
	t.Parallel()
	p, err := bundle.Parse(newFiles(
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

// A type in a file of defaults is checked there, also if no agent uses it. Agents still get the other defaults.
func TestDefaults_CheckType(t *testing.T) {
	t.Parallel()
	guarded := "model: openai/x\nsystem_prompt: Be kind.\nguardrails: {input: [{type: pii}]}\n"
	for _, written := range []string{"sequental", "LLM", "'null'"} {
		t.Run(written, func(t *testing.T) {
			problem := `:1:7: "type" must be one of llm, sequential, tool`
			mistyped := "type: " + written + "\n"
			for where, repository := range map[string]bundle.Files{
				"agents/_defaults.yaml":   newFiles("agents/_defaults.yaml", mistyped+guarded, "agents/a.yaml", "name: a\n", "agents/b.yaml", "name: b\n"),
				"agents/x/_defaults.yaml": newFiles("agents/x/_defaults.yaml", mistyped+guarded, "agents/x/a.yaml", "name: a\ntype: llm\n"),
				"agents/y/_defaults.yaml": newFiles("agents/y/_defaults.yaml", mistyped, "agents/y/z/_defaults.yaml", "type: llm\n"+guarded, "agents/y/z/a.yaml", "name: a\n"),
			} {
				t.Run(where, func(t *testing.T) {
					_, err := bundle.Parse(repository)
					require.EqualError(t, err, where+problem)
				})
			}
		})
	}
	_, err := bundle.Parse(newFiles("agents/_defaults.yaml", "type: llmm\ntimeout: soon\n", "agents/a.yaml", okAgent))
	require.EqualError(t, err, `agents/_defaults.yaml:1:7: "type" must be one of llm, sequential, tool`+"\n"+
		`agents/_defaults.yaml:2:10: "timeout" must be seconds or a duration such as "1m30s"`+", not text")

	// An empty type is like a missing one, in defaults and in an agent.
	for _, repository := range []bundle.Files{
		newFiles("agents/_defaults.yaml", guarded+"type: ''\n", "agents/a.yaml", "name: a\n"),
		newFiles("agents/_defaults.yaml", guarded, "agents/a.yaml", "name: a\ntype: ''\n"),
	} {
		p, err := bundle.Parse(repository)
		require.NoError(t, err)
		require.Equal(t, bundle.AgentLLM, p.Agent("a").Type)
		require.Equal(t, "Be kind.", p.Agent("a").SystemPrompt)
		require.NotNil(t, p.Agent("a").Guardrails)
	}
}

func TestDefaults_RejectUnused(t *testing.T) {
	t.Parallel()
	_, err := bundle.Parse(newFiles(
		"agents/_defaults.yaml", "timeout: 60\nurl: https://agents.example.com/a\n",
		"agents/ask.yaml", "name: ask\nmodel: openai/x\n",
		"agents/none/_defaults.yaml", "version: '1.0'\n",
		"agents/steps/_defaults.yaml", "temperature: 1\nagents: [ask]\nmodel: null\n",
		"agents/steps/in/once.yaml", "name: once\ntype: sequential\n",
	))
	require.EqualError(t, err, strings.Join([]string{
		`agents/_defaults.yaml:2:1: "url" is not supported by this release; remove it`,
		`agents/none/_defaults.yaml:1:1: "version" has no effect: agents/none has no agent of type llm or sequential or tool; remove it`,
		`agents/steps/_defaults.yaml:1:1: "temperature" has no effect: agents/steps has no agent of type llm; remove it`,
	}, "\n"))

	_, err = bundle.Parse(newFiles("agents/_defaults.yaml", "timeout: 60\n", "agents/ask.yaml", "name: [\n"))
	require.EqualError(t, err, "agents/ask.yaml:1:7: sequence end token ']' not found", "that agent may use them")
}

// Null is like a missing key: the default of the key replaces the default of the folder.
func TestDefaults_NullRemoves(t *testing.T) {
	t.Parallel()
	p, err := bundle.Parse(newFiles(
		"agents/_defaults.yaml", "max_iterations: 5\ntimeout: 60\nretry_options: {attempts: 7, initial_delay: 2, max_delay: 3}\n",
		"agents/a.yaml", okAgent+"max_iterations: null\ntimeout: null\nretry_options: {attempts: null, initial_delay: null, max_delay: null}\n",
		"agents/b.yaml", "name: slow\nmodel: openai/x\nretry_options: {initial_delay: 60, max_delay: null}\n",
		"agents/c.yaml", "name: quick\nmodel: openai/x\nretry_options: {initial_delay: 0, max_delay: 0}\n",
	))
	require.NoError(t, err)
	a := p.Agent("ok")
	require.Equal(t, bundle.DefaultMaxIterations, a.MaxIterations)
	require.Zero(t, a.Timeout)
	require.Equal(t, bundle.DefaultTimeout, a.RunTimeout())
	require.Equal(t, bundle.Retry{
		Attempts: bundle.DefaultAttempts, InitialDelay: bundle.Duration(bundle.DefaultInitialDelay), MaxDelay: bundle.Duration(bundle.DefaultMaxDelay),
	}, a.Retry)
	require.Equal(t, time.Minute, p.Agent("slow").Retry.MaxDelay.Std(), "as much as the first delay")
	require.Equal(t, bundle.Retry{Attempts: 7}, p.Agent("quick").Retry)
}

// A default out of bounds is reported once, in its file. Agents still get the other defaults.
func TestDefaults_ReportBoundsOnce(t *testing.T) {
	t.Parallel()
	_, err := bundle.Parse(newFiles(
		"agents/_defaults.yaml", "model: openai/x\nmax_iterations: 0\nretry_options: {attempts: 0}\n",
		"agents/a.yaml", "name: a\n",
		"agents/b.yaml", "name: b\nmax_iterations: 1\n",
	))
	require.EqualError(t, err, `agents/_defaults.yaml:2:17: "max_iterations" must be between 1 and 10000`+"\n"+
		`agents/_defaults.yaml:3:27: "retry_options.attempts" must be between 1 and 20`)
}
