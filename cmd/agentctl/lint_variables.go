// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/expand"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// variableUse is a reference to a variable of the environment.
type variableUse struct {
	name string
	at   bundle.Position
	// allowsSensitive is true if the variable may be sensitive.
	allowsSensitive bool
}

// findVariableUses returns the references of a repository to variables. The project is nil if it could not be read.
func findVariableUses(project *bundle.Project) (uses []variableUse) {
	if project == nil {
		return nil
	}
	for _, a := range project.Agents {
		for _, name := range engine.PromptVariables(a.SystemPrompt) {
			uses = append(uses, variableUse{name: name, at: a.At("system_prompt")})
		}
	}
	for _, c := range project.Connectors {
		config := c.Config
		payload, err := json.Marshal(config.Payload)
		if err != nil {
			continue // The check of the repository reports it.
		}
		for _, name := range expandedNames([]string{config.Schedule, config.Timezone, config.Prompt}, payload) {
			uses = append(uses, variableUse{name: name, at: c.At("config")})
		}
		for _, name := range expandedNames(append(slices.Sorted(maps.Values(config.Headers)), config.URL), nil) {
			uses = append(uses, variableUse{name: name, at: c.At("config"), allowsSensitive: true})
		}
	}
	return uses
}

// expandedNames returns the names of the variables in texts and in a document, in order.
func expandedNames(texts []string, document []byte) []string {
	none := expand.Expansion{Lookup: func(string) (string, bool) { return "", false }}
	for _, text := range texts {
		_, _ = none.Text(text) // The check of the repository reports malformed texts.
	}
	if document != nil {
		_, _ = none.JSON(document)
	}
	return none.Missing()
}

// variableNames returns the sorted names without duplicates.
func variableNames(uses []variableUse) (names []string) {
	for _, use := range uses {
		names = append(names, use.name)
	}
	return slices.Compact(slices.Sorted(slices.Values(names)))
}
