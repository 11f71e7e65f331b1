// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"cmp"
	"errors"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"go.starlark.net/resolve"
	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// loadPrefix begins the path of a file in a load statement.
const loadPrefix = "//"

// ScriptOptions is the dialect of scripts: Starlark with sets. It has no while, no recursion, and no if or for outside of
// functions.
func ScriptOptions() *syntax.FileOptions { return &syntax.FileOptions{Set: true} }

// starlarkFile is a script of the repository.
type starlarkFile struct {
	path   string
	parsed *syntax.File
	// functions are the functions at the top level, in order.
	functions []*syntax.DefStmt
	loads     []*syntax.LoadStmt
	// uses are the built-ins that the file names. variables are the literal names in calls of env.
	uses, variables []scriptUse
}

// scriptUse is a place in a script that names a built-in or a variable of the environment.
type scriptUse struct {
	name string
	at   Position
}

// function returns the function at the top level with a name, or nil. As in Python, the last one counts.
func (f *starlarkFile) function(name string) *syntax.DefStmt {
	for _, def := range slices.Backward(f.functions) {
		if def.Name.Name == name {
			return def
		}
	}
	return nil
}

// isScript reports whether a file is a script in a folder of scripts.
func isScript(file string) bool {
	folder, _, _ := strings.Cut(file, "/")
	f := folderOf(folder)
	return f != nil && f.holdsScripts() && path.Ext(file) == ".star" && !IsHidden(file)
}

// ScriptFiles returns the text of all scripts, by path.
func (p *Project) ScriptFiles() map[string]string {
	texts := map[string]string{}
	for file, text := range p.Files {
		if isScript(file) {
			texts[file] = string(text)
		}
	}
	return texts
}

// sendsHTTP reports whether a reference names a tool that may send HTTP requests.
func (p *Project) sendsHTTP(reference string) bool {
	return len(p.HTTPTools(reference)) > 0 || len(p.ScriptTools(reference)) > 0 && p.scriptsSendHTTP()
}

// scriptsSendHTTP reports whether a script of the repository sends HTTP requests.
func (p *Project) scriptsSendHTTP() bool {
	for _, f := range p.starlark {
		if slices.ContainsFunc(f.uses, func(u scriptUse) bool { return strings.HasPrefix(u.name, "http.") }) {
			return true
		}
	}
	return false
}

// RejectBuiltins returns a problem for each place in a script that names a built-in that is not offered to the owner of
// the script.
func (p *Project) RejectBuiltins(isOffered func(owner ScriptOwner, name string) bool) (problems Problems) {
	for _, f := range p.starlark {
		for _, use := range f.uses {
			switch b := FindBuiltin(use.name); {
			case isOffered(f.owner(), use.name):
			case b != nil && !b.IsFor(f.owner()):
				problems.add(use.at, "%s cannot be called by a script of a %s, only by one of a %s; remove it", use.name, f.owner(), ownerList(b.Owners))
			default:
				problems.add(use.at, "%s is not supported by this release; remove it", use.name)
			}
		}
	}
	problems.sort()
	return problems
}

// owner returns the owner of a script, by its folder.
func (f *starlarkFile) owner() ScriptOwner {
	switch folder, _, _ := strings.Cut(f.path, "/"); folder {
	case middlewareFolder.name:
		return OwnerMiddleware
	case hooksFolder.name:
		return OwnerHook
	case "guardrails":
		return OwnerGuardrail
	}
	return OwnerTool
}

func ownerList(owners []ScriptOwner) string {
	names := make([]string, len(owners))
	for i, o := range owners {
		names[i] = string(o)
	}
	return strings.Join(names, " or a ")
}

// parseStarlark parses all scripts and resolves their names.
func (p *repoParser) parseStarlark() {
	size := 0
	for _, file := range p.files.Paths() {
		if !isScript(file) {
			continue
		}
		if size += len(p.files[file]); size > MaxScripts {
			p.problems.add(Position{File: file}, "the scripts up to this one have more than %d MiB together; shorten them", MaxScripts>>20)
			return
		}
		if f := p.parseStarlarkFile(file); f != nil {
			p.project.starlark[file] = f
		}
	}
	for _, file := range p.files.Paths() {
		if f := p.project.starlark[file]; f != nil {
			p.linkLoads(f)
		}
	}
	p.findLoadCycles()
}

func (p *repoParser) parseStarlarkFile(file string) *starlarkFile {
	text := p.files[file]
	switch {
	case len(text) > MaxScriptSize:
		p.problems.add(Position{File: file}, "the script has %d bytes, at most %d are allowed; split it", len(text), MaxScriptSize)
		return nil
	case !utf8.Valid(text):
		p.problems.add(Position{File: file}, "the script is not UTF-8; save it as UTF-8")
		return nil
	}
	parsed, err := ScriptOptions().Parse(file, text, 0) // It limits the depth of nesting.
	if err != nil {
		p.addStarlarkError(file, err)
		return nil
	}
	if err := resolve.File(parsed, isBuiltinName, starlark.Universe.Has); err != nil {
		p.addStarlarkError(file, err)
		return nil
	}
	f := &starlarkFile{path: file, parsed: parsed}
	for _, stmt := range parsed.Stmts {
		switch s := stmt.(type) {
		case *syntax.DefStmt:
			f.functions = append(f.functions, s)
		case *syntax.LoadStmt:
			f.loads = append(f.loads, s)
		}
	}
	p.collectUses(f)
	return f
}

// addStarlarkError adds the problems of the parser or the resolver.
func (p *repoParser) addStarlarkError(file string, err error) {
	var wrong syntax.Error
	var unresolved resolve.ErrorList
	switch {
	case errors.As(err, &wrong):
		p.problems.add(starlarkPosition(file, wrong.Pos), "%s", wrong.Msg)
	case errors.As(err, &unresolved):
		for _, e := range unresolved {
			p.problems.add(starlarkPosition(file, e.Pos), "%s", e.Msg)
		}
	default:
		p.problems.add(Position{File: file}, "%v", err)
	}
}

func starlarkPosition(file string, pos syntax.Position) Position {
	return Position{File: file, Line: int(pos.Line), Column: int(pos.Col)}
}

// builtinNames are the names of all built-ins, and of their modules with the value true.
var builtinNames = func() map[string]bool {
	names := map[string]bool{}
	for _, b := range builtins {
		names[b.Name] = false
		if module := b.Module(); module != "" {
			names[module] = true
		}
	}
	return names
}()

// isBuiltinName reports whether a name without a module is a built-in.
func isBuiltinName(name string) bool {
	_, known := builtinNames[name]
	return known && !strings.Contains(name, ".")
}

// collectUses collects the built-ins that a script names, and reports functions that a module does not have.
func (p *repoParser) collectUses(f *starlarkFile) {
	members := map[*syntax.Ident]bool{}
	syntax.Walk(f.parsed, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CallExpr:
			if literal := literalVariable(n); literal != nil {
				f.variables = append(f.variables, scriptUse{literal.Value.(string), starlarkPosition(f.path, literal.TokenPos)})
			}
		case *syntax.DotExpr:
			module, ok := n.X.(*syntax.Ident)
			if !ok || !builtinNames[module.Name] || !isPredeclared(module) {
				return true
			}
			members[module] = true
			name, at := module.Name+"."+n.Name.Name, starlarkPosition(f.path, n.Name.NamePos)
			if _, known := builtinNames[name]; !known {
				p.problems.add(at, "%s has no function %s; it has %s", module.Name, n.Name.Name, strings.Join(membersOf(module.Name), ", "))
				return true
			}
			f.uses = append(f.uses, scriptUse{name, at})
		case *syntax.Ident:
			if !isPredeclared(n) || members[n] {
				return true
			}
			at := starlarkPosition(f.path, n.NamePos)
			if builtinNames[n.Name] {
				p.problems.add(at, "%s is a module and no value; call one of its functions, such as %s.%s", n.Name, n.Name, membersOf(n.Name)[0])
				return true
			}
			f.uses = append(f.uses, scriptUse{n.Name, at})
		}
		return true
	})
}

// isPredeclared reports whether an identifier is a built-in and not a variable of the same name.
func isPredeclared(id *syntax.Ident) bool {
	binding, ok := id.Binding.(*resolve.Binding)
	return ok && binding.Scope == resolve.Predeclared
}

// membersOf returns the names of the functions of a module.
func membersOf(module string) (names []string) {
	for _, b := range builtins {
		if name, ok := strings.CutPrefix(b.Name, module+"."); ok {
			names = append(names, name)
		}
	}
	return names
}

// linkLoads checks the files and names that a script loads.
func (p *repoParser) linkLoads(f *starlarkFile) {
	for _, load := range f.loads {
		at := starlarkPosition(f.path, load.Module.TokenPos)
		file, absolute := strings.CutPrefix(load.ModuleName(), loadPrefix)
		switch target := p.project.starlark[file]; {
		case !absolute || !isScript(file):
			p.problems.add(at, `%q is not a script of the repository; write the path from the root, such as "//tools/lib/money.star"`, load.ModuleName())
		case !p.hasFile(file):
			p.problems.add(at, "the script %s does not exist", file)
		case target != nil: // otherwise its own problems are reported
			p.checkLoadedNames(f, load, target)
		}
	}
}

func (p *repoParser) checkLoadedNames(f *starlarkFile, load *syntax.LoadStmt, target *starlarkFile) {
	module, _ := target.parsed.Module.(*resolve.Module)
	for i := range load.From {
		// The parser calls the name in the loaded file From.
		name := load.From[i]
		if module == nil || slices.ContainsFunc(module.Globals, func(b *resolve.Binding) bool { return b.First.Name == name.Name }) {
			continue
		}
		p.problems.add(starlarkPosition(f.path, name.NamePos), "%s defines no %s", target.path, name.Name)
	}
}

// findLoadCycles reports scripts that load themselves, each cycle once.
func (p *repoParser) findLoadCycles() {
	const visiting, done = 1, 2
	state := map[string]int{}
	var visit func(f *starlarkFile, trail []string)
	visit = func(f *starlarkFile, trail []string) {
		state[f.path] = visiting
		trail = append(trail, f.path)
		for _, load := range f.loads {
			target := p.project.starlark[loadedFile(load)]
			switch {
			case target == nil || state[target.path] == done:
			case state[target.path] == visiting:
				cycle := append(slices.Clone(trail[slices.Index(trail, target.path):]), target.path)
				p.problems.add(starlarkPosition(f.path, load.Module.TokenPos), "the scripts load each other: %s; move what both need to a third file",
					strings.Join(cycle, " → "))
			default:
				visit(target, trail)
			}
		}
		state[f.path] = done
	}
	for _, file := range slices.SortedFunc(maps.Values(p.project.starlark), func(a, b *starlarkFile) int { return cmp.Compare(a.path, b.path) }) {
		if state[file.path] == 0 {
			visit(file, nil)
		}
	}
}
