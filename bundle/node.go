// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"errors"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// byteOrderMark may begin a file (YAML 1.2.2, 5.2). Windows editors write it.
const byteOrderMark = "\ufeff"

// node is a YAML value with its position. Nodes are immutable and shared: an alias is the node of its anchor, a default
// the node of its file.
type node struct {
	pos     Position
	scalar  any // nil, bool, json.Number or string; unless items or entries
	items   []*node
	entries []entry
	kind    kind
	// weight measures this value and all values inside it: 1 for each value, and 1 for each 64 bytes of text. Each use of
	// an alias counts.
	weight int
}

type entry struct {
	key   string
	pos   Position
	value *node
}

type kind uint8

const (
	kindScalar kind = iota
	kindList
	kindMap
)

func (n *node) isNull() bool { return n.kind == kindScalar && n.scalar == nil }

// hasValue reports whether the node has a key that is not null. A nil node has none.
func (n *node) hasValue(key string) bool {
	if n == nil {
		return false
	}
	e := n.findEntry(key)
	return e != nil && !e.value.isNull()
}

// findEntry returns the entry of a key, or nil.
func (n *node) findEntry(key string) *entry {
	for i := range n.entries {
		if n.entries[i].key == key {
			return &n.entries[i]
		}
	}
	return nil
}

// toValue returns the value that exactjson decodes from the same data.
func (n *node) toValue() any {
	switch n.kind {
	case kindList:
		list := make([]any, len(n.items))
		for i, item := range n.items {
			list[i] = item.toValue()
		}
		return list
	case kindMap:
		m := make(map[string]any, len(n.entries))
		for _, e := range n.entries {
			m[e.key] = e.value.toValue()
		}
		return m
	default:
		return n.scalar
	}
}

// yamlLimits limits a YAML file: its bytes, and the weight of its values.
type yamlLimits struct{ size, nodes int }

// parseYAML parses a file with one document. It returns nil and reports problems if the file is invalid.
func parseYAML(file string, data []byte, problems *Problems) *node {
	return parseYAMLWithin(yamlLimits{size: MaxYAMLSize, nodes: maxNodes}, file, data, problems)
}

// parseYAMLWithin is parseYAML with other limits.
func parseYAMLWithin(limits yamlLimits, file string, data []byte, problems *Problems) *node {
	at := Position{File: file, Line: 1, Column: 1}
	if len(data) > limits.size {
		problems.add(at, "file has %d bytes, at most %d are allowed; split it", len(data), limits.size)
		return nil
	}
	if bad, found := findInvalidUTF8(file, data); found {
		problems.add(bad, "the file is not UTF-8 from here on; save it as UTF-8")
		return nil
	}
	tokens := lexer.Tokenize(strings.TrimPrefix(string(data), byteOrderMark))
	if bad, message := checkTokens(file, tokens); message != "" {
		problems.add(bad, "%s", message)
		return nil
	}
	retypeNumbers(tokens)
	parsed, err := parser.Parse(tokens, 0)
	if err != nil {
		problems.add(syntaxProblem(at, err))
		return nil
	}
	var docs []*ast.DocumentNode
	for _, doc := range parsed.Docs {
		if _, isDirective := doc.Body.(*ast.DirectiveNode); doc.Body != nil && !isDirective {
			docs = append(docs, doc)
		}
	}
	if len(docs) == 0 {
		problems.add(at, "file is empty; write its keys or remove it")
		return nil
	}
	if len(docs) > 1 {
		problems.add(position(file, docs[1].Body), "second document; a file holds one")
		return nil
	}
	c := converter{file: file, problems: problems, limit: limits.nodes, anchors: map[string]*node{}}
	n := c.convert(docs[0].Body, 0)
	if c.failed {
		return nil
	}
	return n
}

// syntaxProblem returns the parser's error without its excerpt of the source.
func syntaxProblem(at Position, err error) (Position, string, string) {
	var (
		syntax  yaml.Error
		message string
	)
	if !errors.As(err, &syntax) {
		message = err.Error()
	} else {
		// Not Error(): it prints the source around the error, at a cost that grows with the square of the line length.
		message = syntax.GetMessage()
		if tk := syntax.GetToken(); tk != nil && tk.Position != nil {
			at.Line, at.Column = tk.Position.Line, tk.Position.Column
		}
	}
	message, _, _ = strings.Cut(message, "\n")
	if strings.Contains(message, "'\t'") {
		message = "a tab cannot indent; indent by spaces"
	}
	for _, unexpected := range []string{"in this context", "non-map value"} { // the parser notices the error late
		if strings.Contains(message, unexpected) {
			message += "; look at the indentation here and in the lines after it, and put a text with a colon in quotes"
		}
	}
	return at, "%s", message
}

func position(file string, n ast.Node) Position {
	if tk := n.GetToken(); tk != nil && tk.Position != nil {
		return Position{File: file, Line: tk.Position.Line, Column: tk.Position.Column}
	}
	return Position{File: file, Line: 1, Column: 1}
}

type converter struct {
	file     string
	problems *Problems
	anchors  map[string]*node
	limit    int // of the weight
	failed   bool
}

func (c *converter) fail(at Position, format string, args ...any) *node {
	c.failed = true
	c.problems.add(at, format, args...)
	return &node{pos: at, weight: 1}
}

func (c *converter) convert(n ast.Node, depth int) *node {
	at := position(c.file, n)
	if depth > maxDepth {
		return c.fail(at, "nested deeper than %d levels", maxDepth)
	}
	var out *node
	switch n := n.(type) {
	case *ast.MappingNode:
		return c.convertMap(at, n.Values, depth)
	case *ast.MappingValueNode:
		return c.convertMap(at, []*ast.MappingValueNode{n}, depth)
	case *ast.SequenceNode:
		out = &node{pos: at, kind: kindList, weight: 1}
		for _, v := range n.Values {
			out.items = append(out.items, c.addWeight(out, c.convert(v, depth+1)))
		}
		return out
	case *ast.AnchorNode:
		out = c.convert(n.Value, depth+1)
		c.anchors[n.Name.GetToken().Value] = out
		return out
	case *ast.AliasNode:
		name := n.Value.GetToken().Value
		if out = c.anchors[name]; out == nil {
			return c.fail(at, "unknown alias %q; write &%s before the value it stands for", name, name)
		}
		return out
	}
	return c.convertScalar(at, n)
}

// addWeight adds the weight of a child, and stops an expansion without limit.
func (c *converter) addWeight(parent, child *node) *node {
	parent.weight += child.weight
	if parent.weight > c.limit {
		parent.weight = c.limit
		if !c.failed {
			c.fail(child.pos, "more than %d values, aliases counted as often as used", c.limit)
		}
	}
	return child
}

func (c *converter) convertMap(at Position, values []*ast.MappingValueNode, depth int) *node {
	out := &node{pos: at, kind: kindMap, weight: 1}
	if len(values) > 0 {
		out.pos = position(c.file, values[0].Key)
	}
	seen := make(map[string]bool, len(values))
	for _, v := range values {
		keyPos := position(c.file, v.Key)
		key, ok := c.convertKey(v.Key)
		switch {
		case !ok:
			c.fail(keyPos, "only plain text can be a key")
			continue
		case seen[key]:
			c.fail(keyPos, "key %q appears twice; keep one", key)
			continue
		}
		seen[key] = true
		out.entries = append(out.entries, entry{key: key, pos: keyPos, value: c.addWeight(out, c.convert(v.Value, depth+1))})
	}
	return out
}

func (c *converter) convertKey(n ast.MapKeyNode) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.BoolNode:
		return n.GetToken().Value, true
	default:
		return "", false
	}
}

func (c *converter) convertScalar(at Position, n ast.Node) *node {
	out := &node{pos: at, weight: 1}
	switch n := n.(type) {
	case *ast.NullNode:
	case *ast.BoolNode:
		out.scalar = n.Value
	case *ast.StringNode:
		out.scalar, out.weight = n.Value, 1+len(n.Value)/64
		if n.Token.Type == token.StringType {
			value, problem := resolveScalar(n.Value)
			if problem != "" {
				return c.fail(at, "%s", problem)
			}
			out.scalar = value
		}
	case *ast.LiteralNode:
		out.scalar, out.weight = n.Value.Value, 1+len(n.Value.Value)/64
	case *ast.TagNode:
		return c.fail(at, "tags such as %q are not supported; write the plain value", n.GetToken().Value)
	default:
		return c.fail(at, "%s is not supported here; write a plain value", strings.ToLower(n.Type().String()))
	}
	return out
}

// findNode returns the value at nested keys, or nil.
func (n *node) findNode(keys ...string) *node {
	for _, key := range keys {
		e := n.findEntry(key)
		if e == nil {
			return nil
		}
		n = e.value
	}
	return n
}

// isWritten reports whether nested keys have a value that is not null.
func (n *node) isWritten(keys ...string) bool {
	found := n.findNode(keys...)
	return found != nil && !found.isNull()
}
