// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/later"
)

const (
	// version may have one value only, which says nothing.
	version = "Agent.Version"
	// shown is no key: a build passes it on, for people.
	shown = "Agent.SourcePath"
	// claimedBy and droppedBy are passed on for those who accept and claim runs.
	claimedBy = "Agent.MaxConcurrentRuns"
	droppedBy = "Concurrency.OnConflict"
)

const (
	llm         = "name: a\nmodel: openai/x\n"
	unsupported = " is not supported by this release; remove it"
)

// undone is what docs/spec/repository.md says that this release does not do, in
// its words and order. Nobody reads the field because
// Check refuses the file that makes use of it.
var undone = []notDone{
	{"agent.type: tool", "other types", "Agent.ToolName", "agents/a.yaml", "name: a\ntype: tool\ntool_name: look\n", "agents/a.yaml:2:1: type tool" + unsupported},
	{"agent.type: remote", "other types", "Agent.URL", "agents/a.yaml", "name: a\ntype: remote\nurl: https://agents.example.com/a\n", "agents/a.yaml:2:1: type remote" + unsupported},
	{"", "other tools", "", "agents/a.yaml", llm + "tools: [magic]\n", "agents/a.yaml:3:1: tool magic is unknown; there is broken, charge, huge, look, refuses"},
	{"tool.condition", "conditions of tools", "Tool.Condition", "agents/a.yaml", llm + "tools: [{look: x > 1}]\n", "agents/a.yaml:3:1: the condition of tool look" + unsupported},
	{
		"agent.output_schema", "`output_schema`", "Agent.OutputSchema", "agents/a.yaml", llm + "output_schema: answer\n",
		`agents/a.yaml:3:1: "output_schema"` + unsupported + "\nschemas/answer.json: the folder schemas" + unsupported, // the file must be there
	},
	key("session", "Agent.Session", "{key: input.id}"),
	key("guardrails", "Agent.Guardrails", "{}"),
	key("approval", "Agent.Approval", "{}"),
	key("mcp_servers", "Agent.MCPServers", "[{name: a, url: 'https://mcp.example.com'}]"),
	folder("middleware", "middleware", "a.star", ""),
	folder("hooks", "hooks", "a.star", ""),
	folder("tools", "files in `tools/`", "a.star", ""),
	folder("guardrails", "files in `guardrails/`", "a.star", ""),
	folder("schemas", "files in `schemas/`", "a.json", "{}"),
	{"case.approval_decisions", "`approval_decisions` of tests", "Case.ApprovalDecisions", "tests/a.yaml", "agent: main\ncases: [{name: a, payload: x, approval_decisions: [approve]}]\n", `tests/a.yaml:2:31: "approval_decisions"` + unsupported},
	{
		"link.outbound.mode: middleware", "links of the mode `middleware`", "", "connectors/a.yaml",
		"type: webhook\nmode: outbound\nconfig: {url: 'https://a.example'}\nlinks: [{agent: main, outbound: {mode: middleware}}]\n",
		"connectors/a.yaml:4:1: the mode middleware of a link is not supported by this release; choose automatic or agent_tool",
	},
}

// notDone is a name of package later, or "" of what has no end; the words of the document; the
// field that nobody reads; a file that makes use of it, and what is said of that.
type notDone struct{ name, words, field, file, text, problem string }

func key(name, field, value string) notDone {
	return notDone{"agent." + name, "`" + name + "`", field, "agents/a.yaml", llm + name + ": " + value + "\n", `agents/a.yaml:3:1: "` + name + `"` + unsupported}
}

func folder(name, words, file, text string) notDone {
	return notDone{"folder." + name, words, "", name + "/" + file, text, name + "/" + file + ": the folder " + name + unsupported}
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
	info := &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}}
	config := types.Config{Importer: l, Error: func(error) {}}
	checked, _ := config.Check(name, fset, slices.Collect(maps.Values(files)), info)
	return checked, info, files
}

// fieldsRead are the fields of the bundle's structs, as Struct.Field, that the
// runner's code reads, and those that a build passes on. A field that is assigned
// to is not read, nor is one that check.go looks at to refuse it.
func fieldsRead(t *testing.T) (read, passedOn map[string]bool) {
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
	read, passedOn = map[string]bool{}, map[string]bool{}
	dirs, err := filepath.Glob("../*")
	require.NoError(t, err)
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
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.AssignStmt:
					for _, left := range n.Lhs {
						delete(info.Selections, selector(left))
					}
				case *ast.SelectorExpr:
					if selection := info.Selections[n]; selection != nil {
						into[names[selection.Obj()]] = true
					}
				}
				return true
			})
		}
	}
	return read, passedOn
}

// selector is an expression as one, or nil.
func selector(e ast.Expr) *ast.SelectorExpr {
	s, _ := e.(*ast.SelectorExpr)
	return s
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
	read, passedOn := fieldsRead(t)
	exceptions := map[string]bool{version: false} // and whether they were seen
	for _, name := range []string{shown, claimedBy, droppedBy} {
		require.True(t, passedOn[name], "a build passes %s on to nobody", name)
		exceptions[name] = false
	}
	for _, one := range undone {
		if one.field != "" {
			exceptions[one.field] = false
		}
	}
	checked := func(name string) bool {
		_, isException := exceptions[name]
		if isException {
			exceptions[name] = true
			require.False(t, read[name], "%s is read; it is no exception any more", name)
		} else if strings.Contains(name, ".") {
			require.True(t, read[name], "who reads %s? have the engine read or refuse it, or take it out of the bundle", name)
		}
		return !isException
	}
	fieldsOf(reflect.TypeFor[bundle.Agent](), checked)
	fieldsOf(reflect.TypeFor[bundle.Script](), checked)
	fieldsOf(reflect.TypeFor[bundle.Suite](), checked)
	for name, seen := range exceptions {
		t.Run(name, func(t *testing.T) {
			require.True(t, seen, "%s is not in an agent", name)
		})
	}
}

// TestWhatIsNotDoneIsRefused: each with its own problem and no other, but for what one needs of another.
func TestWhatIsNotDoneIsRefused(t *testing.T) {
	t.Parallel()
	repository := func(file, text string) *bundle.Project {
		files := map[string]string{"agents/main.yaml": "name: main\nmodel: openai/x\n"}
		if files[file] = text; strings.Contains(text, "output_schema") {
			files["schemas/answer.json"] = "{}"
		}
		var pairs []string
		for name, content := range files {
			pairs = append(pairs, name, content)
		}
		return project(t, pairs...)
	}
	e := (&house{}).engine()
	tried := map[string]bool{}
	for _, one := range undone {
		tried[one.name] = true
		require.EqualError(t, e.Check(repository(one.file, one.text)), one.problem)
	}
	delete(tried, "")
	for _, name := range later.At(later.File) {
		require.True(t, tried[name.String()], "nothing shows that a build refuses %s", name)
		delete(tried, name.String())
	}
	require.Empty(t, tried, "what is refused and not in the table")
	require.Empty(t, e.Check(project(t, "agents/a.yaml", llm+"variants: {b: 10}\n", "agents/a-test-b.yaml", "name: b\nmodel: openai/x\n")))
	for _, file := range []string{"agents/a.yaml", "models/a.yaml", "tests/a.yaml", "tests/files/a.txt"} {
		text := map[string]string{"agents/a.yaml": llm + "max_concurrent_runs: 1\nconcurrency: {key: input.id}\n", "models/a.yaml": "steps: [{text: x}]\n", "tests/a.yaml": "agent: main\ncases: [{name: a, payload: x}]\n"}[file]
		require.Empty(t, e.Check(repository(file, text)), file)
	}
}

// TestSpecListsWhatIsNotDone: all of it and nothing else.
func TestSpecListsWhatIsNotDone(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/spec/repository.md")
	require.NoError(t, err)
	_, after, found := strings.Cut(string(text), "a repository that uses what it does not do yet (")
	require.True(t, found)
	listed, _, found := strings.Cut(after, ") fails the build")
	require.True(t, found)
	var words []string
	for _, one := range undone {
		if !slices.Contains(words, one.words) {
			words = append(words, one.words)
		}
	}
	require.Equal(t, strings.Join(words, ", "), listed)
}
