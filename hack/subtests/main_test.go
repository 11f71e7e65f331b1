// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheck_FindsTablesWithoutSubtests(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		body  string
		found bool
	}{
		"map":               {`for k, v := range map[string]int{"a": 1} { require.Equal(t, v, f(k)) }`, true},
		"structs":           {`for _, c := range []struct{ a int }{{1}} { if c.a != 1 { t.Errorf("%d", c.a) } }`, true},
		"variable":          {`cases := map[string]int{"a": 1}; for k := range cases { require.True(t, f(k)) }`, true},
		"var":               {`var cases = []struct{ a int }{{1}}; for _, c := range cases { t.Fatal(c) }`, true},
		"helper":            {`for k := range map[string]int{"a": 1} { requireField(t, k) }`, true},
		"method of a world": {`for k := range map[string]int{"a": 1} { w.requireCode(t, k) }`, true},
		"inside a closure":  {`run(func() { for k := range map[string]int{"a": 1} { require.True(t, f(k)) } })`, true},
		"map named step":    {`for _, step := range map[string]int{"a": 1} { require.Zero(t, step) }`, true},
		"nested table":      {`for k := range m { t.Run(k, func(t *testing.T) { for _, c := range []struct{ a int }{{1}} { require.Zero(t, c.a) } }) }`, true},

		"subtests":      {`for k, v := range map[string]int{"a": 1} { t.Run(k, func(t *testing.T) { require.Zero(t, v) }) }`, false},
		"steps":         {`for _, step := range []struct{ a int }{{1}} { require.Zero(t, step.a) }`, false},
		"preparation":   {`for k := range map[string]int{"a": 1} { require.NoError(t, f(k)) }`, false},
		"fatal error":   {`for k := range map[string]int{"a": 1} { if err := f(k); err != nil { t.Fatal(err) } }`, false},
		"plain values":  {`for _, v := range []int{1, 2} { require.NotZero(t, v) }`, false},
		"results":       {`seen := map[string]int{}; for k := range seen { require.NotEmpty(t, k) }`, false},
		"made of a map": {`for _, k := range slices.Sorted(maps.Keys(m)) { require.NotEmpty(t, k) }`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			problems := checkSources(t, "func TestA(t *testing.T) {\n\t"+c.body+"\n}\n")
			if !c.found {
				require.Empty(t, problems)
				return
			}
			require.Len(t, problems, 1)
			require.Contains(t, problems[0], "a_test.go:4: TestA checks a table without t.Run: ")
		})
	}
}

// A table of the package counts in each of its test files.
func TestCheck_FindsTablesOfThePackage(t *testing.T) {
	t.Parallel()
	const loop = `func TestA(t *testing.T) { for k := range cases { require.True(t, f(k)) } }` + "\n"
	for name, c := range map[string]struct {
		declaration string
		found       int
	}{
		"map":     {`var cases = map[string]int{"a": 1}`, 1},
		"group":   {"var (\n\tother = 1\n\tcases = []struct{ a int }{{1}}\n)", 1},
		"results": {`var cases = map[string]int{}`, 0},
		"plain":   {`var cases = []int{1}`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Len(t, checkSources(t, loop, c.declaration+"\n"), c.found)
		})
	}
}

// Helpers are called by tests that have their own subtests.
func TestCheck_ReadsTestsOnly(t *testing.T) {
	t.Parallel()
	const loop = ` { for k := range map[string]int{"a": 1} { require.True(t, f(k)) } }` + "\n"
	require.Empty(t, checkSources(t, "func helper(t *testing.T)"+loop+"\nfunc (w *world) TestA(t *testing.T)"+loop))
}

func TestFindTables_NamesUnreadableFiles(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "a_test.go"), []byte("package"), 0o600))
	_, err := findTables(folder)
	require.ErrorContains(t, err, "a_test.go:1:")
}

// checkSources checks a package whose test files a_test.go, b_test.go and so on have these declarations.
func checkSources(t *testing.T, sources ...string) []string {
	t.Helper()
	fileSet, files := token.NewFileSet(), make([]*ast.File, len(sources))
	for i, source := range sources {
		var err error
		files[i], err = parser.ParseFile(fileSet, string(rune('a'+i))+"_test.go", "package a\n\n"+source, parser.SkipObjectResolution)
		require.NoError(t, err)
	}
	return checkPackage(fileSet, files)
}
