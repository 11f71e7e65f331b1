// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

// Scripted models need no provider. A provider of another type than OpenAI exists, although no runner supports it.
func TestMissingProviders_NamesAgentsAndRemedy(t *testing.T) {
	t.Parallel()
	agent := func(name string, models ...string) store.Agent { return store.Agent{Name: name, Models: models} }
	var many []store.Agent
	for i := range 7 {
		many = append(many, agent(fmt.Sprintf("a%d", i), "our/a"))
	}
	providers := []v1alpha1.ModelProvider{
		{Prefix: "openai", Type: v1alpha1.ModelProviderOpenAI}, {Prefix: "gemini", Type: v1alpha1.ModelProviderGemini},
	}
	const remedy = `no model provider has the prefix %q; add it to spec.modelProviders of the Project, or correct the model`
	ours := fmt.Sprintf(remedy, "our")
	for _, row := range []struct {
		name      string
		agents    []store.Agent
		providers []v1alpha1.ModelProvider
		want      string
	}{
		{"no agents", nil, nil, ""},
		{"no models", []store.Agent{agent("a")}, nil, ""},
		{"scripted", []store.Agent{agent("a", "scripted/hello")}, nil, ""},
		{"known", []store.Agent{agent("a", "openai/gpt-5", "openai/team/b", "scripted/hello"), agent("b", "gemini/x")}, providers, ""},
		{"no providers", []store.Agent{agent("a", "openai/gpt-5")}, nil, `model "openai/gpt-5" of agent "a": ` + fmt.Sprintf(remedy, "openai")},
		{"fallback", []store.Agent{agent("a", "openai/gpt-5", "our/a")}, providers, `model "our/a" of agent "a": ` + ours},
		{
			"several", []store.Agent{agent("b", "our/b", "our/a"), agent("a", "our/b")}, providers,
			`model "our/a" of agent "b": ` + ours + "\n" + `model "our/b" of agent "a", "b": ` + ours,
		},
		{"many agents", many, providers, `model "our/a" of agent "a0", "a1", "a2", "a3", "a4" and 2 more: ` + ours},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, row.want, missingProviders(row.agents, row.providers))
		})
	}
}
