// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/json"
	"fmt"

	"github.com/agentplatform/agentplatform/runner/model"
)

// conversation holds the messages that agents of a tree share, in order. One agent at a time uses it.
type conversation struct {
	messages []entry
}

// entry is a message of a conversation and the path of the agent whose turn it belongs to.
type entry struct {
	path, author string
	content      *model.Content
}

// addMessage adds a message of the turn of an agent. The path is "" for a message that belongs to no agent.
func (c *conversation) addMessage(path, author string, content *model.Content) {
	if content != nil && len(content.Parts) > 0 {
		c.messages = append(c.messages, entry{path, author, content})
	}
}

// seenBy returns the messages for the model of an agent. Messages of other agents appear as reports of the user, because
// models only accept their own answers and calls in the role of the model.
func (c *conversation) seenBy(path string) []*model.Content {
	seen := make([]*model.Content, 0, len(c.messages)+1)
	for _, m := range c.messages {
		if m.path != path && m.author != "" {
			seen = append(seen, reported(m.author, m.content))
			continue
		}
		seen = append(seen, m.content)
	}
	return seen
}

// reported returns a message of another agent as a report of the user.
func reported(author string, content *model.Content) *model.Content {
	report := &model.Content{Role: model.RoleUser, Parts: []*model.Part{{Text: "For context:"}}}
	for _, part := range content.Parts {
		switch {
		case part.Thought:
		case part.Text != "":
			report.Parts = append(report.Parts, &model.Part{Text: fmt.Sprintf("[%s] said: %s", author, part.Text)})
		case part.Call != nil:
			report.Parts = append(report.Parts, &model.Part{
				Text: fmt.Sprintf("[%s] called tool `%s` with parameters: %s", author, part.Call.Name, encoded(part.Call.Args))})
		case part.Result != nil:
			report.Parts = append(report.Parts, &model.Part{
				Text: fmt.Sprintf("[%s] `%s` tool returned result: %s", author, part.Result.Name, encoded(part.Result.Response))})
		case part.File != nil:
			report.Parts = append(report.Parts, part)
		}
	}
	return report
}

// encoded returns a value as JSON. Arguments and results come from JSON, so it does not fail.
func encoded(value map[string]any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return "{}"
	}
	return string(text)
}
