// SPDX-License-Identifier: Apache-2.0

// Command subtests fails if a test checks a table of cases without t.Run. In such a test the first
// case that fails hides the others, and no case can run alone.
//
// A table is a map literal, or a slice literal whose elements have a struct type that is written in
// place. The test ranges over the literal, or over a variable that the test or its package declares with the literal. Two
// kinds of loops are no tables:
//   - loops that assert nothing except success, because they prepare a test
//   - loops over a slice whose variable is named step, because each step builds on the steps before
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentplatform/agentplatform/hack/internal/source"
)

func main() {
	root := "."
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	found, err := findTables(root)
	if err != nil {
		fmt.Fprintln(os.Stderr, "subtests:", err)
		os.Exit(2)
	}
	for _, problem := range found {
		fmt.Fprintln(os.Stderr, problem)
	}
	if len(found) > 0 {
		os.Exit(1)
	}
}

func findTables(root string) (found []string, err error) {
	fileSet, packages := token.NewFileSet(), map[string][]*ast.File{} // by folder
	err = source.Files(root, "_test.go", func(path string, text []byte) error {
		file, err := parser.ParseFile(fileSet, path, text, parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("parsing: %w", err)
		}
		folder := filepath.Dir(path)
		packages[folder] = append(packages[folder], file)
		return nil
	})
	for _, folder := range slices.Sorted(maps.Keys(packages)) {
		found = append(found, checkPackage(fileSet, packages[folder])...)
	}
	return found, err
}

// checkPackage returns a problem for each table that a test of the files checks without t.Run.
func checkPackage(fileSet *token.FileSet, files []*ast.File) (problems []string) {
	shared := map[string]ast.Expr{}
	for _, file := range files {
		for _, decl := range file.Decls {
			if variables, ok := decl.(*ast.GenDecl); ok {
				maps.Copy(shared, tablesOf(variables))
			}
		}
	}
	for _, file := range files {
		for _, decl := range file.Decls {
			fn, ok := decl.(*ast.FuncDecl)
			if !ok || fn.Recv != nil || fn.Body == nil || !strings.HasPrefix(fn.Name.Name, "Test") {
				continue
			}
			tables := maps.Clone(shared)
			maps.Copy(tables, tablesOf(fn.Body))
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				if loop, ok := n.(*ast.RangeStmt); ok && overTable(loop, tables) && asserts(loop.Body) && !callsRun(loop.Body) {
					at := fileSet.Position(loop.Pos())
					problems = append(problems, fmt.Sprintf("%s:%d: %s checks a table without t.Run: run each case as a subtest under its name",
						at.Filename, at.Line, fn.Name.Name))
				}
				return true
			})
		}
	}
	return problems
}

// tablesOf returns the variables that a function or a declaration of the package declares with a table, by name.
func tablesOf(declaring ast.Node) map[string]ast.Expr {
	tables := map[string]ast.Expr{}
	ast.Inspect(declaring, func(n ast.Node) bool {
		var names, values []ast.Expr
		switch n := n.(type) {
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				names, values = n.Lhs, n.Rhs
			}
		case *ast.ValueSpec:
			for _, name := range n.Names {
				names = append(names, name)
			}
			values = n.Values
		}
		for i, name := range names {
			if id, ok := name.(*ast.Ident); ok && len(values) == len(names) && isTable(values[i]) {
				tables[id.Name] = values[i]
			}
		}
		return true
	})
	return tables
}

// isTable tells whether an expression is a literal of cases. A literal without elements is filled
// later, so its elements are results and no cases.
func isTable(e ast.Expr) bool {
	literal, ok := e.(*ast.CompositeLit)
	if !ok || len(literal.Elts) == 0 {
		return false
	}
	if isMap(literal) {
		return true
	}
	slice, ok := literal.Type.(*ast.ArrayType)
	if !ok {
		return false
	}
	_, ok = slice.Elt.(*ast.StructType)
	return ok
}

func isMap(e ast.Expr) bool {
	literal, ok := e.(*ast.CompositeLit)
	if !ok {
		return false
	}
	_, ok = literal.Type.(*ast.MapType)
	return ok
}

func overTable(loop *ast.RangeStmt, tables map[string]ast.Expr) bool {
	table := loop.X
	if id, ok := table.(*ast.Ident); ok {
		table = tables[id.Name]
	}
	if !isTable(table) {
		return false
	}
	row, ok := loop.Value.(*ast.Ident)
	return isMap(table) || !ok || row.Name != "step"
}

// asserts tells whether a loop asserts more than success. An assertion is a failure that t reports,
// or a call of testify, or of a helper named require… or assert…, that takes t.
func asserts(body *ast.BlockStmt) bool {
	return containsCall(body, func(receiver, name string, args []ast.Expr) bool {
		lower := strings.ToLower(name)
		switch {
		case receiver == "t" && (name == "Fatal" || name == "Fatalf"):
			return len(args) != 1 || !isIdent(args[0], "err")
		case receiver == "t":
			return strings.HasPrefix(name, "Error") || strings.HasPrefix(name, "Fail")
		case len(args) == 0 || !isIdent(args[0], "t"), name == "NoError":
			return false
		}
		return receiver == "require" || receiver == "assert" || strings.HasPrefix(lower, "require") || strings.HasPrefix(lower, "assert")
	})
}

func callsRun(body *ast.BlockStmt) bool {
	return containsCall(body, func(receiver, name string, _ []ast.Expr) bool { return receiver == "t" && name == "Run" })
}

// containsCall tells whether a call in a loop is of a kind. The receiver is a variable or a package, or
// empty.
func containsCall(body *ast.BlockStmt, is func(receiver, name string, args []ast.Expr) bool) (found bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return !found
		}
		switch fn := call.Fun.(type) {
		case *ast.Ident:
			found = found || is("", fn.Name, call.Args)
		case *ast.SelectorExpr:
			receiver, _ := fn.X.(*ast.Ident)
			if receiver == nil {
				receiver = ast.NewIdent("")
			}
			found = found || is(receiver.Name, fn.Sel.Name, call.Args)
		}
		return !found
	})
	return found
}

func isIdent(e ast.Expr, name string) bool {
	id, ok := e.(*ast.Ident)
	return ok && id.Name == name
}
