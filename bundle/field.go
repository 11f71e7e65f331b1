// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/agentplatform/agentplatform/connector"
)

// field is a key of a YAML file. The tags of its Go field say all there is to know about the key.
// The decoder enforces them; the JSON Schemas, the reference page and the tests are derived from them.
//
//	yaml               name of the key
//	doc                meaning, in Markdown with 'code' in single quotes
//	example            valid value, in YAML
//	types              agent types that have the key (values of the key "type" beside it); all without the tag
//	kinds              kinds of connectors that have the key of config
//	needed             kind of connectors that requires the key of config
//	required           "true", or the values of "type" that require the key
//	choice             name of a choice: of the keys with the same choice at most one may be written, and one if they are required
//	enum               allowed values of a text, or of the items of a list
//	form               form of a text, see textForms
//	file               file of the repository that a text names, such as schemas/*.json
//	min, max           bounds of a number
//	over               number that the value must exceed
//	maxLength          most characters of a text, as written
//	maxItems           most items of a list
//	without            effect of a missing key, such as a default that Go's zero value cannot show
//	scope              "base" if the key applies to all runs of an agent, so that an A/B variant cannot have it
//	variables          how texts name variables of the environment: "prompt" as {env.NAME}; "plain" as ${NAME}, not sensitive;
//	                   "any" as ${NAME}, also sensitive
//	defaults           "false" if a file of defaults cannot have the key
//	unsupported        "true" if this release rejects the key
//	unsupportedValues  values that this release rejects
type field struct {
	name, doc, example, without string
	index                       []int // of the Go field, also in an embedded struct
	goType                      reflect.Type

	types, kinds            []string
	needed                  string
	requiredFor             []string
	required                bool
	choice                  string
	enum, unsupportedValues []string
	form, variables         string
	folder, extension       string // of the tag file
	min, max, over          *float64
	maxLength, maxItems     int // 0 without a limit
	baseOnly, noDefault     bool
	unsupported             bool
}

// structFields are the fields of a struct that are keys.
type structFields struct {
	ordered []*field
	byName  map[string]*field
}

// fieldCache holds *structFields by reflect.Type.
var fieldCache sync.Map

// fieldsOf parses the tags of a struct's fields, once for each type. It panics if a tag is malformed.
func fieldsOf(t reflect.Type) *structFields {
	if cached, ok := fieldCache.Load(t); ok {
		return cached.(*structFields)
	}
	out := &structFields{byName: make(map[string]*field, t.NumField())}
	for _, goField := range reflect.VisibleFields(t) {
		if f := parseField(goField); f != nil {
			out.ordered = append(out.ordered, f)
			out.byName[f.name] = f
		}
	}
	cached, _ := fieldCache.LoadOrStore(t, out)
	return cached.(*structFields)
}

// parseField returns nil if the Go field is not a key.
func parseField(goField reflect.StructField) *field {
	tag := goField.Tag
	name, _, _ := strings.Cut(tag.Get("yaml"), ",")
	if name == "" {
		return nil
	}
	f := &field{
		name: name, doc: kindWords.Replace(tag.Get("doc")), example: tag.Get("example"), without: tag.Get("without"), index: goField.Index, goType: goField.Type,
		types: splitTag(tag, "types"), kinds: splitTag(tag, "kinds"), needed: tag.Get("needed"), required: tag.Get("required") == "true", choice: tag.Get("choice"),
		enum: splitTag(tag, "enum"), unsupportedValues: splitTag(tag, "unsupportedValues"), form: tag.Get("form"), variables: tag.Get("variables"),
		min: parseBound(tag, "min"), max: parseBound(tag, "max"), over: parseBound(tag, "over"),
		maxLength: parseSize(tag, "maxLength"), maxItems: parseSize(tag, "maxItems"),
		baseOnly: tag.Get("scope") == "base", noDefault: tag.Get("defaults") == "false", unsupported: tag.Get("unsupported") == "true",
	}
	if !f.required {
		f.requiredFor = splitTag(tag, "required")
	}
	if _, known := textForms[f.form]; f.form != "" && !known {
		panic(fmt.Sprintf("field %s: unknown form %q", goField.Name, f.form))
	}
	f.folder, f.extension, _ = strings.Cut(tag.Get("file"), "*")
	return f
}

// splitTag returns the items of a list in a tag, nil without the tag.
func splitTag(tag reflect.StructTag, name string) []string {
	text := tag.Get(name)
	if text == "" {
		return nil
	}
	return strings.Split(kindWords.Replace(text), ",")
}

// kindWords fills in tags what only package connector lists: the types and modes of connectors.
var kindWords = strings.NewReplacer(
	"{type names}", strings.Join(connector.TypeNames(), ","), "{mode names}", strings.Join(connector.Modes(connector.Kind.IsKnown), ","),
	"{types}", connector.DescribeTypes("'"), "{modes}", connector.DescribeModes("'"),
)

// parseBound returns the number in a tag, nil without the tag.
func parseBound(tag reflect.StructTag, name string) *float64 {
	text, ok := tag.Lookup(name)
	if !ok {
		return nil
	}
	number, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic(fmt.Sprintf("tag %s: %v", name, err))
	}
	return &number
}

// parseSize returns the number in a tag, 0 without the tag.
func parseSize(tag reflect.StructTag, name string) int {
	text, ok := tag.Lookup(name)
	if !ok {
		return 0
	}
	size, err := strconv.Atoi(text)
	if err != nil {
		panic(fmt.Sprintf("tag %s: %v", name, err))
	}
	return size
}

// isForType reports whether the key applies to a value of the key "type" beside it. An unknown type, "", has all keys.
func (f *field) isForType(typeName string) bool {
	return typeName == "" || len(f.types) == 0 || slices.Contains(f.types, typeName)
}

// isList reports whether the key has a list of values. JSON is one value.
func (f *field) isList() bool {
	return f.goType.Kind() == reflect.Slice && f.goType != reflect.TypeFor[json.RawMessage]()
}

// isRequiredFor reports whether a struct with this value of "type" must have the key.
func (f *field) isRequiredFor(typeName string) bool {
	return f.required || slices.Contains(f.requiredFor, typeName)
}

// supportedEnum returns the allowed values that this release supports.
func (f *field) supportedEnum() []string {
	return slices.DeleteFunc(slices.Clone(f.enum), func(value string) bool { return slices.Contains(f.unsupportedValues, value) })
}

// isSupported reports whether this release supports a field of the struct: the key itself, and at least one type that has it.
func (s *structFields) isSupported(f *field) bool {
	return !f.unsupported && (len(f.types) == 0 || len(s.supportedTypes(f)) > 0)
}

// supportedTypes returns the values of the key "type" that have the field and that this release supports.
func (s *structFields) supportedTypes(f *field) []string {
	return slices.DeleteFunc(s.byName["type"].supportedEnum(), func(t string) bool { return !f.isForType(t) })
}

// typeOf returns the value of the key "type" of a map, or its default. It returns "" if the struct has no such key
// or the value is unknown.
func (s *structFields) typeOf(n *node) string {
	f := s.byName["type"]
	if f == nil {
		return ""
	}
	typeName := f.without
	if written := n.findNode("type"); written != nil {
		if text, _ := written.scalar.(string); text != "" {
			typeName = text
		}
	}
	if !slices.Contains(f.enum, typeName) {
		return ""
	}
	return typeName
}

// excluded returns the names of the other keys of the choice of a key.
func (s *structFields) excluded(f *field) (names []string) {
	for _, other := range s.ordered {
		if f.choice != "" && other.choice == f.choice && other != f {
			names = append(names, other.name)
		}
	}
	return names
}

// supportedNames returns the names of the supported keys, in alphabetical order.
func (s *structFields) supportedNames() (names []string) {
	for _, f := range s.ordered {
		if s.isSupported(f) {
			names = append(names, f.name)
		}
	}
	slices.Sort(names)
	return names
}
