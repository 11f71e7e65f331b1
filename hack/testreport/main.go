// SPDX-License-Identifier: Apache-2.0

// Command testreport reads what `go test -json` prints from standard input,
// shows each package with its time and the output of what failed, and ends
// with the number of tests that passed, failed and were skipped. It fails when
// one failed or was skipped, and when none ran.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
)

// event is a line of `go test -json` (see `go doc test2json`).
type event struct {
	Action, Package, Test, ImportPath, Output string
	Elapsed                                   float64 // seconds
}

// tally counts tests and keeps the output of those that have not passed.
type tally struct {
	passed, failed, skipped int
	output                  map[string][]string
}

func main() {
	t := &tally{output: map[string][]string{}}
	if err := t.read(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(2)
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", t.passed, t.failed, t.skipped)
	if t.failed > 0 || t.skipped > 0 || t.passed == 0 {
		os.Exit(1)
	}
}

func (t *tally) read(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			fmt.Fprintln(out, lines.Text()) // not of the tests but of the tool
			continue
		}
		t.take(e, out)
	}
	return lines.Err()
}

func (t *tally) take(e event, out io.Writer) {
	name := e.Package + e.ImportPath + " " + e.Test
	switch e.Action {
	case "output", "build-output":
		t.output[name] = append(t.output[name], e.Output)
	case "build-fail":
		t.failed++
		t.show(name, out)
	case "pass":
		t.end(e, &t.passed, "ok", out)
		delete(t.output, name)
	case "fail":
		t.end(e, &t.failed, "FAILED", out)
		t.show(name, out)
	case "skip":
		if e.Test != "" { // a package without tests is no skipped test
			t.skipped++
			fmt.Fprintf(out, "SKIPPED %s %s\n", e.Package, e.Test)
			t.show(name, out)
		}
	}
}

// end counts a test, or prints the line of a package.
func (t *tally) end(e event, count *int, word string, out io.Writer) {
	if e.Test != "" {
		*count++
		return
	}
	if word != "ok" {
		t.failed++
	}
	fmt.Fprintf(out, "%-6s %6.1fs %s\n", word, e.Elapsed, e.Package)
}

func (t *tally) show(name string, out io.Writer) {
	fmt.Fprintf(out, "--- %s\n%s\n", name, strings.Join(t.output[name], ""))
	delete(t.output, name)
}
