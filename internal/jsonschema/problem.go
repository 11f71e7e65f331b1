// SPDX-License-Identifier: Apache-2.0

package jsonschema

import (
	"encoding/json"
	"fmt"
	"math/big"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/agentplatform/agentplatform/internal/excerpt"
)

const (
	// maxProblems limits the reported problems of a value.
	maxProblems = 5
	// maxText limits the part of a problem that a schema or a value determines, in bytes.
	maxText = 200
)

var english = message.NewPrinter(language.English)

// problemsIn returns the problems of an error and its causes.
func problemsIn(e *jsonschema.ValidationError) (problems []string) {
	path := shorten(strings.Join(e.InstanceLocation, "."))
	at := func(name, problem string) {
		if path != "" && name != "" {
			name = path + "." + name
		} else if name == "" {
			name = path
		}
		if name != "" {
			problem = name + ": " + problem
		}
		problems = append(problems, problem)
	}
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		for _, name := range k.Missing[:min(len(k.Missing), maxProblems)] {
			at(shorten(name), "is missing")
		}
	case *kind.AdditionalProperties:
		for _, name := range k.Properties[:min(len(k.Properties), maxProblems)] {
			at(shorten(name), "is unknown; leave it out")
		}
	case *kind.Type:
		at("", fmt.Sprintf("must be of type %s, not %s", strings.Join(k.Want, " or "), k.Got))
	case *kind.Enum:
		at("", "must be one of "+listValues(k.Want))
	case *kind.Const:
		at("", "must be "+listValues([]any{k.Want}))
	case *kind.Minimum:
		at("", "must be at least "+numberText(k.Want))
	case *kind.Maximum:
		at("", "must be at most "+numberText(k.Want))
	case *kind.ExclusiveMinimum:
		at("", "must be more than "+numberText(k.Want))
	case *kind.ExclusiveMaximum:
		at("", "must be less than "+numberText(k.Want))
	case *kind.Pattern:
		at("", "must match the pattern "+shorten(k.Want))
	case *kind.AnyOf, *kind.OneOf:
		at("", "must have one of the forms in the schema")
	default:
		if len(e.Causes) == 0 {
			at("", shorten(e.ErrorKind.LocalizedString(english)))
		}
		for _, cause := range e.Causes {
			problems = append(problems, problemsIn(cause)...)
		}
	}
	return problems
}

// numberText returns a number with its digits, and at most ten of a fraction.
func numberText(number *big.Rat) string {
	const fraction = 10
	if number.IsInt() {
		return shorten(number.Num().String())
	}
	return shorten(strings.TrimRight(number.FloatString(fraction), "0"))
}

// listValues returns values of a schema as JSON.
func listValues(values []any) string {
	text, err := json.Marshal(values)
	if err != nil {
		return "the values in the schema"
	}
	return shorten(strings.TrimSuffix(strings.TrimPrefix(string(text), "["), "]"))
}

// shorten returns a text in one line of limited length.
func shorten(text string) string {
	return excerpt.Of(strings.Join(strings.Fields(text), " "), maxText, excerpt.Ellipsis)
}
