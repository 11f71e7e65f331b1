// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/term"
	"sigs.k8s.io/yaml"
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

// write writes what the REST API shows; of text it is not asked.
func (o *output) write(out io.Writer, value any) error {
	text, err := json.MarshalIndent(value, "", "  ")
	if err == nil && *o == outputYAML {
		text, err = yaml.JSONToYAML(text)
	}
	if err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	if *o == outputJSON {
		text = append(text, '\n')
	}
	_, err = out.Write(text)
	return err
}

// colours of words that say how something is doing.
var colours = map[string]string{
	"live": "32", "deployed": "32", "completed": "32", "pending": "33", "building": "33", "running": "33", "queued": "33",
	"failed": "31", "cancelled": "31",
}

// paint colours a word on a terminal, unless NO_COLOR is set.
func paint(out io.Writer, word string) string {
	code, ok := colours[word]
	if !ok || os.Getenv("NO_COLOR") != "" || !isTerminal(out) {
		return word
	}
	return "\x1b[" + code + "m" + word + "\x1b[0m"
}

func isTerminal(out io.Writer) bool {
	file, ok := out.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
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
