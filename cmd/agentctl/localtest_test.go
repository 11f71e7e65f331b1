// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"encoding/xml"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/agentplatform/agentplatform/internal/runnerconfig"
)

const (
	localAgent = "name: local\nmodel: scripted/local\nsystem_prompt: You work in {env.REGION}.\n"
	localModel = "steps: [{text: hi, tokens: {input: 3, output: 1}}]\n"
	localTests = "agent: local\ncases:\n  - {name: right, payload: x}\n  - name: wrong\n    payload: x\n    runs: 2\n    expected_result: output == \"no\"\n"
)

func localRepository(t *testing.T) string {
	t.Helper()
	return repository(t, "agents/local.yaml", localAgent, "models/local.yaml", localModel, "tests/t.yaml", localTests)
}

// Test runs the cases of a repository without a platform.
func TestTest_RunsCases(t *testing.T) {
	t.Parallel()
	dir := localRepository(t)
	out, messages, err := run(t, "test", dir, "--env", "REGION=eu")
	require.EqualError(t, err, "1 of 2 test cases failed")
	require.Equal(t, exitOutcome, exitCode(err))
	require.Contains(t, out, "ok   local/right  ")
	require.Contains(t, out, "FAIL local/wrong  ")
	require.Contains(t, out, "  0 of 2 runs  8 tokens\n     "+dir+"/tests/t.yaml:7:5: run 1 of 2\n"+
		"       expected: output == \"no\"\n       got:      status \"completed\", output \"hi\"\n")
	require.NotContains(t, out+messages, "\x1b")

	out, messages, err = run(t, "test", dir, "--env", "REGION=eu", "--case", "right", "--agent", "local")
	require.NoError(t, err)
	require.NotContains(t, out, "wrong")
	require.Equal(t, "1 test case passed\n", messages)

	out, _, err = run(t, "test", dir, "--case", "right")
	require.Equal(t, exitOutcome, exitCode(err))
	require.Contains(t, out, `the environment has no variable "REGION"`)
}

// Results have formats for programs.
func TestTest_WritesReports(t *testing.T) {
	t.Parallel()
	dir := localRepository(t)
	for format, read := range map[string]func([]byte, any) error{
		"json": json.Unmarshal, "yaml": func(text []byte, into any) error { return yaml.Unmarshal(text, into) },
	} {
		t.Run(format, func(t *testing.T) {
			out, messages, err := run(t, "test", dir, "--env", "REGION=eu", "-o", format)
			require.Equal(t, exitOutcome, exitCode(err))
			require.Contains(t, messages, "FAIL local/wrong")
			var results []caseResult
			require.NoError(t, read([]byte(out), &results))
			require.Len(t, results, 2)
			right, wrong := results[0], results[1]
			require.True(t, right.Passed)
			require.Nil(t, right.FailureReason)
			require.EqualValues(t, 4, right.TokenUsage.TotalTokens)
			require.Equal(t, "wrong", wrong.TestName)
			require.Equal(t, 2, wrong.Runs)
			require.Contains(t, *wrong.FailureReason, "0 of 2 runs were as expected")
			require.Equal(t, 7, wrong.Findings[0].Line)
			require.Equal(t, `output == "no"`, wrong.Findings[0].Expected)
		})
	}
	out, _, err := run(t, "test", dir, "--env", "REGION=eu", "-o", "junit")
	require.Equal(t, exitOutcome, exitCode(err))
	var report junitSuites
	require.NoError(t, xml.Unmarshal([]byte(out), &report))
	require.Equal(t, 2, report.Tests)
	require.Equal(t, 1, report.Failures)
	require.Len(t, report.Suites, 1)
	wrong := report.Suites[0].Cases[1]
	require.Equal(t, junitCase{ClassName: "local", Name: "wrong", File: dir + "/tests/t.yaml", Line: 4, Time: wrong.Time, Failure: wrong.Failure}, wrong)
	require.Contains(t, wrong.Failure.Text, dir+"/tests/t.yaml:7:5\n  expected: output == \"no\"\n")
	require.Nil(t, report.Suites[0].Cases[0].Failure)
	_, _, err = run(t, "test", dir, "-o", "table")
	require.ErrorContains(t, err, "must be json, yaml or junit")
}

// Test fails if no case matches, or if the repository has problems.
func TestTest_FailsWithoutCases(t *testing.T) {
	t.Parallel()
	dir := localRepository(t)
	_, _, err := run(t, "test", dir, "--case", "none")
	require.EqualError(t, err, "--agent, --case: no case matches; there is local/right, local/wrong")
	require.Equal(t, exitFailed, exitCode(err))
	_, messages, err := run(t, "test", repository(t, "agents/a.yaml", "name: a\nmodle: x\n"))
	require.ErrorContains(t, err, "no test was run")
	require.Equal(t, exitFailed, exitCode(err))
	require.Contains(t, messages, `agents/a.yaml:2:1: unknown key "modle"`)
	_, messages, err = run(t, "test", repository(t, "agents/a.yaml", helper))
	require.NoError(t, err)
	require.Contains(t, messages, "no tests in ")
}

// Environment variables configure the service of a model.
func TestTest_ConfiguresModelServices(t *testing.T) {
	var asked []string
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.Path+" "+r.Header.Get("Authorization"))
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"choices":[{"message":{"role":"assistant","content":"real"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`))
	}))
	t.Cleanup(service.Close)
	dir := repository(t, "agents/a.yaml", "name: a\nmodel: my-own/llama3\nretry_options: {attempts: 1}\n", "tests/t.yaml", "agent: a\ncases: [{name: a, payload: x, expected_result: output == \"real\"}]\n")
	_, messages, err := run(t, "test", dir)
	require.Equal(t, exitOutcome, exitCode(err))
	require.Contains(t, messages, "OPENAI_API_KEY for openai/...")

	t.Setenv("MY_OWN_BASE_URL", service.URL+"/v1")
	t.Setenv("MY_OWN_API_KEY", "sesame")
	_, _, err = run(t, "test", dir)
	require.NoError(t, err)
	require.Equal(t, []string{"/v1/chat/completions Bearer sesame"}, asked)

	for address, want := range map[string]string{"": "MY_OWN_API_KEY: the address of the service is unknown", "http://models.example/v1": "unencrypted", "models": "MY_OWN_BASE_URL: must be a URL"} {
		t.Run(address, func(t *testing.T) {
			t.Setenv("MY_OWN_BASE_URL", address)
			_, _, err := run(t, "test", dir)
			require.ErrorContains(t, err, want)
			require.Equal(t, exitFailed, exitCode(err))
			require.NotContains(t, err.Error(), "sesame")
		})
	}
}

// Flags take precedence over the file.
func TestReadVariables_MergesFlagsAndFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "env")
	require.NoError(t, os.WriteFile(file, []byte("# of ours\n\nA=file\nB=b=c\n"), 0o600))
	known, err := readVariables([]string{"A=first", "A=flag", "C="}, file, []string{"B"})
	require.NoError(t, err)
	require.Equal(t, runnerconfig.Variables{Variables: []runnerconfig.Variable{{Name: "A", Value: "flag"}, {Name: "B", Value: "b=c", Sensitive: true}, {Name: "C"}}}, known)
	require.NoError(t, os.WriteFile(file, []byte("A=1\nno secret\n"), 0o600))
	_, err = readVariables(nil, file, nil)
	require.ErrorContains(t, err, "--env-file: "+file+":2: must be NAME=VALUE")
	require.NotContains(t, err.Error(), "secret")
	_, err = readVariables([]string{"a=secret"}, "", nil)
	require.ErrorContains(t, err, "--env: must be NAME=VALUE")
	_, err = readVariables([]string{"A=" + strings.Repeat("x", 8193)}, "", nil)
	require.ErrorContains(t, err, "A has a value of more than")
	_, err = readVariables([]string{"A=1"}, "", []string{"B"})
	require.ErrorContains(t, err, `--sensitive: neither --env nor --env-file sets "B"`)
}
