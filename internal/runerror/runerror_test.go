// SPDX-License-Identifier: Apache-2.0

package runerror_test

import (
	"go/ast"
	"go/build"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/runerror"
)

var self = reflect.TypeFor[runerror.Code]().PkgPath()

// module is the path of the module, root its folder.
var module, root = path.Dir(path.Dir(self)), filepath.Join("..", "..")

// moduleTypes type-checks the packages of the module without the packages of other modules, whose declarations do not matter here.
type moduleTypes struct {
	files    *token.FileSet
	packages map[string]*types.Package
	infos    map[string]*types.Info
}

// Import implements types.Importer.
func (m *moduleTypes) Import(name string) (*types.Package, error) {
	if checked := m.packages[name]; checked != nil {
		return checked, nil
	}
	m.packages[name] = types.NewPackage(name, path.Base(name))
	if relative, isOurs := strings.CutPrefix(name, module+"/"); isOurs {
		return m.check(name, filepath.Join(root, filepath.FromSlash(relative)))
	}
	m.packages[name].MarkComplete()
	return m.packages[name], nil
}

func (m *moduleTypes) check(name, dir string) (*types.Package, error) {
	sources, err := build.ImportDir(dir, 0)
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	for _, source := range sources.GoFiles {
		file, err := parser.ParseFile(m.files, filepath.Join(dir, source), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		files = append(files, file)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: m, Error: func(error) {}} // errors of packages that are left out
	m.packages[name], _ = config.Check(name, m.files, files, info)
	m.infos[name] = info
	return m.packages[name], nil
}

// packagesWith returns the packages of the module that import a package, in non-test files. Packages for tests are left out.
func packagesWith(t *testing.T, imported string) (names []string) {
	t.Helper()
	for _, folder := range []string{"apiserver", "cmd", "internal", "runner", "store", "webhookgw"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(root, folder), func(name string, entry os.DirEntry, err error) error {
			if err != nil || !entry.IsDir() {
				return err
			}
			if sources, err := build.ImportDir(name, 0); err == nil && slices.Contains(sources.Imports, imported) && !slices.Contains(sources.Imports, "testing") {
				relative, err := filepath.Rel(root, name)
				names = append(names, path.Join(module, filepath.ToSlash(relative)))
				return err
			}
			return nil
		}))
	}
	return names
}

// isCode reports whether a type is runerror.Code.
func isCode(t types.Type) bool {
	named, ok := types.Unalias(t).(*types.Named)
	return ok && named.Obj().Name() == "Code" && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == self
}

// literalCodes returns the positions of constants that become a code without the table: literals, and constants of another type.
func literalCodes(m *moduleTypes, info *types.Info) (found []string) {
	for expression, value := range info.Types {
		if value.Value == nil || !isCode(value.Type) || constant.Compare(value.Value, token.EQL, constant.MakeString("")) {
			continue
		}
		literal := false
		switch e := expression.(type) {
		case *ast.BasicLit:
			literal = true
		case *ast.Ident:
			literal = info.Uses[e] != nil && !isCode(info.Uses[e].Type())
		case *ast.SelectorExpr:
			literal = info.Uses[e.Sel] != nil && !isCode(info.Uses[e.Sel].Type())
		}
		if literal {
			found = append(found, m.files.Position(expression.Pos()).String()+": "+value.Value.String())
		}
	}
	return found
}

// The code of a run comes from the table: no package has a literal in its place.
func TestCode_IsNoLiteral(t *testing.T) {
	t.Parallel()
	m := &moduleTypes{files: token.NewFileSet(), packages: map[string]*types.Package{}, infos: map[string]*types.Info{}}
	users := packagesWith(t, self)
	for _, needed := range []string{"store", "runner/engine", "runner/model", "runner/script", "runner/serve"} {
		require.Contains(t, users, path.Join(module, needed))
	}
	for _, user := range users {
		_, err := m.Import(user)
		require.NoError(t, err)
	}
	for name, info := range m.infos { // also of packages that get the type through others, such as store/sqlcore
		if name != self {
			require.Empty(t, literalCodes(m, info), "declare the code in internal/runerror and describe it in its table")
		}
	}
}

// literalCodes finds each way to set a code without the table.
func TestCode_FindsLiterals(t *testing.T) {
	t.Parallel()
	m := &moduleTypes{files: token.NewFileSet(), packages: map[string]*types.Package{}, infos: map[string]*types.Info{}}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.go"), []byte(`package a

import "`+self+`"

type failure struct{ code runerror.Code }

const (
	own          = "own_code"
	typed runerror.Code = "typed_code"
	again = runerror.Timeout
)

var all = []failure{{"literal"}, {code: own}, {runerror.Code("converted")}, {runerror.Timeout}, {again}, {""}}

func compare(code runerror.Code, text string) bool { return code == "compared" || code == runerror.Code(text) }
`), 0o600))
	_, err := m.check("a", dir)
	require.NoError(t, err)
	var values []string
	for _, found := range literalCodes(m, m.infos["a"]) {
		values = append(values, found[strings.LastIndex(found, ": ")+2:])
	}
	slices.Sort(values)
	require.Equal(t, []string{`"compared"`, `"converted"`, `"literal"`, `"own_code"`, `"typed_code"`}, slices.Compact(values))
}

// The table describes each declared code once, in full.
func TestTable_DescribesEachCode(t *testing.T) {
	t.Parallel()
	m := &moduleTypes{files: token.NewFileSet(), packages: map[string]*types.Package{}, infos: map[string]*types.Info{}}
	declared, err := m.Import(self)
	require.NoError(t, err)
	codes := map[runerror.Code]string{}
	for _, name := range declared.Scope().Names() {
		if c, ok := declared.Scope().Lookup(name).(*types.Const); ok && isCode(c.Type()) {
			codes[runerror.Code(constant.StringVal(c.Val()))] = name
		}
	}
	described := map[runerror.Code]bool{}
	for _, group := range runerror.Table {
		require.NotEmpty(t, group.Title)
		for _, entry := range group.Entries {
			t.Run(string(entry.Code), func(t *testing.T) {
				require.NotEmpty(t, codes[entry.Code], "no constant has the code")
				require.False(t, described[entry.Code], "described twice")
				require.Regexp(t, `^[a-z][a-z0-9_]{2,63}$`, string(entry.Code))
				require.Regexp(t, `(?s)^[A-Z].*\.$`, entry.Meaning)
				require.Regexp(t, `(?s)^[A-Z].*\.$`, entry.Remedy)
				require.Contains(t, []runerror.Retry{runerror.RetryHelps, runerror.RetryAfterFix, runerror.RetryFails}, entry.Retry)
				found, ok := runerror.Find(entry.Code)
				require.True(t, ok)
				require.Equal(t, entry, found)
				require.Contains(t, runerror.Describe(), "- `"+string(entry.Code)+"`: "+entry.Meaning+"\n")
			})
			described[entry.Code] = true
		}
	}
	for code, name := range codes {
		require.True(t, described[code], "describe %s in the table", name)
	}
	_, ok := runerror.Find("of_another_release")
	require.False(t, ok)
}
