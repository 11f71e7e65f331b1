// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"path"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
)

// version is read by nobody: a build accepts one value only.
const version = "Agent.Version"

// refused are the fields, and the structs with all of theirs, that nobody reads
// because Check refuses the agents that set them. Each has such an agent.
var refused = map[string]string{
	"Agent.ToolName": "type: tool\ntool_name: look\n",
	"Agent.URL":      "type: remote\nurl: https://agents.example.com/a\n",
	"Concurrency":    "model: openai/x\nconcurrency: {key: input.id}\n",
	"Session":        "model: openai/x\nsession: {key: input.id}\n",
	"Guardrails":     "model: openai/x\nguardrails: {}\n",
	"Approval":       "model: openai/x\napproval: {}\n",
	"MCPServer":      "model: openai/x\nmcp_servers: [{name: a, url: 'https://mcp.example.com'}]\n",
}

// lenient type-checks the sources of a package, without those that it imports:
// what they declare does not matter here.
type lenient map[string]*types.Package

func (l lenient) Import(name string) (*types.Package, error) {
	if l[name] == nil {
		l[name] = types.NewPackage(name, path.Base(name))
		l[name].MarkComplete()
	}
	return l[name], nil
}

func (l lenient) check(t *testing.T, name, dir string) (*types.Package, *types.Info, []*ast.File) {
	t.Helper()
	sources, err := build.ImportDir(dir, 0)
	require.NoError(t, err)
	fset := token.NewFileSet()
	var files []*ast.File
	for _, source := range sources.GoFiles {
		file, err := parser.ParseFile(fset, filepath.Join(dir, source), nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		files = append(files, file)
	}
	info := &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}}
	config := types.Config{Importer: l, Error: func(error) {}}
	checked, _ := config.Check(name, fset, files, info)
	return checked, info, files
}

// fieldsRead are the fields of the bundle's structs, as Struct.Field, that the
// runner's code reads. A field that is assigned to is not read.
func fieldsRead(t *testing.T) map[string]bool {
	t.Helper()
	name := reflect.TypeFor[bundle.Agent]().PkgPath()
	packages := lenient{}
	declared, _, _ := packages.check(t, name, "../../bundle")
	packages[name] = declared
	names := map[types.Object]string{}
	for _, one := range declared.Scope().Names() {
		if s, ok := declared.Scope().Lookup(one).Type().Underlying().(*types.Struct); ok {
			for field := range s.Fields() {
				names[field] = one + "." + field.Name()
			}
		}
	}
	read := map[string]bool{}
	dirs, err := filepath.Glob("../*")
	require.NoError(t, err)
	for _, dir := range dirs {
		_, info, files := packages.check(t, dir, dir)
		assigned := map[ast.Expr]bool{}
		for _, file := range files {
			ast.Inspect(file, func(n ast.Node) bool {
				if a, ok := n.(*ast.AssignStmt); ok {
					for _, left := range a.Lhs {
						assigned[left] = true
					}
				}
				return true
			})
		}
		for at, selection := range info.Selections {
			if !assigned[at] {
				read[names[selection.Obj()]] = true
			}
		}
	}
	return read
}

// fieldsOf calls f for the fields of a struct and of those in it; below a struct
// for which f answers false it goes no further.
func fieldsOf(of reflect.Type, f func(name string) bool) {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice || of.Kind() == reflect.Map {
		of = of.Elem()
	}
	if of.Kind() != reflect.Struct || of.PkgPath() != reflect.TypeFor[bundle.Agent]().PkgPath() || !f(of.Name()) {
		return
	}
	for field := range of.Fields() {
		if field.IsExported() && f(of.Name()+"."+field.Name) {
			fieldsOf(field.Type, f)
		}
	}
}

// TestEveryKeyHasAReader: a key that nobody reads must not be accepted.
func TestEveryKeyHasAReader(t *testing.T) {
	t.Parallel()
	read := fieldsRead(t)
	seen := map[string]bool{}
	checked := func(name string) bool {
		seen[name] = true
		isField := strings.Contains(name, ".")
		_, isRefused := refused[name]
		if isRefused || name == version {
			require.False(t, read[name], "%s is read; it is no exception any more", name)
		} else if isField {
			require.True(t, read[name], "who reads %s? have the engine read or refuse it, or take it out of the bundle", name)
		}
		return !isRefused
	}
	fieldsOf(reflect.TypeFor[bundle.Agent](), checked)
	fieldsOf(reflect.TypeFor[bundle.Script](), checked)
	for name, agent := range refused {
		require.True(t, seen[name], "%s is not in an agent", name)
		problems := (&house{}).engine().Check(project(t, "agents/a.yaml", "name: a\n"+agent))
		require.Len(t, problems, 1, name)
		require.Contains(t, problems[0].Message, "is not supported by this release", name)
	}
}
