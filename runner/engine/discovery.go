// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"unicode"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/runner/model"
)

const (
	// defaultFound and maxFound limit the tools of one search.
	defaultFound = 5
	maxFound     = 20
	// maxQuery limits the words of a search.
	maxQuery = 20
	// minPrefix is the minimum length of a word that matches words with the same beginning, such as plurals.
	minPrefix = 3
)

// Scores of a word of a search, by where it matches a tool.
const (
	scoreName = 4 - iota
	scoreNamePrefix
	scoreDescription
	scoreDescriptionPrefix
)

var (
	searchParameters = map[string]any{
		"type": "object",
		"properties": map[string]any{
			"query": map[string]any{"type": "string", "description": "Words of the name or the description."},
			"limit": map[string]any{"type": "integer", "minimum": 1, "maximum": maxFound, "description": "Maximum number of tools, 5 by default."},
		},
		"required": []string{"query"}, "additionalProperties": false,
	}
	useParameters = map[string]any{
		"type": "object",
		"properties": map[string]any{
			"name":      map[string]any{"type": "string", "description": "Name of the tool."},
			"arguments": map[string]any{"type": "object", "description": "Arguments that fit the parameters of the tool."},
		},
		"required": []string{"name"}, "additionalProperties": false,
	}
	searchSchema, useSchema = mustCompile(searchParameters), mustCompile(useParameters)
)

// discoveryTools returns the tools that find and call discoverable tools.
func (l *llmAgent) discoveryTools() []Tool {
	return []Tool{
		{
			Name: bundle.SearchTools, Description: "Finds more tools, with their parameters, by words of their names and descriptions. Call a found tool with " + bundle.UseTool + ".",
			Parameters: searchParameters, Schema: searchSchema, Idempotent: true, MaxResult: dispatchapi.MaxToolResult, Run: l.searchTools,
		},
		{
			Name: bundle.UseTool, Description: "Calls a tool that " + bundle.SearchTools + " found.", Parameters: useParameters, Schema: useSchema, Idempotent: true,
			Run: func(context.Context, *Call) (map[string]any, error) { // resolveCalls replaces all other calls
				return nil, errors.New(bundle.UseTool + " cannot call itself")
			},
		},
	}
}

// resolveCalls replaces each valid call of use_tool by the call of the tool that it names. From then on it is a call of that
// tool: for arguments, conditions, limits, the journal and tests.
func (l *llmAgent) resolveCalls(calls []*model.Call) []*model.Call {
	used := slices.Clone(calls)
	if l.findTool(bundle.UseTool) == nil {
		return used
	}
	for i, c := range calls {
		name, _ := c.Args["name"].(string)
		if c.Name != bundle.UseTool || name == bundle.UseTool || c.Problem != "" || CheckArguments(useSchema, c.Args) != nil {
			continue
		}
		resolved := *c
		resolved.Name, resolved.Args = name, map[string]any{}
		if args, given := c.Args["arguments"].(map[string]any); given {
			resolved.Args = args
		}
		used[i] = &resolved
	}
	return used
}

// foundTool is a tool for the model.
type foundTool struct {
	Name        string         `json:"name"`
	Description string         `json:"description"`
	Parameters  map[string]any `json:"parameters,omitempty"`

	score int
}

// searchTools returns the discoverable tools that match the query best, as many as fit into a result. It does not depend on
// anything but the query, the tools and the hidden tools.
func (l *llmAgent) searchTools(_ context.Context, call *Call) (map[string]any, error) {
	query, _ := call.Arguments["query"].(string)
	limit := defaultFound
	if number, given := call.Arguments["limit"].(json.Number); given {
		if n, err := number.Float64(); err == nil { // the schema has checked the bounds
			limit = int(n)
		}
	}
	matching := l.rankTools(query)
	found, size := []foundTool{}, 0
	for _, t := range matching[:min(limit, len(matching))] {
		text, err := json.Marshal(t)
		if size += len(text); err != nil || size > l.agent.ToolOptions.MaxResult && len(found) > 0 {
			break
		}
		found = append(found, t)
	}
	text, err := json.Marshal(map[string]any{"tools": found, "more": len(matching) - len(found)})
	if err != nil {
		return nil, errors.New("the tools cannot be written as JSON")
	}
	var result map[string]any
	return result, exactjson.Decode(text, &result)
}

// rankTools returns the discoverable tools that match a query, the best first and equal ones in the order of the agent. An
// empty query matches all.
func (l *llmAgent) rankTools(query string) (matching []foundTool) {
	words := splitWords(query)
	words = words[:min(len(words), maxQuery)]
	for _, t := range l.tools {
		if !t.Discoverable || l.hidden[t.Name] {
			continue
		}
		names, description := splitWords(t.Name), splitWords(t.Description)
		score := 0
		for _, word := range words {
			score += scoreWord(word, names, description)
		}
		if score > 0 || len(words) == 0 {
			matching = append(matching, foundTool{t.Name, t.Description, t.Parameters, score})
		}
	}
	slices.SortStableFunc(matching, func(a, b foundTool) int { return cmp.Compare(b.score, a.score) })
	return matching
}

// scoreWord returns the score of a word for a tool, 0 without a match.
func scoreWord(word string, names, description []string) int {
	samePrefix := func(other string) bool {
		short := min(len(word), len(other))
		return short >= minPrefix && word[:short] == other[:short]
	}
	switch {
	case slices.Contains(names, word):
		return scoreName
	case slices.ContainsFunc(names, samePrefix):
		return scoreNamePrefix
	case slices.Contains(description, word):
		return scoreDescription
	case slices.ContainsFunc(description, samePrefix):
		return scoreDescriptionPrefix
	}
	return 0
}

// splitWords returns the words of a text in lower case. A capital letter after a small one begins a word, as in getOrder.
func splitWords(text string) []string {
	var spaced strings.Builder
	var before rune
	for _, r := range text {
		switch {
		case !unicode.IsLetter(r) && !unicode.IsDigit(r):
			r = ' '
		case unicode.IsUpper(r) && unicode.IsLower(before):
			spaced.WriteByte(' ')
		}
		spaced.WriteRune(unicode.ToLower(r))
		before = r
	}
	return strings.Fields(spaced.String())
}
