// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"encoding/json"
	"regexp"
	"strings"
)

var variable = regexp.MustCompile(`\{[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_-]*)*\}`)

// expandPrompt replaces {var} and {var.field}, of which a field may have hyphens, by values of the run's context.
// What the context lacks stays as it is, so that braces can be written.
func expandPrompt(prompt string, values map[string]any) string {
	return variable.ReplaceAllStringFunc(prompt, func(name string) string {
		var value any = values
		for field := range strings.SplitSeq(name[1:len(name)-1], ".") {
			fields, ok := value.(map[string]any)
			if !ok {
				return name
			}
			if value, ok = fields[field]; !ok {
				return name
			}
		}
		if text, ok := value.(string); ok {
			return text
		}
		data, err := json.Marshal(value)
		if err != nil {
			return name
		}
		return string(data)
	})
}
