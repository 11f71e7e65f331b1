// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Position is a position in a file of a repository. Line and Column count from 1. Line is 0 for the whole file.
type Position struct {
	File   string `json:"file"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
}

// String returns file:line:column, or only the file.
func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Problem is an error in a file, with the remedy in its message.
type Problem struct {
	Position
	Message string `json:"message"`
	// end is the last position of the value that the problem is about, if the problem covers a whole value.
	end Position
}

// String returns file:line:column: message.
func (p Problem) String() string { return p.Position.String() + ": " + p.Message }

// Problems are all problems of a repository, in the order of files and lines.
type Problems []Problem

// Error returns the problems, one a line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// add records a problem once, also if a default with the problem is merged into many files.
func (ps *Problems) add(at Position, format string, args ...any) {
	ps.append(Problem{Position: at, Message: fmt.Sprintf(format, args...)})
}

func (ps *Problems) append(p Problem) {
	if len(*ps) < maxProblems && !slices.Contains(*ps, p) {
		*ps = append(*ps, p)
	}
}

// With returns the problems together with more, in order. It leaves out one of more at a position that has a problem
// already, because mostly both are the same mistake. A problem of more that covers a whole value replaces the problems
// inside the value.
func (ps Problems) With(more Problems) Problems {
	known := make(map[Position]bool, len(ps))
	var out Problems
	for _, p := range ps {
		if !slices.ContainsFunc(more, func(m Problem) bool { return m.covers(p.Position) }) {
			known[p.Position] = true
			out = append(out, p)
		}
	}
	for _, p := range more {
		if !known[p.Position] {
			out = append(out, p)
		}
	}
	out.sort()
	return out
}

// errorOrNil returns the problems in order, or nil without any.
func (ps Problems) errorOrNil() error {
	if len(ps) == 0 {
		return nil
	}
	ps.sort()
	return ps
}

// sort orders problems by file and line.
func (ps Problems) sort() {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}
