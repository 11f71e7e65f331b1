// SPDX-License-Identifier: Apache-2.0

// Command testreport reads the output of `go test -json` from standard input. It prints each
// package with its time, the output of failed tests, the slowest tests, and the number of tests
// that passed, failed and were skipped. It exits with 1 if a test failed or was skipped, or if no
// test ran.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// event is a line of `go test -json` (see `go doc test2json`).
type event struct {
	Action, Package, Test, ImportPath, Output string
	Elapsed                                   float64 // seconds
}

// tally counts tests and keeps the output of tests that have not passed.
type tally struct {
	passed, failed, skipped int
	output                  map[string][]string
	ended                   []event // top-level tests, and subtests of conformance suites
}

func main() {
	slowest := flag.Int("slowest", 0, "number of slow tests to list")
	flag.Parse()
	t := &tally{output: map[string][]string{}}
	if err := t.readEvents(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(2)
	}
	t.listSlowest(*slowest, os.Stdout)
	fmt.Printf("%d passed, %d failed, %d skipped\n", t.passed, t.failed, t.skipped)
	if t.failed > 0 || t.skipped > 0 || t.passed == 0 {
		os.Exit(1)
	}
}

func (t *tally) readEvents(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			fmt.Fprintln(out, lines.Text()) // a message of the go command
			continue
		}
		t.countEvent(e, out)
	}
	return lines.Err()
}

func (t *tally) countEvent(e event, out io.Writer) {
	name := e.Package + e.ImportPath + " " + e.Test
	switch e.Action {
	case "output", "build-output":
		t.output[name] = append(t.output[name], e.Output)
	case "build-fail":
		t.failed++
		t.printOutput(name, out)
	case "pass":
		t.countEnd(e, &t.passed, "ok", out)
		delete(t.output, name)
	case "fail":
		t.countEnd(e, &t.failed, "FAILED", out)
		t.printOutput(name, out)
	case "skip":
		if e.Test != "" { // a package without tests is no skipped test
			t.skipped++
			fmt.Fprintf(out, "SKIPPED %s %s\n", e.Package, e.Test)
			t.printOutput(name, out)
		}
	}
}

// countEnd counts a test, or prints the line of a package.
func (t *tally) countEnd(e event, count *int, word string, out io.Writer) {
	if e.Test != "" {
		*count++
		t.ended = append(t.ended, e)
		return
	}
	if word != "ok" {
		t.failed++
	}
	cached := ""
	for _, line := range t.output[e.Package+" "] {
		if strings.HasSuffix(strings.TrimSpace(line), "(cached)") {
			cached = " (cached)"
		}
	}
	fmt.Fprintf(out, "%-6s %6.1fs %s%s\n", word, e.Elapsed, e.Package, cached)
}

func (t *tally) printOutput(name string, out io.Writer) {
	fmt.Fprintf(out, "--- %s\n%s\n", name, strings.Join(t.output[name], ""))
	delete(t.output, name)
}

// listSlowest prints the tests that took longest. A test with subtests counts them, without
// the wait for parallel ones.
func (t *tally) listSlowest(count int, out io.Writer) {
	if count <= 0 || len(t.ended) == 0 {
		return
	}
	slices.SortStableFunc(t.ended, func(a, b event) int { return cmp.Compare(b.Elapsed, a.Elapsed) })
	fmt.Fprintln(out, "--- the slowest tests")
	for _, e := range t.ended[:min(count, len(t.ended))] {
		fmt.Fprintf(out, "       %6.1fs %s %s\n", e.Elapsed, e.Package, e.Test)
	}
}
