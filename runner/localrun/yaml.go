// SPDX-License-Identifier: Apache-2.0

package localrun

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v3"
)

// object is a YAML mapping whose keys keep their order.
type object []field

// field is a key of an object with its value: an object, or a JSON value.
type field struct {
	key   string
	value any
}

// MarshalJSON implements json.Marshaler, for comparisons.
func (o object) MarshalJSON() ([]byte, error) {
	list := make([]any, 0, 2*len(o))
	for _, f := range o {
		list = append(list, f.key, f.value)
	}
	return json.Marshal(list)
}

// encodeYAML returns a value as YAML without secrets.
func encodeYAML(value any, m *mask) ([]byte, error) {
	root, err := newNode(value, m)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(root), encoder.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// newNode returns a value as a node. Numbers keep their digits.
func newNode(value any, m *mask) (*yaml.Node, error) {
	node := &yaml.Node{}
	var parts []any
	switch v := value.(type) {
	case object:
		node.Kind = yaml.MappingNode
		for _, f := range v {
			parts = append(parts, f.key, f.value)
		}
	case map[string]any:
		node.Kind = yaml.MappingNode
		for _, name := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, name, v[name])
		}
	case map[string]string:
		node.Kind = yaml.MappingNode
		for _, name := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, name, v[name])
		}
	case []any:
		node.Kind, parts = yaml.SequenceNode, v
	case []string:
		node.Kind = yaml.SequenceNode
		for _, text := range v {
			parts = append(parts, text)
		}
	case json.Number:
		if m.hasSecret(v.String()) {
			return newNode(m.redactText(v.String()), m)
		}
		node.Kind, node.Value = yaml.ScalarNode, v.String()
	case string:
		text := m.redactText(v)
		if err := node.Encode(text); err != nil {
			return nil, err
		}
		if strings.ContainsFunc(text, func(c rune) bool { return c != '\n' && !unicode.IsGraphic(c) }) || strings.HasPrefix(text, "\n") {
			node.Style = yaml.DoubleQuotedStyle
		}
	default:
		return node, node.Encode(v)
	}
	for _, part := range parts {
		of, err := newNode(part, m)
		if err != nil {
			return nil, err
		}
		node.Content = append(node.Content, of)
	}
	return node, nil
}
