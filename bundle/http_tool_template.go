// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/agentplatform/agentplatform/internal/excerpt"
)

// Template is a text with placeholders: {name} is the value of an argument, ${NAME} the value of a variable of the
// environment. {{, }} and $${ are literal {, } and ${, and a } outside of placeholders is literal. The zero value is the
// empty text.
type Template []TemplatePart

// TemplatePart is a literal text, or a placeholder if Argument or Variable is set.
type TemplatePart struct{ Text, Argument, Variable string }

// argumentName is the form of the name of a tool's parameter.
var argumentName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]{0,63}$`)

// errBrace means that a template has a brace that begins no placeholder.
var errBrace = errors.New("has a { that begins no placeholder; write {name} or ${NAME}, or {{ and }} for literal braces")

// ParseTemplate parses a text with placeholders.
func ParseTemplate(text string) (Template, error) {
	var out Template
	var literal strings.Builder
	flush := func() {
		if literal.Len() > 0 {
			out = append(out, TemplatePart{Text: literal.String()})
			literal.Reset()
		}
	}
	for text != "" {
		at := strings.IndexAny(text, "{}$")
		if at < 0 {
			literal.WriteString(text)
			break
		}
		literal.WriteString(text[:at])
		text = text[at:]
		switch {
		case strings.HasPrefix(text, "{{"), strings.HasPrefix(text, "}}"):
			literal.WriteByte(text[0])
			text = text[len("{{"):]
		case strings.HasPrefix(text, "$${"):
			literal.WriteString("${")
			text = text[len("$${"):]
		case text[0] == '}', text[0] == '$' && !strings.HasPrefix(text, "${"):
			literal.WriteByte(text[0])
			text = text[1:]
		default:
			part, rest, err := parsePlaceholder(text)
			if err != nil {
				return nil, err
			}
			flush()
			out, text = append(out, part), rest
		}
	}
	flush()
	return out, nil
}

// parsePlaceholder parses the placeholder at the start of a text.
func parsePlaceholder(text string) (part TemplatePart, rest string, err error) {
	inside, rest, closed := strings.Cut(text, "}")
	name, isVariable := strings.CutPrefix(inside, "${")
	if !isVariable {
		name = strings.TrimPrefix(inside, "{")
	}
	switch {
	case !closed:
		return part, "", errBrace
	case isVariable && !VariableName.MatchString(name):
		return part, "", fmt.Errorf("has ${%s}: the name of a variable has capital letters, digits and _, and no digit first", shortName(name))
	case isVariable:
		return TemplatePart{Variable: name}, rest, nil
	case !argumentName.MatchString(name):
		return part, "", errBrace
	}
	return TemplatePart{Argument: name}, rest, nil
}

// shortName returns a text that is short enough for a problem.
func shortName(name string) string {
	return escapePath(excerpt.Of(name, maxName, excerpt.Ellipsis))
}

// OnlyArgument returns the argument whose value is the whole text, "" if there is none.
func (t Template) OnlyArgument() string {
	if len(t) != 1 {
		return ""
	}
	return t[0].Argument
}

// Arguments returns the names of the arguments, each once.
func (t Template) Arguments() (names []string) {
	for _, part := range t {
		if part.Argument != "" && !slices.Contains(names, part.Argument) {
			names = append(names, part.Argument)
		}
	}
	return names
}

// hasVariable reports whether the template has a variable.
func (t Template) hasVariable() bool {
	return slices.ContainsFunc(t, func(part TemplatePart) bool { return part.Variable != "" })
}

// literalText returns the text with a stand-in for each placeholder.
func (t Template) literalText(standIn string) string {
	var out strings.Builder
	for _, part := range t {
		if part.Text == "" {
			part.Text = standIn
		}
		out.WriteString(part.Text)
	}
	return out.String()
}
