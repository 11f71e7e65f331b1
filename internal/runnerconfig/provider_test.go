// SPDX-License-Identifier: Apache-2.0

package runnerconfig_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/runnerconfig"
)

// The prefix ends at the first slash, because names of models have slashes too.
func TestProviders_FindProvider(t *testing.T) {
	t.Parallel()
	openai := runnerconfig.Provider{Prefix: "openai", Type: "openai", APIKey: "sk-1"}
	scripted := runnerconfig.Provider{Prefix: "scripted", Type: "scripted"}
	all := []runnerconfig.Provider{openai, {Prefix: "open", Type: "openai"}}
	for _, row := range []struct {
		name, reference string
		providers       []runnerconfig.Provider
		want            runnerconfig.Provider
		model           string
		found           bool
	}{
		{"known", "openai/gpt-5", all, openai, "gpt-5", true},
		{"model with a slash", "openai/team/gpt-5", all, openai, "team/gpt-5", true},
		{"unknown", "our/a", all, runnerconfig.Provider{Prefix: "our"}, "a", false},
		{"beginning of a prefix", "ope/a", all, runnerconfig.Provider{Prefix: "ope"}, "a", false},
		{"prefix in the name", "our/openai/a", all, runnerconfig.Provider{Prefix: "our"}, "openai/a", false},
		{"no provider", "openai/gpt-5", nil, runnerconfig.Provider{Prefix: "openai"}, "gpt-5", false},
		{"scripted", "scripted/hello", nil, scripted, "hello", true},
		{"beginning of scripted", "script/hello", all, runnerconfig.Provider{Prefix: "script"}, "hello", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got, model, found := runnerconfig.Providers{Providers: row.providers}.FindProvider(row.reference)
			require.Equal(t, row.want, got)
			require.Equal(t, row.model, model)
			require.Equal(t, row.found, found)
		})
	}
}
