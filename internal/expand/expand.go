// SPDX-License-Identifier: Apache-2.0

// Package expand puts the values of variables into text that names them: ${NAME} is the
// value of NAME, and $${ a plain ${. A $ before anything else is a $.
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

// MaxSize is the most bytes that all texts of an Expansion have together: a short text
// can name a long value many times.
const MaxSize = 256 << 10

// ErrMalformed says that ${ stands before something that is no name.
var ErrMalformed = errors.New("has ${ without the name of a variable and } after it; write $${ where it is meant as it is")

// ErrTooLarge says that there would be more than MaxSize.
var ErrTooLarge = fmt.Errorf("would have more than %d bytes with the values of its variables", MaxSize)

// ErrInKey says that the name of a field holds a variable: only values may.
var ErrInKey = errors.New("has ${ in the name of a field: variables stand in values")

// reference is $${, ${NAME}, or a ${ that is neither.
var reference = regexp.MustCompile(`\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\$\{`)

// Check says ErrMalformed of text that cannot be expanded, whatever the variables.
func Check(text string) error {
	for _, found := range reference.FindAllString(text, -1) {
		if found == "${" {
			return ErrMalformed
		}
	}
	return nil
}

// Names says whether text has something to expand: names of variables, or an escape.
func Names(text string) bool { return strings.Contains(text, "${") }

// Expansion expands the texts of one thing. It goes on after what is wrong, so that
// Missing is all of it.
type Expansion struct {
	// Lookup is the value of a variable; false where there is none.
	Lookup func(name string) (string, bool)

	size    int
	missing map[string]bool
}

// Missing are the names that Lookup does not know, in order, each once.
func (e *Expansion) Missing() []string { return slices.Sorted(maps.Keys(e.missing)) }

// Text is the text with values in place of names. Of a name that Lookup does not know, it
// keeps the reference.
func (e *Expansion) Text(text string) (string, error) {
	if !Names(text) {
		return text, e.grow(len(text))
	}
	var out strings.Builder
	rest := 0
	for _, at := range reference.FindAllStringSubmatchIndex(text, -1) {
		part := text[rest:at[0]]
		switch {
		case at[2] >= 0:
			part += e.value(text[at[2]:at[3]])
		case text[at[0]:at[1]] == "$${":
			part += "${"
		default:
			return "", ErrMalformed
		}
		if err := e.grow(len(part)); err != nil {
			return "", err
		}
		out.WriteString(part)
		rest = at[1]
	}
	out.WriteString(text[rest:])
	return out.String(), e.grow(len(text) - rest)
}

// value is that of a variable, or the reference to one that there is not.
func (e *Expansion) value(name string) string {
	if value, known := e.Lookup(name); known {
		return value
	}
	if e.missing == nil {
		e.missing = map[string]bool{}
	}
	e.missing[name] = true
	return "${" + name + "}"
}

func (e *Expansion) grow(by int) error {
	if e.size += by; e.size > MaxSize {
		return ErrTooLarge
	}
	return nil
}

// JSON is the document with its texts expanded, wherever they stand; numbers stay as they
// are written. A document with nothing to expand is returned as it is.
func (e *Expansion) JSON(document []byte) ([]byte, error) {
	if !bytes.Contains(document, []byte("${")) && !bytes.Contains(document, []byte(`\u0024`)) && !bytes.Contains(document, []byte(`\u007`)) {
		return document, e.grow(len(document))
	}
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, fmt.Errorf("is no JSON: %w", err)
	}
	value, err := e.inside(value)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, fmt.Errorf("writing what was expanded: %w", err)
	}
	return bytes.TrimRight(out.Bytes(), "\n"), nil
}

func (e *Expansion) inside(value any) (any, error) {
	var err error
	switch v := value.(type) {
	case string:
		return e.Text(v)
	case []any:
		for i := range v {
			if v[i], err = e.inside(v[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if Names(key) {
				return nil, ErrInKey
			}
			if v[key], err = e.inside(v[key]); err != nil {
				return nil, err
			}
		}
	}
	return value, nil
}
