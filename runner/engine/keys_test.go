// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
)

const (
	// versionKey may have one value only, which nobody has to read.
	versionKey = "Agent.Version"
	// sourcePath is no key. A build passes it on for people, as it does the description.
	sourcePath  = "Agent.SourcePath"
	description = "Agent.Description"
	// maxConcurrentRuns and onConflict are passed on to the gateway, which accepts and assigns runs.
	maxConcurrentRuns = "Agent.MaxConcurrentRuns"
	onConflict        = "Concurrency.OnConflict"
	// apis are read by bundle, which gives their values to the tools of an agent.
	apis = "Agent.APIs"
)

// lenient type-checks the sources of a package without the packages that it imports, whose declarations do not matter here.
type lenient map[string]*types.Package

func (l lenient) Import(name string) (*types.Package, error) {
	if l[name] == nil {
		l[name] = types.NewPackage(name, path.Base(name))
		l[name].MarkComplete()
	}
	return l[name], nil
}

func (l lenient) check(t *testing.T, name, dir string) (*types.Package, *types.Info, map[string]*ast.File) {
	t.Helper()
	sources, err := build.ImportDir(dir, 0)
	require.NoError(t, err)
	fset := token.NewFileSet()
	files := map[string]*ast.File{}
	for _, source := range sources.GoFiles {
		file, err := parser.ParseFile(fset, filepath.Join(dir, source), nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		files[source] = file
	}
	info := &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}, Defs: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: l, Error: func(error) {}}
	checked, _ := config.Check(name, fset, slices.Collect(maps.Values(files)), info)
	return checked, info, files
}

// fieldsRead returns the fields of the bundle's structs, as Struct.Field, that the code of the runner reads, and the fields
// that a build passes on. An assignment does not read a field, and check.go reads fields only to reject them.
func fieldsRead(t *testing.T) (read, passedOn map[string]bool) {
	t.Helper()
	name := reflect.TypeFor[bundle.Agent]().PkgPath()
	packages := lenient{}
	declared, info, files := packages.check(t, name, "../../bundle")
	packages[name] = declared
	names := map[types.Object]string{}
	for _, one := range declared.Scope().Names() {
		if s, ok := declared.Scope().Lookup(one).Type().Underlying().(*types.Struct); ok {
			for field := range s.Fields() {
				names[field] = one + "." + field.Name()
			}
		}
	}
	methods := selectedInMethods(info, files)
	read, passedOn = map[string]bool{}, map[string]bool{}
	dirs, err := filepath.Glob("../*")
	require.NoError(t, err)
	features, err := filepath.Glob("*/*.go")
	require.NoError(t, err)
	for _, source := range features {
		if dir := filepath.Dir(source); !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	for _, dir := range dirs {
		into := read
		if dir == "../build" {
			into = passedOn
		}
		_, info, files := packages.check(t, dir, dir)
		for source, file := range files {
			if dir == "../engine" && source == "check.go" {
				continue
			}
			for selected := range selectedIn(info, file) {
				into[names[selected]] = true
				for field := range methods[selected] { // A method of the bundle reads fields for its caller.
					into[names[field]] = true
				}
			}
		}
	}
	return read, passedOn
}

// selectedIn returns the fields and methods that code selects, except fields that it assigns.
func selectedIn(info *types.Info, code ast.Node) map[types.Object]bool {
	selected := map[types.Object]bool{}
	ast.Inspect(code, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for _, left := range n.Lhs {
				delete(info.Selections, selector(left))
			}
		case *ast.SelectorExpr:
			if selection := info.Selections[n]; selection != nil {
				selected[selection.Obj()] = true
			}
		}
		return true
	})
	return selected
}

// selectedInMethods returns the fields that each exported method of the bundle reads, also through other methods. At only
// returns positions.
func selectedInMethods(info *types.Info, files map[string]*ast.File) map[types.Object]map[types.Object]bool {
	direct := map[types.Object]map[types.Object]bool{}
	for _, file := range files {
		for _, declaration := range file.Decls {
			if f, ok := declaration.(*ast.FuncDecl); ok && f.Recv != nil && f.Name.IsExported() && f.Name.Name != "At" {
				direct[info.Defs[f.Name]] = selectedIn(info, f)
			}
		}
	}
	for changed := true; changed; {
		changed = false
		for _, selected := range direct {
			size := len(selected)
			for inner := range maps.Clone(selected) {
				maps.Copy(selected, direct[inner])
			}
			changed = changed || len(selected) > size
		}
	}
	return direct
}

// selector returns an expression as a selector, or nil.
func selector(e ast.Expr) *ast.SelectorExpr {
	s, _ := e.(*ast.SelectorExpr)
	return s
}

// eachField calls f for the fields of a struct and of the structs in it. It goes no further below a field if f returns false.
func eachField(of reflect.Type, f func(name string) bool) {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice || of.Kind() == reflect.Map {
		of = of.Elem()
	}
	if of.Kind() != reflect.Struct || of.PkgPath() != reflect.TypeFor[bundle.Agent]().PkgPath() || !f(of.Name()) {
		return
	}
	for field := range of.Fields() {
		if field.IsExported() && f(of.Name()+"."+field.Name) {
			eachField(field.Type, f)
		}
	}
}

// Each supported key has a reader: the engine accepts no key that has no effect.
func TestKeys_HaveReaders(t *testing.T) {
	t.Parallel()
	read, passedOn := fieldsRead(t)
	exceptions := map[string]bool{versionKey: false, apis: false} // and whether a struct has them
	for _, name := range []string{sourcePath, description, maxConcurrentRuns, onConflict} {
		require.True(t, passedOn[name], "a build passes %s on to nobody", name)
		exceptions[name] = false
	}
	for _, kind := range bundle.Kinds {
		for _, key := range bundle.Keys(kind.Kind) {
			// Below an unsupported key, no key needs a reader.
			if key.Unsupported {
				exceptions[key.Field] = false
			}
		}
	}
	checked := func(name string) bool {
		_, isException := exceptions[name]
		if isException {
			exceptions[name] = true
			require.False(t, read[name], "%s is read: remove its tag unsupported", name)
		} else if strings.Contains(name, ".") {
			require.True(t, read[name], "nothing reads %s: read it in the engine, or tag it as unsupported", name)
		}
		return !isException
	}
	for _, root := range []reflect.Type{reflect.TypeFor[bundle.Agent](), reflect.TypeFor[bundle.Script](), reflect.TypeFor[bundle.Suite](), reflect.TypeFor[bundle.HTTPTool]()} {
		eachField(root, checked)
	}
	for name, seen := range exceptions {
		t.Run(name, func(t *testing.T) { require.True(t, seen, "no struct has the field") })
	}
}

// unsupportedUse is a file that uses something unsupported, and the problem of it.
type unsupportedUse struct{ file, text, problem string }

// unsupportedUses returns a use of each unsupported key, value and folder.
func unsupportedUses() map[string]unsupportedUse {
	const rejected = " is not supported by this release; remove it"
	uses := map[string]unsupportedUse{
		"a tool that no engine has": {"agents/a.yaml", "name: a\nmodel: openai/x\ntools: [magic]\n", "agents/a.yaml:3:1: tool magic is unknown; use one of broken, charge, huge, look, refuses"},
		"approval_decisions":        {"tests/a.yaml", "agent: main\ncases: [{name: a, payload: x, approval_decisions: [approve]}]\n", `tests/a.yaml:2:31: "cases[0].approval_decisions"` + rejected},
	}
	for _, name := range bundle.UnsupportedFolders() {
		uses["folder "+name] = unsupportedUse{name + "/lib/a.star", "", name + "/lib/a.star: the folder " + name + rejected}
	}
	for _, key := range bundle.Keys(bundle.KindAgent) {
		if !strings.Contains(key.Path, ".") && key.Unsupported && key.Types == nil {
			name := strings.TrimSuffix(key.Path, "[]")
			uses["key "+name] = unsupportedUse{"agents/a.yaml", "name: a\nmodel: openai/x\n" + name + ": " + key.Example + "\n", `agents/a.yaml:3:1: "` + name + `"` + rejected}
		}
		for _, value := range key.UnsupportedValues {
			if key.Path == "type" {
				uses["type "+value] = unsupportedUse{"agents/a.yaml", "name: a\ntype: " + value + "\ntool_name: look\nurl: https://a.example\n", `agents/a.yaml:2:7: "type": ` + value + ` is not supported by this release; use llm or sequential or tool`}
			}
		}
	}
	return uses
}

// A build rejects each unsupported use, and accepts a repository without one.
func TestCheck_RejectsUnsupported(t *testing.T) {
	t.Parallel()
	e := (&house{}).engine()
	check := func(file, text string) bundle.Problems {
		files := bundle.Files{"agents/main.yaml": []byte("name: main\nmodel: openai/x\n"), file: []byte(text)}
		found, problems := bundle.Examine(files)
		return problems.With(e.Check(found))
	}
	for name, use := range unsupportedUses() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, strings.Split(check(use.file, use.text).Error(), "\n"), use.problem)
		})
	}
	for file, text := range map[string]string{
		"agents/a.yaml":     "name: a\nmodel: openai/x\nmax_concurrent_runs: 1\nconcurrency: {key: input.id}\n",
		"models/a.yaml":     "steps: [{text: x}]\n",
		"tests/a.yaml":      "agent: main\ncases: [{name: a, payload: x}]\n",
		"tests/files/a.txt": "",
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			require.Empty(t, check(file, text))
		})
	}
}
