// SPDX-License-Identifier: Apache-2.0

// Package expand replaces variables in texts: ${NAME} is the value of NAME, and $${ is a literal
// ${. Any other $ is literal.
package expand

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// MaxSize limits all texts of an Expansion together, in bytes, because a short text can use a long
// value many times.
const MaxSize = 256 << 10

// ErrMalformed means that ${ is not followed by a name and }.
var ErrMalformed = errors.New("has ${ that is not followed by a variable name and }; write $${ for a literal ${")

// ErrTooLarge means that the result would exceed MaxSize.
var ErrTooLarge = fmt.Errorf("would have more than %d bytes with the values of its variables", MaxSize)

// ErrInKey means that the name of a field contains a variable. Only values can.
var ErrInKey = errors.New("has ${ in the name of a field; variables are allowed only in values")

// reference matches $${, ${NAME}, or an invalid ${.
var reference = regexp.MustCompile(`\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\$\{`)

// Check returns ErrMalformed for text that cannot be expanded with any variables.
func Check(text string) error {
	for _, found := range reference.FindAllString(text, -1) {
		if found == "${" {
			return ErrMalformed
		}
	}
	return nil
}

// Names reports whether text contains variables or an escape.
func Names(text string) bool { return strings.Contains(text, "${") }

// Expansion expands the texts of one object. It continues after errors, so that Missing is
// complete.
type Expansion struct {
	// Lookup returns the value of a variable, or false.
	Lookup func(name string) (string, bool)

	size    int
	missing map[string]bool
}

// Missing returns the names that Lookup does not know, sorted and without duplicates.
func (e *Expansion) Missing() []string { return slices.Sorted(maps.Keys(e.missing)) }

// Text returns the text with the values of variables. It keeps the reference of an unknown
// variable.
func (e *Expansion) Text(text string) (string, error) {
	if !Names(text) {
		return text, e.growSize(len(text))
	}
	var out strings.Builder
	rest := 0
	for _, at := range reference.FindAllStringSubmatchIndex(text, -1) {
		part := text[rest:at[0]]
		switch {
		case at[2] >= 0:
			part += e.variableValue(text[at[2]:at[3]])
		case text[at[0]:at[1]] == "$${":
			part += "${"
		default:
			return "", ErrMalformed
		}
		if err := e.growSize(len(part)); err != nil {
			return "", err
		}
		out.WriteString(part)
		rest = at[1]
	}
	out.WriteString(text[rest:])
	return out.String(), e.growSize(len(text) - rest)
}

// variableValue returns the value of a variable, or the reference to an unknown one.
func (e *Expansion) variableValue(name string) string {
	if value, known := e.Lookup(name); known {
		return value
	}
	if e.missing == nil {
		e.missing = map[string]bool{}
	}
	e.missing[name] = true
	return "${" + name + "}"
}

func (e *Expansion) growSize(by int) error {
	if e.size += by; e.size > MaxSize {
		return ErrTooLarge
	}
	return nil
}

// JSON returns the document with expanded texts at any depth. Numbers keep their digits. It returns
// a document without variables unchanged.
func (e *Expansion) JSON(document []byte) ([]byte, error) {
	if !bytes.Contains(document, []byte("${")) && !bytes.Contains(document, []byte(`\u0024`)) && !bytes.Contains(document, []byte(`\u007`)) {
		return document, e.growSize(len(document))
	}
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("is no JSON: %w", err)
	}
	value, err := e.expandValue(value)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, fmt.Errorf("encoding the expanded document: %w", err)
	}
	return bytes.TrimRight(out.Bytes(), "\n"), nil
}

func (e *Expansion) expandValue(value any) (any, error) {
	var err error
	switch v := value.(type) {
	case string:
		return e.Text(v)
	case []any:
		for i := range v {
			if v[i], err = e.expandValue(v[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if Names(key) {
				return nil, ErrInKey
			}
			if v[key], err = e.expandValue(v[key]); err != nil {
				return nil, err
			}
		}
	}
	return value, nil
}
