// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/token"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

var (
	codeBlock  = regexp.MustCompile("(?ms)^[ \t]*```.*?^[ \t]*```[ \t]*$")
	inlineCode = regexp.MustCompile("`[^`\n]*`")
	url        = regexp.MustCompile(`\]\([^)]*\)|https?://\S+`)
	blankLine  = regexp.MustCompile(`\n[ \t]*\n`)
	directive  = regexp.MustCompile(`^(SPDX-|\+\w|nolint|go:|line |export )`)
	statement  = regexp.MustCompile(`\b(SELECT|INSERT|UPDATE|DELETE|CREATE|FROM|WHERE|JOIN|VALUES|SET)\b`)
)

// fewestWords makes a string literal a text: keys, paths and words of an enumeration have fewer.
const fewestWords = 3

// markdownProse returns the paragraphs of a page without code and addresses, each on one line.
func markdownProse(text string) []string {
	return paragraphs(codeBlock.ReplaceAllString(text, "\n"))
}

// commentProse returns the paragraphs of a comment without directives and code, each on one line.
func commentProse(group *ast.CommentGroup) []string {
	var lines []string
	for _, comment := range group.List {
		text := strings.TrimSuffix(strings.TrimPrefix(comment.Text, "/*"), "*/")
		for line := range strings.Lines(text) {
			line = strings.TrimRight(strings.TrimPrefix(strings.TrimLeft(line, " \t"), "//"), "\n")
			switch {
			case directive.MatchString(strings.TrimSpace(line)), strings.HasPrefix(line, "\t"), strings.HasPrefix(line, "    "):
				lines = append(lines, "")
			default:
				lines = append(lines, line)
			}
		}
	}
	return paragraphs(strings.Join(lines, "\n"))
}

// paragraphs splits a text at blank lines and joins the lines of each part.
func paragraphs(text string) (out []string) {
	text = url.ReplaceAllString(inlineCode.ReplaceAllString(text, "·"), " ")
	for _, paragraph := range blankLine.Split(text, -1) {
		if joined := strings.Join(strings.Fields(paragraph), " "); joined != "" {
			out = append(out, joined)
		}
	}
	return out
}

// shownTexts returns the string literals and the doc tags of a file that people read: error texts,
// descriptions, messages and help. SQL statements are left out.
func shownTexts(file *ast.File) (out []string) {
	add := func(text string) {
		if countsAsText(text) {
			out = append(out, paragraphs(text)...)
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Field:
			if n.Tag != nil {
				add(reflect.StructTag(unquote(n.Tag)).Get("doc"))
				n.Tag = nil // not a text by itself
			}
		case *ast.BinaryExpr:
			if n.Op == token.ADD {
				add(foldSum(n))
				return false
			}
		case *ast.BasicLit:
			add(unquote(n))
		}
		return true
	})
	return out
}

// countsAsText reports whether a literal is a text and no key or SQL statement.
func countsAsText(text string) bool {
	return len(word.FindAllString(text, fewestWords)) == fewestWords && !statement.MatchString(text)
}

// foldSum joins the string literals of a sum. A dot stands for each of its other parts.
func foldSum(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BinaryExpr:
		return foldSum(e.X) + foldSum(e.Y)
	case *ast.ParenExpr:
		return foldSum(e.X)
	case *ast.BasicLit:
		return unquote(e)
	default:
		return "·"
	}
}

// unquote returns the value of a string literal, and nothing for other literals.
func unquote(literal *ast.BasicLit) string {
	if literal.Kind != token.STRING {
		return ""
	}
	text, err := strconv.Unquote(literal.Value)
	if err != nil {
		return ""
	}
	return text
}
