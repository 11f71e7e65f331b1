// SPDX-License-Identifier: Apache-2.0

package model_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/runner/model"
)

// An answer has the reason for its end, whatever word the service has for it.
func TestOpenAI_FinishReason(t *testing.T) {
	t.Parallel()
	const text = `"message":{"role":"assistant","content":"Hi"}`
	const calls = `"message":{"tool_calls":[{"id":"a","type":"function","function":{"name":"look","arguments":"{}"}}]}`
	for _, row := range []struct {
		name, choice string
		want         model.FinishReason
	}{
		{"stop", `"finish_reason":"stop",` + text, model.FinishStop},
		{"missing", text, model.FinishStop},
		{"tool calls", `"finish_reason":"tool_calls",` + calls, model.FinishToolCalls},
		{"stop with calls", `"finish_reason":"stop",` + calls, model.FinishToolCalls},
		{"length", `"finish_reason":"length",` + text, model.FinishLength},
		{"length with calls", `"finish_reason":"length",` + calls, model.FinishLength},
		{"content filter", `"finish_reason":"content_filter",` + text, model.FinishContentFilter},
		{"own word", `"finish_reason":"eos",` + text, model.FinishOther},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			s := &service{status: 200, answer: `{"choices":[{` + row.choice + `}]}`}
			answer, err := ask(t.Context(), openAI(t, s, loopback), user("hi"))
			require.NoError(t, err)
			require.Equal(t, row.want, answer.FinishReason)
		})
	}
}

// Journals of earlier releases have other words.
func TestFinishReason_ReadsEarlierWords(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]model.FinishReason{
		"STOP": model.FinishStop, "MAX_TOKENS": model.FinishLength, "SAFETY": model.FinishContentFilter, "length": model.FinishLength, "": "",
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			var got model.FinishReason
			require.NoError(t, json.Unmarshal([]byte(`"`+text+`"`), &got))
			require.Equal(t, want, got)
		})
	}
}
