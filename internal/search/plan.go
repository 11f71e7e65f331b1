// SPDX-License-Identifier: Apache-2.0

package search

import (
	"unicode/utf8"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
)

// require records requirements of a condition for each matching run. It checks only parts that are
// joined by &&, because each of them must be true.
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
		q.addEquality(args[0], args[1])
		q.addEquality(args[1], args[0])
	case operators.In:
		if text, ok := stringLiteral(args[0]); ok && isIndexedValue(args[1]) {
			q.Words = append(q.Words, appendWords(nil, text)...)
		}
	case "contains", "startsWith", "endsWith":
		if !call.IsMemberFunction() || len(args) != 1 || !hasWords(call.Target()) {
			return
		}
		if text, ok := stringLiteral(args[0]); ok {
			q.Words = append(q.Words, innerWords(text, call.FunctionName() != "startsWith", call.FunctionName() != "endsWith")...)
		}
	}
}

// addEquality records that a field must have the value of a text.
func (q *Query) addEquality(of, value ast.Expr) {
	text, ok := stringLiteral(value)
	if !ok {
		return
	}
	if hasWords(of) {
		q.Words = append(q.Words, appendWords(nil, text)...)
	}
	if name := variableName(of); name == "agent_name" || name == "test_name" || name == "status" {
		q.Equal[name] = text
	}
}

// hasWords reports whether the words of a value are in the run's index: output, error, and values
// in the input or the context.
func hasWords(e ast.Expr) bool {
	name := variableName(e)
	return name == "output" || name == "error" || name == "error_code" || isIndexedValue(e)
}

// isIndexedValue reports whether an expression is a value in the input, or in the context without the
// headers, which are not in the index.
func isIndexedValue(e ast.Expr) bool {
	root, first := rootVariable(e)
	return root == "input" || root == "context" && first != "" && first != headersName
}

// variableName returns the variable of an expression, or "".
func variableName(e ast.Expr) string {
	if e.Kind() == ast.IdentKind {
		return e.AsIdent()
	}
	return ""
}

// rootVariable returns the variable that an expression is a part of at any depth, or "", and the name of
// the part of the variable, or "" if it is not a literal.
func rootVariable(e ast.Expr) (root, first string) {
	for {
		switch {
		case e.Kind() == ast.SelectKind && !e.AsSelect().IsTestOnly():
			first, e = e.AsSelect().FieldName(), e.AsSelect().Operand()
		case e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.Index:
			first, _ = stringLiteral(e.AsCall().Args()[1])
			e = e.AsCall().Args()[0]
		default:
			return variableName(e), first
		}
	}
}

// stringLiteral returns the string literal of an expression.
func stringLiteral(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	text, ok := e.AsLiteral().Value().(string)
	_, isText := e.AsLiteral().(types.String)
	return text, ok && isText
}

// innerWords returns the words of a part of a text without possibly incomplete ones: the first if the
// text can begin before, the last if it can continue.
func innerWords(text string, before, after bool) []string {
	words := appendWords(nil, text)
	if first, _ := utf8.DecodeRuneInString(text); before && len(words) > 0 && isWordRune(first) {
		words = words[1:]
	}
	if last, _ := utf8.DecodeLastRuneInString(text); after && len(words) > 0 && isWordRune(last) {
		words = words[:len(words)-1]
	}
	return words
}
