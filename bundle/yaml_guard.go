// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"fmt"

	"github.com/goccy/go-yaml/token"
)

// Bounds of one YAML file before it is parsed: the parser's cost grows with the
// square of some of them, and its stack with others.
const (
	// maxKeys is the most keys of one map.
	maxKeys = 1000
	// maxStarts is the most values that begin inside each other in one line.
	maxStarts = maxDepth
	// maxLineKeys is the most keys of one line outside of brackets.
	maxLineKeys = 16
	// maxReferences is the most anchors and aliases.
	maxReferences = 1000
)

// guard looks at the tokens of a file before the recursive parser sees them. It
// knows no grammar, so it may count what the parser would refuse anyway. Nesting
// by indentation costs the square of its depth in bytes and is left to the converter.
type guard struct {
	flow  int   // open brackets
	keys  []int // of the map at each flow depth; keys[0] is not used
	line  int
	start int // values that begin in this line
	pairs int // keys of this line outside of brackets
	// columns are the keys of the map that begins in each column outside of
	// brackets; what begins further left ends it.
	columns    map[int]int
	references int
	headers    int
}

// guarded finds the first token that is beyond a bound; "" when none is.
func guarded(file string, tokens token.Tokens) (Position, string) {
	g := guard{keys: make([]int, maxDepth+2), columns: map[int]int{}}
	for _, tk := range tokens {
		if message := g.next(tk); message != "" {
			return Position{File: file, Line: tk.Position.Line, Column: tk.Position.Column}, message
		}
	}
	return Position{}, ""
}

func (g *guard) next(tk *token.Token) string {
	if tk.Position.Line != g.line {
		g.line, g.start, g.pairs = tk.Position.Line, 0, 0
	}
	switch tk.Type {
	case token.MappingStartType, token.SequenceStartType:
		if g.flow++; g.flow <= maxDepth {
			g.keys[g.flow] = 0
		}
	case token.MappingEndType, token.SequenceEndType:
		g.flow = max(g.flow-1, 0)
	case token.SequenceEntryType:
		g.start++
		g.leave(tk.Position.Column)
	case token.MappingKeyType, token.TagType:
		g.start++
	case token.AnchorType:
		g.start++
		g.references++
	case token.AliasType:
		g.references++
	case token.MappingValueType:
		return g.key(tk)
	case token.DocumentHeaderType:
		g.headers++
		clear(g.columns)
	default:
	}
	switch {
	case g.flow > maxDepth, g.flow == 0 && g.start > maxStarts:
		return fmt.Sprintf("nested deeper than %d levels", maxDepth)
	case g.references > maxReferences:
		return fmt.Sprintf("more than %d anchors and aliases", maxReferences)
	case g.headers > 2:
		return "second document; a file holds one"
	}
	return ""
}

// key counts a key by the colon after it.
func (g *guard) key(colon *token.Token) string {
	count := 0
	if g.flow > 0 {
		g.keys[g.flow]++
		count = g.keys[g.flow]
	} else {
		if g.pairs++; g.pairs > maxLineKeys {
			return fmt.Sprintf("more than %d keys in one line; write each into a line of its own", maxLineKeys)
		}
		column := colon.Position.Column
		if colon.Prev != nil && colon.Prev.Position.Line == colon.Position.Line {
			column = colon.Prev.Position.Column
		}
		g.leave(column)
		g.columns[column]++
		count = g.columns[column]
	}
	if count > maxKeys {
		return fmt.Sprintf("more than %d keys in one map", maxKeys)
	}
	return ""
}

// leave forgets the maps that begin to the right of a column.
func (g *guard) leave(column int) {
	for c := range g.columns {
		if c > column {
			delete(g.columns, c)
		}
	}
}
