// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
)

const (
	aCron    = "type: cron\nconfig: {schedule: '@daily'}\n"
	aSync    = "type: webhook\nmode: sync\nconfig: {timeout_seconds: #}\n"
	aSending = "type: webhook\nmode: outbound\nconfig: {url: 'https://x.example.com', retry: {max_attempts: #}}\n"
	failing  = "steps: [{error: {status: 503, times: #}}]\n"
)

// numberCases are the numbers of a repository, by struct and field, with the file
// that holds them at its #, and what may and may not stand there.
var numberCases = map[string]struct {
	file, text      string
	inside, outside string
	problem         string
}{
	"Agent.Temperature":              {"agents/a.yaml", okAgent + "temperature: #\n", "0 2 0.5", "-0.1 2.1", `"temperature" must be between 0 and 2`},
	"Agent.MaxConcurrentRuns":        {"agents/a.yaml", okAgent + "max_concurrent_runs: #\n", "1 100000", "0 -1", `"max_concurrent_runs" must be at least 1; leave it out for no limit`},
	"Agent.MaxIterations":            {"agents/a.yaml", okAgent + "max_iterations: #\n", "1 10000", "0 -1 10001", `"max_iterations" must be between 1 and 10000`},
	"Agent.Timeout":                  {"agents/a.yaml", okAgent + "timeout: #\n", "1 0.001 1m", "0 0.0 0s 0.0000000001", `"timeout" must be more than 0; leave it out for 15 minutes`},
	"Retry.Attempts":                 {"agents/a.yaml", okAgent + "retry_options: {attempts: #}\n", "1 20", "0 -1 21", `"retry_options.attempts" must be between 1 and 20`},
	"Retry.InitialDelay":             {"agents/a.yaml", okAgent + "retry_options: {initial_delay: #}\n", "0 90 1m", "-1", `"retry_options.initial_delay" must be between 0 and 30 days`},
	"Retry.MaxDelay":                 {"agents/a.yaml", okAgent + "retry_options: {max_delay: #}\n", "10 1h", "0 9", `"retry_options.max_delay" must be at least the initial_delay of 10s`},
	"Session.TTL":                    {"agents/a.yaml", okAgent + "session: {key: a, ttl: #}\n", "1", "0 0s", `"session.ttl" must be more than 0; leave it out for no limit`},
	"Guardrail.Threshold":            {"agents/a.yaml", okAgent + "guardrails: {input: [{type: moderation, threshold: #}]}\n", "0 1", "-0.1 2", `"guardrails.input[0].threshold" must be between 0 and 1`},
	"Approval.Timeout":               {"agents/a.yaml", okAgent + "approval: {timeout: #}\n", "1", "0 0s", `"approval.timeout" must be more than 0; leave it out for no limit`},
	"ConnectorConfig.TimeoutSeconds": {"connectors/c.yaml", aSync, "1 900", "0 -1 901", `"config.timeout_seconds" must be between 1 and 900`},
	"DeliveryRetry.MaxAttempts":      {"connectors/c.yaml", aSending, "1 20", "0 -1 21", `"config.retry.max_attempts" must be between 1 and 20`},
	"Step.Turn":                      {"models/m.yaml", "steps: [{text: x, turn: #}]\n", "1 9", "0 -1", `"steps[0].turn" must be at least 1; leave it out for every turn`},
	"Step.Delay":                     {"models/m.yaml", "steps: [{text: x, delay: #}]\n", "0 1", "-1", `"steps[0].delay" must be between 0 and 30 days`},
	"StepError.Status":               {"models/m.yaml", "steps: [{error: {status: #}}]\n", "400 599", "0 399 600", `"steps[0].error.status" must be between 400 and 599`},
	"StepError.Times":                {"models/m.yaml", failing, "0 1", "-1", `"steps[0].error.times" must be at least 0`},
	"Tokens.Input":                   {"models/m.yaml", "steps: [{text: x, tokens: {input: #}}]\n", "0 1", "-1", `"steps[0].tokens.input" must be at least 0`},
	"Tokens.Output":                  {"models/m.yaml", "steps: [{text: x, tokens: {output: #}}]\n", "0 1", "-1", `"steps[0].tokens.output" must be at least 0`},
	"Tokens.Thinking":                {"models/m.yaml", "steps: [{text: x, tokens: {thinking: #}}]\n", "0 1", "-1", `"steps[0].tokens.thinking" must be at least 0`},
	"Tokens.CachedInput":             {"models/m.yaml", "steps: [{text: x, tokens: {cached_input: #}}]\n", "0 1", "-1", `"steps[0].tokens.cached_input" must be at least 0`},
}

// TestNumbersAreWithinTheirBounds: a zero that is written is no absent key.
func TestNumbersAreWithinTheirBounds(t *testing.T) {
	t.Parallel()
	for name, tt := range numberCases {
		parse := func(value string) error {
			repository := files("agents/ok.yaml", "name: other\nmodel: openai/x\n", "connectors/x.yaml", aCron)
			repository[tt.file] = []byte(strings.Replace(tt.text, "#", value, 1))
			_, err := bundle.Parse(repository)
			return err
		}
		for value := range strings.FieldsSeq(tt.inside) {
			require.NoError(t, parse(value), "%s: %s", name, value)
		}
		before, _, _ := strings.Cut(tt.text, "#")
		column := len(before) - strings.LastIndex(before, "\n")
		at := tt.file + ":" + strconv.Itoa(1+strings.Count(before, "\n")) + ":" + strconv.Itoa(column) + ": "
		for value := range strings.FieldsSeq(tt.outside) {
			require.EqualError(t, parse(value), at+tt.problem, "%s: %s", name, value)
		}
		// What is no number is said to be none, and nothing else.
		require.ErrorContains(t, parse("''"), at, name)
		require.NotContains(t, parse("''").Error(), "\n", name)
	}
}

// TestNumberCasesAreAll: those of every struct that a file is decoded into.
func TestNumberCasesAreAll(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	var walk func(of reflect.Type)
	walk = func(of reflect.Type) {
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct || of.PkgPath() != reflect.TypeFor[bundle.Agent]().PkgPath() {
			return
		}
		for field := range of.Fields() {
			kind := field.Type
			if kind.Kind() == reflect.Pointer {
				kind = kind.Elem()
			}
			switch zero := reflect.Zero(kind); {
			case field.Tag.Get("yaml") == "":
			case zero.CanInt(), zero.CanUint(), zero.CanFloat():
				found[of.Name()+"."+field.Name] = true
			default:
				walk(kind)
			}
		}
	}
	walk(reflect.TypeFor[bundle.Agent]())
	walk(reflect.TypeFor[bundle.Connector]())
	walk(reflect.TypeFor[bundle.Script]())
	for name := range found {
		require.Contains(t, numberCases, name)
	}
	require.Len(t, numberCases, len(found))
}

func TestNullIsAnAbsentNumber(t *testing.T) {
	t.Parallel()
	p, err := bundle.Parse(files(
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

// TestNumbersOfDefaults: one beyond its bounds is reported once, where it is
// written, and no agent lacks the other defaults for it.
func TestNumbersOfDefaults(t *testing.T) {
	t.Parallel()
	_, err := bundle.Parse(files(
		"agents/_defaults.yaml", "model: openai/x\nmax_iterations: 0\nretry_options: {attempts: 0}\n",
		"agents/a.yaml", "name: a\n",
		"agents/b.yaml", "name: b\nmax_iterations: 1\n",
	))
	require.EqualError(t, err, `agents/_defaults.yaml:2:17: "max_iterations" must be between 1 and 10000`+"\n"+
		`agents/_defaults.yaml:3:27: "retry_options.attempts" must be between 1 and 20`)
}

func TestAStepsErrorNeedsAStatus(t *testing.T) {
	t.Parallel()
	for _, failure := range []string{"{message: x}", "{status: null}"} {
		_, err := bundle.Parse(files("agents/a.yaml", okAgent, "models/m.yaml", "steps:\n  - error: "+failure+"\n"))
		require.EqualError(t, err, `models/m.yaml:2:5: "error" needs "status"`)
	}
}
