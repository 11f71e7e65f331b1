// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"fmt"

	"github.com/goccy/go-yaml/token"
)

// Limits of a YAML file before it is parsed. The cost of the parser grows with the square of some of them, and its stack
// with others.
const (
	// maxKeys is the maximum number of keys in a map.
	maxKeys = 1000
	// maxStarts is the maximum number of nested values that begin in the same line.
	maxStarts = maxDepth
	// maxLineKeys is the maximum number of keys in a line, outside of brackets.
	maxLineKeys = 16
	// maxReferences is the maximum number of anchors and aliases.
	maxReferences = 1000
)

// guard checks the tokens of a file before the recursive parser sees them. It knows no grammar, so it may count tokens
// that the parser would reject. The converter limits nesting by indentation, whose cost in bytes is the square of its
// depth.
type guard struct {
	flow  int   // open brackets
	keys  []int // of the map at each flow depth; keys[0] is unused
	line  int
	start int // values that begin in this line
	pairs int // keys of this line outside of brackets
	// columns counts the keys of the map that begins in each column, outside of brackets. A token further left ends the
	// map.
	columns    map[int]int
	references int
	headers    int
}

// checkTokens returns the first token that exceeds a limit, or "".
func checkTokens(file string, tokens token.Tokens) (Position, string) {
	g := guard{keys: make([]int, maxDepth+2), columns: map[int]int{}}
	for _, tk := range tokens {
		if message := g.checkToken(tk); message != "" {
			return Position{File: file, Line: tk.Position.Line, Column: tk.Position.Column}, message
		}
	}
	return Position{}, ""
}

func (g *guard) checkToken(tk *token.Token) string {
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
		g.closeMaps(tk.Position.Column)
	case token.MappingKeyType, token.TagType:
		g.start++
	case token.AnchorType:
		g.start++
		g.references++
	case token.AliasType:
		g.references++
	case token.MappingValueType:
		return g.countKey(tk)
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

// countKey counts a key when it sees the colon after it.
func (g *guard) countKey(colon *token.Token) string {
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
		g.closeMaps(column)
		g.columns[column]++
		count = g.columns[column]
	}
	if count > maxKeys {
		return fmt.Sprintf("more than %d keys in one map", maxKeys)
	}
	return ""
}

// closeMaps ends the maps that begin to the right of a column.
func (g *guard) closeMaps(column int) {
	for c := range g.columns {
		if c > column {
			delete(g.columns, c)
		}
	}
}
