// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"reflect"
	"slices"

	"github.com/agentplatform/agentplatform/internal/later"
)

// removeUnsupported takes out of the schema of a kind what this release does not do, so that no editor offers it.
func removeUnsupported(kind Kind, root schema) {
	switch kind {
	case KindAgent, KindDefaults:
		root.removeKeys(reflect.TypeFor[Agent]())
		properties := root["properties"].(schema)
		properties["type"].(schema).removeWords("agent.type")
		if later.Has(later.File, "tool.condition", "") {
			properties["tools"].(schema)["items"] = schema{"type": "string"}
		}
		if rules, ok := root["allOf"].([]schema); ok {
			root["allOf"] = supportedRules(rules)
		}
	case KindSuite:
		root.at("cases", "").removeKeys(reflect.TypeFor[Case]())
	case KindConnector:
		root.at("links", "", "outbound", "mode").removeWords("link.outbound.mode")
	case KindModel:
	}
}

// at is the schema of a key, and of keys inside it; "" stands for the items of a list.
func (s schema) at(keys ...string) schema {
	for _, key := range keys {
		if key == "" {
			s = s["items"].(schema)
			continue
		}
		s = s["properties"].(schema)[key].(schema)
	}
	return s
}

// removeKeys removes the unsupported keys of a struct.
func (s schema) removeKeys(t reflect.Type) {
	properties := s["properties"].(schema)
	for key := range properties {
		if isUnsupported(t, key) {
			delete(properties, key)
		}
	}
}

// removeWords removes the unsupported values of a field from its enum.
func (s schema) removeWords(field string) {
	s["enum"] = slices.DeleteFunc(s["enum"].([]any), func(word any) bool {
		text, isText := word.(string)
		return isText && later.Has(later.File, field, text)
	})
}

// supportedRules are the rules of agentTypeRules for types that are supported.
func supportedRules(rules []schema) (out []schema) {
	for i, rule := range rules {
		if len(supportedTypes(everyType[i:i+1])) == 0 {
			continue
		}
		rule["then"].(schema).removeKeys(reflect.TypeFor[Agent]())
		out = append(out, rule)
	}
	return out
}
