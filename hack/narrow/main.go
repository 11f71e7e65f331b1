// SPDX-License-Identifier: Apache-2.0

// Command narrow rewrites generated CRDs so that Kubernetes rejects objects that Go cannot decode. One such object would break
// every list of its kind.
//
// Integers get the bounds of their Go type. A value that may be an integer or a string becomes a plain quantity. Display names
// get the rule of internal/displayname. A time gets a rule for the form that Go writes. The rule replaces the format date-time,
// which accepts other times and hides the text of a time from rules.
package main

import (
	"fmt"
	"os"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/displayname"
)

const (
	// timeRule accepts the form that metav1.Time writes. The format checks day and hour.
	timeRule = `self.matches('^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$') && ` +
		`!format.datetime().validate(self).hasValue()`
	timeMessage = "must be a time in UTC, such as 2030-01-31T12:00:00Z"
	timeLength  = 64 // so that a time with an offset gets the message of the rule
	// Bounds of int32, and of the integers that every JSON reader keeps exactly.
	maxInt32 = 1<<31 - 1
	maxExact = 1<<53 - 1
)

func main() {
	for _, file := range os.Args[1:] {
		if err := rewrite(file); err != nil {
			fmt.Fprintln(os.Stderr, "narrow:", err)
			os.Exit(1)
		}
	}
}

// rewrite narrows the schemas of a CRD in place; what stands before the document
// stays.
func rewrite(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading the CRD: %w", err)
	}
	head, body, found := strings.Cut(string(text), "---\n")
	if !found {
		return fmt.Errorf("reading %s: no document", file)
	}
	var crd map[string]any
	if err := yaml.Unmarshal([]byte(body), &crd); err != nil {
		return fmt.Errorf("reading %s: %w", file, err)
	}
	spec, _ := crd["spec"].(map[string]any)
	versions, _ := spec["versions"].([]any)
	for _, version := range versions {
		version, _ := version.(map[string]any)
		schema, _ := version["schema"].(map[string]any)
		narrowSchema(schema["openAPIV3Schema"])
	}
	out, err := yaml.Marshal(crd)
	if err != nil {
		return fmt.Errorf("writing %s: %w", file, err)
	}
	return os.WriteFile(file, []byte(head+"---\n"+string(out)), 0o644)
}

// narrowSchema walks a schema.
func narrowSchema(schema any) {
	node, _ := schema.(map[string]any)
	switch {
	case node["type"] == "integer":
		setBounds(node)
	case node["x-kubernetes-int-or-string"] == true:
		node["pattern"] = v1alpha1.QuantityPattern
		node["minimum"], node["maximum"] = 0, int64(maxExact)
	case node["type"] == "string" && node["format"] == "date-time":
		delete(node, "format")
		node["maxLength"] = timeLength
		node["x-kubernetes-validations"] = []any{map[string]any{"rule": timeRule, "message": timeMessage}}
	}
	properties, _ := node["properties"].(map[string]any)
	for name, property := range properties {
		if name == "displayName" {
			nameForPeople(property)
		}
		narrowSchema(property)
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if node[key] != nil {
			narrowSchema(node[key])
		}
	}
}

// nameForPeople demands of a displayName what the REST API and a repository's files demand.
func nameForPeople(schema any) {
	node, _ := schema.(map[string]any)
	node["maxLength"] = displayname.MaxLength
	node["x-kubernetes-validations"] = []any{map[string]any{
		"rule": "self.matches(r'" + displayname.Pattern + "')", "message": displayname.Message,
	}}
}

func setBounds(node map[string]any) {
	most := int64(maxExact)
	if node["format"] == "int32" {
		most = maxInt32
	}
	for key, value := range map[string]int64{"minimum": -most, "maximum": most} {
		if _, given := node[key]; !given {
			node[key] = value
		}
	}
}
