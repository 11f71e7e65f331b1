// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Position is a place in a file of a repository. Line and Column count from 1;
// Line is 0 when the whole file is meant.
type Position struct {
	File   string `json:"file"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
}

// String is file:line:column, or the file alone.
func (p Position) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// Problem is something wrong with a file, with the remedy in its message.
type Problem struct {
	Position
	Message string `json:"message"`
	// end is the last place that the problem is about, if it is about more than one.
	end Position
}

// String is file:line:column: message.
func (p Problem) String() string { return p.Position.String() + ": " + p.Message }

// Problems are all that is wrong with a repository, in the order of files and
// lines. As an error it lists them, one a line.
type Problems []Problem

// Error lists the problems, one a line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// add records a problem once: a default that is folded into many files is
// reported a single time.
func (ps *Problems) add(at Position, format string, args ...any) {
	p := Problem{Position: at, Message: fmt.Sprintf(format, args...)}
	if len(*ps) < maxProblems && !slices.Contains(*ps, p) {
		*ps = append(*ps, p)
	}
}

// With are the problems with more, in order. Of a place that something is wrong with already,
// what else is wrong there is said when that is mended: mostly it is the same mistake. One of more that is about
// all of a value, which is to be removed, takes the place of what is wrong inside.
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

// err returns the problems in order, or nil without any.
func (ps Problems) err() error {
	if len(ps) == 0 {
		return nil
	}
	ps.sort()
	return ps
}

// sort puts problems in the order of files and lines.
func (ps Problems) sort() {
	slices.SortStableFunc(ps, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}
