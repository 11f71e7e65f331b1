// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/term"
)

// terminal is the one way to a terminal. Tenants and senders of webhooks choose much of the text that
// commands show. So it escapes all characters that are not printable: control characters (C0 and C1),
// and invisible characters, for example marks that change the direction of text. Line breaks, tabs and the
// sequences of control pass.
type terminal struct{ out io.Writer }

// newOutput returns the writer for a file of the process: a terminal if the file is one.
func newOutput(file *os.File) io.Writer {
	if term.IsTerminal(int(file.Fd())) {
		return &terminal{file}
	}
	return file
}

// isTerminal reports whether out shows colors, and lines that replace themselves.
func isTerminal(out io.Writer) bool {
	_, ok := out.(*terminal)
	return ok
}

// keyboard is standard input if it is a terminal.
type keyboard struct{ *os.File }

// newInput returns the reader for a file of the process: a keyboard if the file is a terminal.
func newInput(file *os.File) io.Reader {
	if term.IsTerminal(int(file.Fd())) {
		return &keyboard{file}
	}
	return file
}

// confirm asks a question, and returns an error unless the answer is yes. Without a keyboard it does not ask.
func confirm(in io.Reader, messages io.Writer, question string) error {
	if _, person := in.(*keyboard); !person {
		return nil
	}
	fmt.Fprintf(messages, "%s [y/N] ", question)
	var answer string
	_, _ = fmt.Fscanln(in, &answer) // No answer means no.
	if answer = strings.ToLower(answer); answer != "y" && answer != "yes" {
		return errors.New("nothing was changed; answer y, or give --yes")
	}
	return nil
}

// mark delimits a terminal sequence. No UTF-8 text has this byte, so no response of the REST API has it. text/tabwriter does
// not count the text between two marks.
const mark = "\xff"

// control returns a terminal sequence that is given without its ESC.
func control(sequence string) string { return mark + sequence + mark }

// sequences matches the permitted sequences: colors, the column of the cursor, and clearing the rest of its line.
var sequences = regexp.MustCompile(`^\[[0-9]*[mGK]$`)

func (t *terminal) Write(p []byte) (int, error) {
	var shown strings.Builder
	rest := string(p)
	for {
		before, marked, found := strings.Cut(rest, mark)
		shown.WriteString(printableLines(before))
		if !found {
			break
		}
		sequence, after, closed := strings.Cut(marked, mark)
		if closed && sequences.MatchString(sequence) {
			shown.WriteString("\x1b" + sequence)
			rest = after
			continue
		}
		shown.WriteString(printableLines(mark))
		rest = marked
	}
	if _, err := io.WriteString(t.out, shown.String()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// printable returns text on one line, with escapes for characters that are not printable.
func printable(text string) string { return escapeText(text, "", escapeRune) }

// printableLines is printable, but keeps line breaks and tabs.
func printableLines(text string) string { return escapeText(text, "\n\t", escapeRune) }

// printableJSON is printableLines for JSON and keeps its meaning: JSON has line breaks outside of strings only, and characters
// that are not printable inside of strings only. As in encoding/json, a byte that is not UTF-8 becomes U+FFFD, because JSON has no
// escape for it.
func printableJSON(text []byte) string {
	return escapeText(string([]rune(string(text))), "\n\t", escapeJSON)
}

// jsonLine returns JSON on one line, and other text as printable does.
func jsonLine(text []byte) string {
	var line bytes.Buffer
	if json.Compact(&line, text) != nil {
		return printable(strings.TrimSpace(string(text)))
	}
	return printableJSON(line.Bytes())
}

// escapeText replaces the characters that are neither printable nor allowed. A byte that is not UTF-8 becomes an escape such as \xff.
func escapeText(text, allowed string, escape func(c rune) string) string {
	var out strings.Builder
	for len(text) > 0 {
		c, size := utf8.DecodeRuneInString(text)
		switch {
		case c == utf8.RuneError && size == 1:
			fmt.Fprintf(&out, `\x%02x`, text[0])
		case unicode.IsGraphic(c) || strings.ContainsRune(allowed, c):
			out.WriteString(text[:size])
		default:
			out.WriteString(escape(c))
		}
		text = text[size:]
	}
	return out.String()
}

// escapeRune returns the escape of a character in Go and in YAML.
func escapeRune(c rune) string {
	switch {
	case c == '\n':
		return `\n`
	case c == '\r':
		return `\r`
	case c == '\t':
		return `\t`
	case c > 0xffff:
		return fmt.Sprintf(`\U%08x`, c)
	}
	return fmt.Sprintf(`\u%04x`, c)
}

// escapeJSON returns the escape of a character in JSON.
func escapeJSON(c rune) string {
	if high, low := utf16.EncodeRune(c); high != utf8.RuneError {
		return escapeRune(high) + escapeRune(low)
	}
	return escapeRune(c)
}

// color is the parameter of a terminal sequence: a color, or bold.
type color string

const (
	green  color = "32"
	yellow color = "33"
	red    color = "31"
	gray   color = "90"
	bold   color = "1"
)

// paintAs colors text on a terminal, unless NO_COLOR is set.
func paintAs(out io.Writer, c color, text string) string {
	if os.Getenv("NO_COLOR") != "" || !isTerminal(out) {
		return text
	}
	return control("["+string(c)+"m") + text + control("[0m")
}
