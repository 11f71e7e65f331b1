// SPDX-License-Identifier: Apache-2.0

// Command budget fails where the code outgrows its budget: a file has at most
// 500 lines and nine of ten at most 350, a function at most 60 lines, a method
// named Reconcile at most 45. Generated files do not count; tests do.
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"

	"github.com/agentplatform/agentplatform/hack/internal/source"
)

const (
	maxFile      = 500 // lines
	mostFiles    = 350 // lines, for at least mostShare of the files
	mostShare    = 0.9
	maxFunction  = 60 // lines
	maxReconcile = 45 // lines
)

// measure has the findings of a tree.
type measure struct {
	files, large int
	problems     []string
}

func main() {
	root := "."
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	m, err := measureFiles(root)
	if err != nil {
		fmt.Fprintln(os.Stderr, "budget:", err)
		os.Exit(2)
	}
	if share := 1 - float64(m.large)/float64(m.files); share < mostShare {
		m.problems = append(m.problems, fmt.Sprintf(
			"%.0f %% of the files have at most %d lines; %.0f %% must", 100*share, mostFiles, 100*mostShare))
	}
	for _, p := range m.problems {
		fmt.Fprintln(os.Stderr, p)
	}
	if len(m.problems) > 0 {
		os.Exit(1)
	}
	fmt.Printf("budget: %d files, %d of them over %d lines; within the budget\n", m.files, m.large, mostFiles)
}

func measureFiles(root string) (*measure, error) {
	m := &measure{}
	return m, source.Files(root, ".go", m.measureFile)
}

func (m *measure) measureFile(path string, text []byte) error {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, path, text, parser.ParseComments)
	if err != nil {
		return fmt.Errorf("parsing: %w", err)
	}
	if ast.IsGenerated(parsed) {
		return nil
	}
	m.files++
	lines := bytes.Count(text, []byte("\n"))
	if lines > mostFiles {
		m.large++
	}
	if lines > maxFile {
		m.problems = append(m.problems, fmt.Sprintf("%s: %d lines, at most %d", path, lines, maxFile))
	}
	for _, decl := range parsed.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok {
			m.function(files, fn)
		}
	}
	return nil
}

func (m *measure) function(files *token.FileSet, fn *ast.FuncDecl) {
	at := files.Position(fn.Pos())
	lines, limit := files.Position(fn.End()).Line-at.Line+1, maxFunction
	if fn.Name.Name == "Reconcile" && fn.Recv != nil {
		limit = maxReconcile
	}
	if lines > limit {
		m.problems = append(m.problems, fmt.Sprintf("%s:%d: %s has %d lines, at most %d", at.Filename, at.Line, fn.Name.Name, lines, limit))
	}
}
