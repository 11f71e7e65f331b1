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

// variableUse is a place that names a variable of the environment.
type variableUse struct {
	name string
	at   bundle.Position
	// secret: a sensitive one may stand here.
	secret bool
}

// variablesUsed are the places of a repository that name variables, as far as it could be read.
func variablesUsed(project *bundle.Project) (uses []variableUse) {
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
			continue // It is among the problems.
		}
		for _, name := range expandedNames([]string{config.Schedule, config.Timezone, config.Prompt}, payload) {
			uses = append(uses, variableUse{name: name, at: c.At("config")})
		}
		for _, name := range expandedNames(append(slices.Sorted(maps.Values(config.Headers)), config.URL), nil) {
			uses = append(uses, variableUse{name: name, at: c.At("config"), secret: true})
		}
	}
	return uses
}

// expandedNames are the names that stand in texts and in a document, in order.
func expandedNames(texts []string, document []byte) []string {
	none := expand.Expansion{Lookup: func(string) (string, bool) { return "", false }}
	for _, text := range texts {
		_, _ = none.Text(text) // what is malformed is among the problems
	}
	if document != nil {
		_, _ = none.JSON(document)
	}
	return none.Missing()
}

// namesOf are the names, in order, each once.
func namesOf(uses []variableUse) (names []string) {
	for _, use := range uses {
		names = append(names, use.name)
	}
	return slices.Compact(slices.Sorted(slices.Values(names)))
}
