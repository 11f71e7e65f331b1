// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// Field describes a setting, from the tags of its Go field.
type Field struct {
	Name, Doc, Default, Example string
	Type                        reflect.Type
	// Enum are the allowed values of a text, nil for any.
	Enum []string
	// Min and Max limit a number, MaxLength the characters of a text and MaxItems the items of a list. 0 means no limit.
	Min, Max, MaxLength, MaxItems int
	// Required means that the kind cannot be without the setting.
	Required bool
	// Variables says which variables of the environment texts of the setting can name: "any" in settings that are sealed, "plain" for
	// the ones that are not sensitive, and "" for none.
	Variables string

	index []int
}

// In returns the setting in c.
func (f Field) In(c *Config) reflect.Value { return reflect.ValueOf(c).Elem().FieldByIndex(f.index) }

// Fields returns the settings of a kind. Callers must not change them.
func (k Kind) Fields() []Field { return fieldsByKind()[k] }

// fieldsByKind parses the tags once: each connector of a list is shown by them.
var fieldsByKind = sync.OnceValue(func() map[Kind][]Field {
	out := map[Kind][]Field{}
	for _, k := range Kinds() {
		out[k] = k.parseFields()
	}
	return out
})

func (k Kind) parseFields() (fields []Field) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Config]()) {
		if !slices.Contains(strings.Split(f.Tag.Get("kinds"), ","), string(k)) {
			continue
		}
		field := newField(f)
		field.Required = f.Tag.Get("needed") == string(k)
		if field.Name == "timeout_seconds" {
			field.Max, field.Default = int(k.definition().maxTimeout.Seconds()), strconv.Itoa(int(k.DefaultTimeout().Seconds()))
		}
		fields = append(fields, field)
	}
	return fields
}

// RetryFields returns the settings of retries.
func RetryFields() (fields []Field) {
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Retry]()) {
		fields = append(fields, newField(f))
	}
	return fields
}

func newField(f reflect.StructField) Field {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	out := Field{
		Name: name, Doc: f.Tag.Get("doc"), Default: f.Tag.Get("without"), Example: f.Tag.Get("example"), Type: f.Type,
		Min: parseLimit(f, "min"), Max: parseLimit(f, "max"), MaxLength: parseLimit(f, "maxLength"), MaxItems: parseLimit(f, "maxItems"),
		Variables: f.Tag.Get("variables"), index: f.Index,
	}
	if enum := f.Tag.Get("enum"); enum != "" {
		out.Enum = strings.Split(enum, ",")
	}
	return out
}

// parseLimit returns the number in a tag, 0 without the tag.
func parseLimit(f reflect.StructField, tag string) int {
	text, found := f.Tag.Lookup(tag)
	if !found {
		return 0
	}
	number, err := strconv.Atoi(text)
	if err != nil {
		panic(fmt.Sprintf("field %s: tag %s: %v", f.Name, tag, err))
	}
	return number
}

// Values returns the settings of a kind by name.
func (c Config) Values(k Kind) map[string]any {
	out, v := map[string]any{}, reflect.ValueOf(c)
	for _, f := range k.Fields() {
		out[f.Name] = v.FieldByIndex(f.index).Interface()
	}
	return out
}

// checkTags returns the problems of values that break the tags of their fields.
func (k Kind) checkTags(c Config) (problems []FieldError) {
	note := func(prefix string, of reflect.Value, fields []Field) {
		for _, f := range fields {
			if problem := f.checkValue(of.FieldByIndex(f.index)); problem != "" {
				problems = append(problems, FieldError{prefix + f.Name, problem})
			}
		}
	}
	note("", reflect.ValueOf(c), k.Fields())
	if c.Retry != nil {
		note("retry.", reflect.ValueOf(*c.Retry), RetryFields())
	}
	return problems
}

// checkValue returns the problem of a value, or "". It accepts a missing value.
func (f Field) checkValue(v reflect.Value) string {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	switch {
	case v.Kind() == reflect.Int && (f.Min != 0 || f.Max != 0) && (v.Int() < int64(f.Min) || v.Int() > int64(f.Max)):
		return fmt.Sprintf("must be %d to %d", f.Min, f.Max)
	case v.Kind() == reflect.String && v.Len() > 0 && f.Enum != nil && !slices.Contains(f.Enum, v.String()):
		return "must be " + joinNames(f.Enum, "or")
	case v.Kind() == reflect.String && f.MaxLength > 0 && utf8.RuneCountInString(v.String()) > f.MaxLength:
		return fmt.Sprintf("must have at most %d characters", f.MaxLength)
	case v.Kind() == reflect.Slice && f.MaxItems > 0 && v.Len() > f.MaxItems:
		return fmt.Sprintf("must have at most %d items", f.MaxItems)
	}
	return ""
}
