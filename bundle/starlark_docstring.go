// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"regexp"
	"strings"
)

var (
	parameterName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	schemaName    = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
)

// docstring is the description of a tool for models.
type docstring struct {
	// description is the first paragraph on one line.
	description string
	args        map[string]*docArgument
	idempotent  bool
	// schema is the name in the line "Schema: NAME", "" without one.
	schema   string
	schemaAt Position
	problems Problems
}

// docLine is a line of a docstring without its indentation.
type docLine struct {
	text   string
	indent int
	at     Position
}

// parseDocstring parses the text of a docstring that begins at a position. The first paragraph is the description. The
// section Args has a line for each parameter:
//
//	order_id (string, pattern "^A[0-9]{5}$"): Number of the order.
//
// A line that is indented further continues the text. Other sections have no meaning.
func parseDocstring(text string, at Position) *docstring {
	d := &docstring{args: map[string]*docArgument{}}
	lines := splitDocstring(text, at)
	paragraph, inArgs := true, false
	var description []string
	var current *docArgument
	for i, line := range lines {
		key, value, isKey := strings.Cut(line.text, ":")
		value = strings.TrimSpace(value)
		atMargin := line.indent == 0 || i == 0
		switch {
		case line.text == "":
			paragraph = paragraph && len(description) == 0
		case atMargin && isKey && key == "Args" && value == "":
			paragraph, inArgs, current = false, true, nil
		case atMargin && isKey && key == "Idempotent":
			paragraph, inArgs = false, false
			d.setIdempotent(line.at, value)
		case atMargin && isKey && key == "Schema":
			paragraph, inArgs = false, false
			d.setSchema(line.at, value)
		case atMargin && !paragraph:
			inArgs = false
		case paragraph:
			description = append(description, line.text)
		case inArgs:
			current = d.addArgument(line, current)
		}
	}
	d.description = strings.Join(description, " ")
	return d
}

// splitDocstring returns the lines of a docstring. Like Python it removes the indentation that all lines but the first
// have in common.
func splitDocstring(text string, at Position) (lines []docLine) {
	common := -1
	for i, raw := range strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n") {
		trimmed := strings.TrimLeft(raw, " \t")
		line := docLine{text: strings.TrimRight(trimmed, " \t\r"), indent: len(raw) - len(trimmed), at: at}
		if i > 0 {
			line.at.Line, line.at.Column = at.Line+i, line.indent+1
			if line.text != "" && (common < 0 || line.indent < common) {
				common = line.indent
			}
		}
		lines = append(lines, line)
	}
	for i := range lines[1:] {
		lines[i+1].indent -= max(common, 0)
	}
	return lines
}

func (d *docstring) setIdempotent(at Position, value string) {
	switch value {
	case "yes", "no":
		d.idempotent = value == "yes"
	default:
		d.problems.add(at, "Idempotent must be yes or no")
	}
}

func (d *docstring) setSchema(at Position, value string) {
	if !schemaName.MatchString(value) {
		d.problems.add(at, "Schema must be the name of a file in schemas/, without .json")
		return
	}
	d.schema, d.schemaAt = value, at
}

// addArgument parses a line of the section Args, or adds it to the argument that it continues.
func (d *docstring) addArgument(line docLine, current *docArgument) *docArgument {
	if current != nil && line.indent > current.indent {
		current.doc = strings.TrimSpace(current.doc + " " + line.text)
		return current
	}
	a, problem := parseArgument(line)
	if problem != "" {
		d.problems.add(line.at, "%s", problem)
	}
	if a == nil {
		return current
	}
	a.invalid = problem != ""
	if d.args[a.name] != nil {
		d.problems.add(line.at, "parameter %s has two lines; remove one", a.name)
	}
	d.args[a.name] = a
	return a
}
