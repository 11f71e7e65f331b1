// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// Unsupported returns the problems of keys, values and folders that this release rejects. A build fails for them: a
// guardrail that is silently left out would be worse.
func (p *Project) Unsupported() (problems Problems) {
	for _, a := range p.Agents {
		problems.addUnsupported(a.source, reflect.TypeOf(a), "")
	}
	for _, c := range p.Connectors {
		problems = append(problems, c.Unsupported()...)
	}
	for _, s := range p.Suites {
		problems.addUnsupported(s.source, reflect.TypeOf(s), "")
	}
	for _, file := range p.Files.Paths() {
		folder, _, _ := strings.Cut(file, "/")
		switch f := folderOf(folder); {
		case f == nil:
		case f.unsupported:
			problems.add(Position{File: file}, "the folder %s is not supported by this release; remove it", folder)
		}
	}
	return problems
}

// addUnsupported reports the unsupported keys and values of a node that is decoded into a Go type. The problem of a key
// covers its value: the remedy is to remove the key, so problems inside the value do not matter.
func (ps *Problems) addUnsupported(n *node, t reflect.Type, path string) {
	switch t.Kind() {
	case reflect.Pointer:
		ps.addUnsupported(n, t.Elem(), path)
	case reflect.Slice:
		for i, item := range n.items {
			ps.addUnsupported(item, t.Elem(), fmt.Sprintf("%s[%d]", path, i))
		}
	case reflect.Struct:
		fields := fieldsOf(t)
		for _, e := range n.entries {
			if f := fields.byName[e.key]; f != nil && !e.value.isNull() {
				ps.addUnsupportedField(e, f, joinPath(path, e.key))
			}
		}
	}
}

func (ps *Problems) addUnsupportedField(e entry, f *field, path string) {
	text, _ := e.value.scalar.(string)
	switch {
	case f.unsupported:
		problem := Problem{Position: e.pos, Message: unsupportedMessage(path)}
		problem.end = e.value.endPosition(e.pos)
		ps.append(problem)
	case text != "" && slices.Contains(f.unsupportedValues, text):
		ps.add(e.value.pos, "%q: %s is not supported by this release; use %s", path, text, strings.Join(f.supportedEnum(), " or "))
	default:
		ps.addUnsupported(e.value, f.goType, path)
	}
}

// unsupportedMessage is the problem of a key that this release does not support.
func unsupportedMessage(path string) string {
	return fmt.Sprintf("%q is not supported by this release; remove it", path)
}

// last returns the position furthest down in a value, in the file of a position and not before it.
func (n *node) endPosition(from Position) Position {
	if n.pos.File == from.File && comparePositions(n.pos, from) > 0 {
		from = n.pos
	}
	for _, item := range n.items {
		from = item.endPosition(from)
	}
	for _, e := range n.entries {
		if e.pos.File == from.File && comparePositions(e.pos, from) > 0 {
			from = e.pos
		}
		from = e.value.endPosition(from)
	}
	return from
}

// covers reports whether a position is inside the value that a problem is about.
func (p Problem) covers(at Position) bool {
	return p.end.File != "" && p.File == at.File && comparePositions(p.Position, at) <= 0 && comparePositions(at, p.end) <= 0
}

// comparePositions orders positions of one file.
func comparePositions(a, b Position) int {
	return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
}
