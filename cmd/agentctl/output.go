// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// output is how a command writes its result: a table or a line for people, or what the
// REST API says.
type output string

// Forms of an output.
const (
	outputText output = ""
	outputJSON output = "json"
	outputYAML output = "yaml"
)

func (o *output) bind(flags *pflag.FlagSet) {
	flags.VarP(o, "output", "o", "write what the REST API shows, as json or yaml, in place of text for people")
}

// String, Set and Type implement pflag.Value.
func (o *output) String() string { return string(*o) }

// Set takes json and yaml.
func (o *output) Set(text string) error {
	if *o = output(text); *o != outputJSON && *o != outputYAML {
		return errors.New("must be json or yaml")
	}
	return nil
}

// Type is shown in the help.
func (o *output) Type() string { return "format" }

// write writes what the REST API shows, with escapes for what is not printable; of text it is not asked.
func (o *output) write(out io.Writer, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	shown := printableJSON(text) + "\n"
	if err == nil && *o == outputYAML {
		shown, err = yamlOf(text)
	}
	if err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	_, err = io.WriteString(out, shown)
	return err
}

// yamlOf returns JSON as YAML.
func yamlOf(text []byte) (string, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return "", err
	}
	root, err := yamlNode(value)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(root), encoder.Close()); err != nil {
		return "", err
	}
	return printableLines(out.String()), nil
}

// yamlNode returns a value of JSON, with its texts in double quotes where they need escapes.
func yamlNode(value any) (*yaml.Node, error) {
	node := &yaml.Node{}
	var parts []any
	switch v := value.(type) {
	case map[string]any:
		node.Kind = yaml.MappingNode
		for _, key := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, key, v[key])
		}
	case []any:
		node.Kind, parts = yaml.SequenceNode, v
	case json.Number:
		node.Kind, node.Value = yaml.ScalarNode, v.String()
	case string:
		if err := node.Encode(v); err != nil {
			return nil, err
		}
		if printableLines(v) != v {
			node.Style = yaml.DoubleQuotedStyle
		}
	default:
		return node, node.Encode(v)
	}
	for _, part := range parts {
		of, err := yamlNode(part)
		if err != nil {
			return nil, err
		}
		node.Content = append(node.Content, of)
	}
	return node, nil
}

// colours of words that say how something is doing.
var colours = map[string]colour{
	"live": good, "deployed": good, "completed": good, "pending": ongoing, "building": ongoing, "running": ongoing, "queued": ongoing,
	"failed": bad, "cancelled": bad,
}

// paint colours a word on a terminal, unless NO_COLOR is set.
func paint(out io.Writer, word string) string {
	code, ok := colours[word]
	if !ok {
		return word
	}
	return paintAs(out, code, word)
}

// age is how long ago something was, in its two largest units at most; "-" of what
// never was.
func age(now time.Time, at *time.Time) string {
	if at == nil {
		return "-"
	}
	since := max(now.Sub(*at), 0)
	switch {
	case since < time.Minute:
		return fmt.Sprintf("%ds", since/time.Second)
	case since < time.Hour:
		return fmt.Sprintf("%dm", since/time.Minute)
	case since < 48*time.Hour:
		return fmt.Sprintf("%dh%dm", since/time.Hour, since%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd", since/(24*time.Hour))
}

// outcomeError says that what was asked for was done, and has ended badly: the command
// ends with its own code.
type outcomeError struct{ text string }

func (e *outcomeError) Error() string { return e.text }

// Codes with which commands end.
const (
	// exitFailed: it could not be done.
	exitFailed = 1
	// exitOutcome: it was done, and what it began has failed.
	exitOutcome = 2
)

func exitCode(err error) int {
	var outcome *outcomeError
	if errors.As(err, &outcome) {
		return exitOutcome
	}
	return exitFailed
}
