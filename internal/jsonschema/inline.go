// SPDX-License-Identifier: Apache-2.0

package jsonschema

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

const (
	// maxInlined limits the subschemas of a schema after its references are replaced.
	maxInlined = 20_000
	// maxReferences limits the depth of references inside references.
	maxReferences = 50
	// maxDepth limits nested subschemas.
	maxDepth = 200
)

// Keywords with subschemas, by the form of their values. The value of any other keyword is data.
var (
	mapKeywords  = []string{"properties", "patternProperties", "dependentSchemas"}
	listKeywords = []string{"allOf", "anyOf", "oneOf", "prefixItems"}
	keywords     = []string{
		"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedItems", "unevaluatedProperties", "additionalItems",
	}
	// dropped are keywords that have no effect without references.
	dropped = []string{"$defs", "definitions", "$id", "$schema", "$anchor", "$comment", "$vocabulary"}
	// annotations are keywords beside a reference that replace the same keywords of its target.
	annotations = []string{"title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly", "summary"}
)

// Inline returns a schema with each reference replaced by its target in document. A reference to a
// schema that contains it is replaced by a schema that accepts every value. The result shares
// values with document.
func Inline(schema, document any) (any, error) {
	i := &inliner{document: document}
	return i.inlineReferences(schema, 0)
}

type inliner struct {
	document any
	open     []string // references whose targets contain the current schema
	count    int
}

func (i *inliner) inlineReferences(schema any, depth int) (any, error) {
	if i.count++; i.count > maxInlined {
		return nil, fmt.Errorf("the schema has more than %d parts, each reference counted as its target", maxInlined)
	}
	if depth > maxDepth {
		return nil, fmt.Errorf("the schema is nested more than %d levels deep", maxDepth)
	}
	fields, isMap := schema.(map[string]any)
	if !isMap {
		return schema, nil // true, false, or no schema, which the compiler rejects
	}
	for _, name := range []string{"$dynamicRef", "$recursiveRef"} {
		if _, has := fields[name]; has {
			return nil, fmt.Errorf("%s is not supported; use $ref", name)
		}
	}
	out := make(map[string]any, len(fields))
	for name, value := range fields {
		var err error
		switch {
		case name == "$ref" || slices.Contains(dropped, name):
			continue
		case slices.Contains(keywords, name) || slices.Contains(listKeywords, name):
			value, err = i.inlineValue(value, depth)
		case slices.Contains(mapKeywords, name):
			value, err = i.inlineMap(value, depth)
		}
		if err != nil {
			return nil, err
		}
		out[name] = value
	}
	if reference, has := fields["$ref"]; has {
		return i.replaceReference(reference, out, depth)
	}
	return out, nil
}

// inlineValue inlines a schema or a list of schemas.
func (i *inliner) inlineValue(value any, depth int) (any, error) {
	list, isList := value.([]any)
	if !isList {
		return i.inlineReferences(value, depth+1)
	}
	out := make([]any, len(list))
	for at, one := range list {
		inlined, err := i.inlineReferences(one, depth+1)
		if err != nil {
			return nil, err
		}
		out[at] = inlined
	}
	return out, nil
}

func (i *inliner) inlineMap(value any, depth int) (any, error) {
	schemas, isMap := value.(map[string]any)
	if !isMap {
		return value, nil
	}
	out := make(map[string]any, len(schemas))
	for _, name := range slices.Sorted(maps.Keys(schemas)) {
		inlined, err := i.inlineReferences(schemas[name], depth+1)
		if err != nil {
			return nil, err
		}
		out[name] = inlined
	}
	return out, nil
}

// replaceReference returns the target of a reference with the keywords beside the reference.
func (i *inliner) replaceReference(reference any, beside map[string]any, depth int) (any, error) {
	name, isText := reference.(string)
	if !isText {
		return nil, errors.New("$ref must be a text")
	}
	if slices.Contains(i.open, name) {
		return beside, nil
	}
	if len(i.open) >= maxReferences {
		return nil, fmt.Errorf("$ref %q: more than %d references inside each other", shorten(name), maxReferences)
	}
	target, err := Find(i.document, name)
	if err != nil {
		return nil, err
	}
	i.open = append(i.open, name)
	inlined, err := i.inlineReferences(target, depth+1)
	i.open = i.open[:len(i.open)-1]
	if err != nil || len(beside) == 0 {
		return inlined, err
	}
	fields, isMap := inlined.(map[string]any)
	for keyword := range beside {
		if !isMap || !slices.Contains(annotations, keyword) {
			list, _ := beside["allOf"].([]any)
			beside["allOf"] = append(slices.Clone(list), inlined)
			return beside, nil
		}
	}
	merged := maps.Clone(fields)
	maps.Copy(merged, beside)
	return merged, nil
}

// tokens decodes a part of a JSON pointer in a URL.
var tokens = strings.NewReplacer("~1", "/", "~0", "~", "%7B", "{", "%7D", "}", "%20", " ", "%25", "%")

// Find returns the value that a reference such as #/$defs/item names in a document.
func Find(document any, reference string) (any, error) {
	pointer, inside := strings.CutPrefix(reference, "#")
	if !inside || pointer != "" && pointer[0] != '/' {
		return nil, fmt.Errorf("$ref %q must name a part of the same document, such as #/$defs/item", shorten(reference))
	}
	value := document
	if pointer == "" {
		return value, nil
	}
	for part := range strings.SplitSeq(pointer[1:], "/") {
		name := tokens.Replace(part)
		switch within := value.(type) {
		case map[string]any:
			next, has := within[name]
			if !has {
				return nil, fmt.Errorf("$ref %q names a part that the document does not have", shorten(reference))
			}
			value = next
		case []any:
			at, err := strconv.Atoi(name)
			if err != nil || at < 0 || at >= len(within) {
				return nil, fmt.Errorf("$ref %q names a part that the document does not have", shorten(reference))
			}
			value = within[at]
		default:
			return nil, fmt.Errorf("$ref %q names a part that the document does not have", shorten(reference))
		}
	}
	return value, nil
}
