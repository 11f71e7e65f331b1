// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
)

// payloadOf returns the value of a payload's only key, from its text in YAML.
func payloadOf(written string) (any, error) {
	p, err := bundle.Parse(newFiles("agents/ok.yaml", okAgent, "tests/t.yaml", "agent: ok\ncases:\n- name: a\n  payload:\n    k: "+written+"\n"))
	if err != nil {
		return nil, err
	}
	return p.Suites[0].Cases[0].Payload.(map[string]any)["k"], nil
}

// Plain scalars follow YAML 1.2's core schema (10.3.2). Numbers keep all their digits.
func TestScalar_FollowsTheCoreSchema(t *testing.T) {
	t.Parallel()
	for written, want := range map[string]string{
		"null": "null", "Null": "null", "NULL": "null", "~": "null", "": "null", "nUll": `"nUll"`,
		"true": "true", "True": "true", "FALSE": "false", "yes": `"yes"`, "no": `"no"`, "on": `"on"`, "y": `"y"`,
		"0": "0", "7": "7", "-19": "-19", "+12": "12", "-0": "-0", "02134": "2134", "010": "10", "-007": "-7", "0189": "189", "00": "0",
		"0o17": "15", "0o7": "7", "0o8": `"0o8"`, "-0o7": `"-0o7"`, "0O7": `"0O7"`,
		"0x1f": "31", "0x3A": "58", "0xFFFFFFFFFFFFFFFFFF": "4722366482869645213695", "0X1f": `"0X1f"`, "-0x1f": `"-0x1f"`, "0xg": `"0xg"`,
		"1_000": `"1_000"`, "0b11": `"0b11"`, "1,000": `"1,000"`, "190:20:30": `"190:20:30"`, "0x1_f": `"0x1_f"`, "1_0.5": `"1_0.5"`,
		"9007199254740993": "9007199254740993", "18446744073709551615": "18446744073709551615", "99999999999999999999": "99999999999999999999",
		"1e6": "1e6", "1E+6": "1E+6", "5e-1": "5e-1", "12e03": "12e03", "-2E+05": "-2E+05", "1e": `"1e"`, "e6": `"e6"`, "1e6.5": `"1e6.5"`,
		"0.": "0", "-0.0": "-0.0", ".5": "0.5", "-.5": "-0.5", "+12.3": "12.3", "1.50": "1.50", "00.5": "0.5", "1.e2": "1e2", ".": `"."`, "+": `"+"`, "[02134, 1e6]": "[2134,1e6]",
		"0.1000000000000000055511151231257827": "0.1000000000000000055511151231257827", "1.2.3": `"1.2.3"`, "2024-01-02": `"2024-01-02"`,
		`"1e6"`: `"1e6"`, "'02134'": `"02134"`, "'.inf'": `".inf"`, "\"\\uFEFF\"": `"` + "\ufeff" + `"`,
	} {
		t.Run(written, func(t *testing.T) {
			t.Parallel()
			value, err := payloadOf(written)
			require.NoError(t, err)
			got, err := json.Marshal(value)
			require.NoError(t, err)
			require.Equal(t, want, string(got))
		})
	}
}

// JSON has no infinite numbers and no NaN, and a double has no number beyond 1.8e308.
func TestScalar_RejectsNonJSONNumbers(t *testing.T) {
	t.Parallel()
	for written, want := range map[string]string{
		".inf": "JSON has no such number", "-.Inf": "JSON has no such number", "+.INF": "JSON has no such number", ".nan": "JSON has no such number",
		"1e400": "too large", "-1e99999999999999999999": "too large", "0x" + strings.Repeat("f", 300): "too large", strings.Repeat("9", 400): "too large",
	} {
		t.Run(fmt.Sprintf("%.60s", written), func(t *testing.T) {
			_, err := payloadOf(written)
			require.ErrorContains(t, err, "tests/t.yaml:5:8: ", written)
			require.ErrorContains(t, err, want, written)
		})
	}
}

// The keys of agents and models accept each notation of a number.
func TestScalar_NumbersOfKeys(t *testing.T) {
	t.Parallel()
	p, err := bundle.Parse(newFiles("agents/ok.yaml", okAgent+"temperature: 5e-1\nmax_iterations: 010\ntimeout: 6e1\n"))
	require.NoError(t, err)
	a := p.Agent("ok")
	require.InDelta(t, 0.5, *a.Temperature, 0)
	require.Equal(t, 10, a.MaxIterations)
	require.Equal(t, "1m0s", a.Timeout.Std().String())

	_, err = bundle.Parse(newFiles("agents/ok.yaml", okAgent+"max_iterations: 99999999999999999999\n"))
	require.ErrorContains(t, err, `"max_iterations" must be a whole number`)
}

func TestParse_ReportsYAMLProblems(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, problem string }{
		"a byte order mark":              {"\ufeff" + okAgent, ""},
		"a mark before a document":       {"\ufeff---\n" + okAgent, ""},
		"a directive":                    {"%YAML 1.2\n---\n" + okAgent, ""},
		"a directive and a mark":         {"\ufeff%YAML 1.2\n---\n" + okAgent, ""},
		"a comment and a directive":      {"# x\n%YAML 1.2\n---\n" + okAgent, ""},
		"an end":                         {okAgent + "...\n", ""},
		"two documents":                  {"%YAML 1.2\n---\n" + okAgent + "---\n" + okAgent, "second document"},
		"Latin-1":                        {okAgent + "system_prompt: caf\xe9\n", `agents/ok.yaml:3:19: the file is not UTF-8 from here on; save it as UTF-8`},
		"UTF-16":                         {"\xff\xfen\x00a\x00", "agents/ok.yaml:1:1: the file is not UTF-8"},
		"a byte of no text in a comment": {"# \xff\n" + okAgent, "agents/ok.yaml:1:3: the file is not UTF-8"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := bundle.Parse(newFiles("agents/ok.yaml", c.text))
			if c.problem == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.problem)
		})
	}
}
