// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"path"
	"slices"
	"strings"

	"go.starlark.net/syntax"
)

// ScriptStages are the functions of a script that wraps an agent (middleware) or its tool calls (hooks).
type ScriptStages struct {
	// File is the script.
	File string
	// Before and After tell whether the script defines these functions.
	Before, After bool
}

// scriptFolder describes the scripts of a folder that belong to agents.
type scriptFolder struct {
	name string
	// parameters are the parameters of each function.
	parameters map[string][]string
}

// StageBefore and StageAfter are the names of the functions of scripts that belong to agents.
const (
	StageBefore = "before"
	StageAfter  = "after"
)

var (
	middlewareFolder = scriptFolder{"middleware", map[string][]string{
		StageBefore: {"content", contextParameter}, StageAfter: {"response", contextParameter},
	}}
	hooksFolder = scriptFolder{"hooks", map[string][]string{
		StageBefore: {"tool", "params", contextParameter}, StageAfter: {"tool", "params", "result", contextParameter},
	}}
)

// Middleware returns the middleware of an agent, or nil.
func (p *Project) Middleware(agent string) *ScriptStages { return p.stages(middlewareFolder, agent) }

// Hooks returns the hooks of an agent's tools, or nil.
func (p *Project) Hooks(agent string) *ScriptStages { return p.stages(hooksFolder, agent) }

// SendsByMiddleware reports whether middleware of an agent, of its A/B variants, or of an agent that one of them runs, calls
// send_connector.
func (p *Project) SendsByMiddleware(agent string) bool {
	return slices.ContainsFunc(p.Agents, func(a *Agent) bool {
		return (a.Name == agent || a.VariantOf == agent) && slices.ContainsFunc(p.Steps(a.Name), func(step *Agent) bool {
			m := p.Middleware(p.BaseName(step.Name))
			return m != nil && p.usesBuiltin(p.starlark[m.File], SendConnector, map[*starlarkFile]bool{})
		})
	})
}

// usesBuiltin reports whether a script, or one that it loads, names a built-in. seen are the scripts that do not.
func (p *Project) usesBuiltin(f *starlarkFile, name string, seen map[*starlarkFile]bool) bool {
	if f == nil || seen[f] {
		return false
	}
	seen[f] = true
	return slices.ContainsFunc(f.uses, func(u scriptUse) bool { return u.name == name }) ||
		slices.ContainsFunc(f.loads, func(load *syntax.LoadStmt) bool { return p.usesBuiltin(p.starlark[loadedFile(load)], name, seen) })
}

// loadedFile returns the path of the script that a statement loads.
func loadedFile(load *syntax.LoadStmt) string {
	return strings.TrimPrefix(load.ModuleName(), loadPrefix)
}

// hasScriptsAround reports whether scripts run around an agent or its calls of tools.
func (p *Project) hasScriptsAround(a *Agent) bool {
	base := p.BaseName(a.Name)
	return p.Middleware(base) != nil || p.Hooks(base) != nil
}

func (p *Project) stages(folder scriptFolder, agent string) *ScriptStages {
	f := p.starlark[folder.name+"/"+agent+".star"]
	if f == nil {
		return nil
	}
	return &ScriptStages{File: f.path, Before: f.function(StageBefore) != nil, After: f.function(StageAfter) != nil}
}

// linkScripts checks the scripts that belong to agents.
func (p *repoParser) linkScripts() {
	for _, folder := range []scriptFolder{middlewareFolder, hooksFolder} {
		for _, file := range p.files.Paths() {
			// Scripts in folders below are libraries.
			if f := p.project.starlark[file]; f != nil && path.Dir(file) == folder.name {
				p.linkStages(folder, f)
			}
		}
	}
}

func (p *repoParser) linkStages(folder scriptFolder, f *starlarkFile) {
	p.linkAgentName(Position{File: f.path}, fileStem(f.path))
	found := false
	for _, name := range []string{StageBefore, StageAfter} {
		def := f.function(name)
		if def == nil {
			continue
		}
		found = true
		if folder.name == hooksFolder.name && name == StageAfter {
			p.rejectAbort(f, def)
		}
		if want := folder.parameters[name]; !slices.Equal(parameterNames(def), want) {
			p.problems.add(starlarkPosition(f.path, def.Name.NamePos), "%s must have the parameters: def %s(%s)", name, name, strings.Join(want, ", "))
		}
	}
	if !found {
		p.problems.add(Position{File: f.path}, "the script defines neither before nor after; nothing would call it. Move a library to %s/lib/", folder.name)
	}
}

// rejectAbort reports calls of abort in the hook after, which the runner rejects too.
func (p *repoParser) rejectAbort(f *starlarkFile, after *syntax.DefStmt) {
	begin, end := after.Span()
	for _, use := range f.uses {
		if use.name == abortCall && use.at.Line >= int(begin.Line) && use.at.Line <= int(end.Line) {
			p.problems.add(use.at, "abort is for the hook before, because the tool has run; return the result that the model sees")
		}
	}
}

// parameterNames returns the names of the parameters of a function, with stars and without defaults.
func parameterNames(def *syntax.DefStmt) (names []string) {
	for _, param := range def.Params {
		switch x := param.(type) {
		case *syntax.Ident:
			names = append(names, x.Name)
		case *syntax.BinaryExpr:
			if id, ok := x.X.(*syntax.Ident); ok {
				names = append(names, id.Name)
			}
		case *syntax.UnaryExpr:
			names = append(names, x.Op.String())
		}
	}
	return names
}
