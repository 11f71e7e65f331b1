// SPDX-License-Identifier: Apache-2.0

package search

import (
	"unicode/utf8"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// require notes what a condition asks of each run that it is true of. Only what is joined by
// && is looked at: each part of that must be true.
func (q *Query) require(e ast.Expr) {
	if e.Kind() != ast.CallKind {
		return
	}
	call := e.AsCall()
	args := call.Args()
	switch call.FunctionName() {
	case operators.LogicalAnd:
		for _, part := range args {
			q.require(part)
		}
	case operators.Equals:
		q.equal(args[0], args[1])
		q.equal(args[1], args[0])
	case operators.In:
		if text, ok := textOf(args[0]); ok && rootOf(args[1]) == "input" {
			q.Words = append(q.Words, appendWords(nil, text)...)
		}
	case "contains", "startsWith", "endsWith":
		if !call.IsMemberFunction() || len(args) != 1 || !hasWords(call.Target()) {
			return
		}
		if text, ok := textOf(args[0]); ok {
			q.Words = append(q.Words, inner(text, call.FunctionName() != "startsWith", call.FunctionName() != "endsWith")...)
		}
	}
}

// equal notes that something has the value that a text is.
func (q *Query) equal(of, value ast.Expr) {
	text, ok := textOf(value)
	if !ok {
		return
	}
	if hasWords(of) {
		q.Words = append(q.Words, appendWords(nil, text)...)
	}
	if name := nameOf(of); name == "agent_name" || name == "test_name" || name == "status" {
		q.Equal[name] = text
	}
}

// hasWords says whether the words of a value are the run's: the output, an error, and what is in
// the input.
func hasWords(e ast.Expr) bool {
	name := nameOf(e)
	return name == "output" || name == "error" || name == "error_code" || rootOf(e) == "input"
}

// nameOf is the variable that an expression is, "" of another one.
func nameOf(e ast.Expr) string {
	if e.Kind() == ast.IdentKind {
		return e.AsIdent()
	}
	return ""
}

// rootOf is the variable of which an expression is a part, however deep, "" of another one.
func rootOf(e ast.Expr) string {
	for {
		switch {
		case e.Kind() == ast.SelectKind && !e.AsSelect().IsTestOnly():
			e = e.AsSelect().Operand()
		case e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.Index:
			e = e.AsCall().Args()[0]
		default:
			return nameOf(e)
		}
	}
}

// textOf is the text that an expression is.
func textOf(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	text, ok := e.AsLiteral().Value().(string)
	_, isText := e.AsLiteral().(types.String)
	return text, ok && isText
}

// inner are the words of a part of a text, but those that may be parts of longer ones: the first
// where the text may begin before, the last where it may go on.
func inner(text string, before, after bool) []string {
	words := appendWords(nil, text)
	if first, _ := utf8.DecodeRuneInString(text); before && len(words) > 0 && inWord(first) {
		words = words[1:]
	}
	if last, _ := utf8.DecodeLastRuneInString(text); after && len(words) > 0 && inWord(last) {
		words = words[:len(words)-1]
	}
	return words
}
