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

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// output is the format of a command's result: text for people, or the response of the REST API.
type output string

// Formats of an output.
const (
	outputText output = ""
	outputJSON output = "json"
	outputYAML output = "yaml"
)

func (o *output) bindFlags(flags *pflag.FlagSet) {
	flags.VarP(o, "output", "o", "print the response of the REST API as json or yaml instead of text")
}

func (o *output) String() string { return string(*o) }

// Set accepts json and yaml.
func (o *output) Set(text string) error {
	if *o = output(text); *o != outputJSON && *o != outputYAML {
		return errors.New("must be json or yaml")
	}
	return nil
}

// Type names the kind of value in the help.
func (o *output) Type() string { return "format" }

// printValue writes a value as JSON or YAML, with escapes for characters that are not printable.
func (o *output) printValue(out io.Writer, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	shown := printableJSON(text) + "\n"
	if err == nil && *o == outputYAML {
		shown, err = convertToYAML(text)
	}
	if err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	_, err = io.WriteString(out, shown)
	return err
}

// convertToYAML converts JSON to YAML.
func convertToYAML(text []byte) (string, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return "", err
	}
	root, err := newYAMLNode(value)
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

// newYAMLNode returns a JSON value as a YAML node. Texts that need escapes are in double quotes.
func newYAMLNode(value any) (*yaml.Node, error) {
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
		of, err := newYAMLNode(part)
		if err != nil {
			return nil, err
		}
		node.Content = append(node.Content, of)
	}
	return node, nil
}

// statusColors are the colors of statuses.
var statusColors = map[string]color{
	"live": green, "deployed": green, "completed": green, "pending": yellow, "building": yellow, "running": yellow, "queued": yellow,
	"failed": red, "cancelled": red,
}

// paintStatus colors a status on a terminal, unless NO_COLOR is set.
func paintStatus(out io.Writer, word string) string {
	code, ok := statusColors[word]
	if !ok {
		return word
	}
	return paintAs(out, code, word)
}

// formatAge returns the time since a moment, in at most two units; "-" for nil.
func formatAge(now time.Time, at *time.Time) string {
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

// outcomeError reports that the command did its work, but the result is a failure. The command then has an exit code of its own.
type outcomeError struct{ text string }

func (e *outcomeError) Error() string { return e.text }

// Exit codes.
const (
	// exitFailed means that the command failed.
	exitFailed = 1
	// exitOutcome means that the command succeeded, and that its subject failed. setOutcome declares the meaning.
	exitOutcome = 2
)

func exitCode(err error) int {
	var outcome *outcomeError
	if errors.As(err, &outcome) {
		return exitOutcome
	}
	return exitFailed
}

// outcomeAnnotation is the annotation of a command with the meaning of exit code 2.
const outcomeAnnotation = "outcome"

// setOutcome declares the meaning of exit code 2 of a command, for its help and for the reference.
func setOutcome(cmd *cobra.Command, meaning string) {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[outcomeAnnotation] = meaning
	cmd.Long += fmt.Sprintf("\n\nExit code %d means that %s.\nExit code %d means that the command failed.", exitOutcome, meaning, exitFailed)
}
