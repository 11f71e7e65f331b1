// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"go.starlark.net/syntax"

	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/jsonschema"
)

const (
	// contextParameter is the parameter of scripts that gets the context of the run. Models do not see it.
	contextParameter = "context"
	// maxToolName is the maximum length of the name that models see, in bytes.
	maxToolName = 64
	toolsFolder = "tools/"
)

// ScriptTool is a public function of a script in tools/.
type ScriptTool struct {
	// Reference names the tool in agents: folder.file.function.
	Reference string
	// File and Function are the script and the name of the function.
	File, Function string
	// Description is the first paragraph of the docstring.
	Description string
	// Parameters is the JSON Schema of the arguments, an object.
	Parameters map[string]any
	// Schema checks arguments against Parameters.
	Schema *jsonschema.Schema
	// Idempotent is true if an interrupted call can begin again.
	Idempotent bool
	// TakesContext is true if the function has the parameter context.
	TakesContext bool
	// Position is the position of the function.
	Position Position

	problems Problems
}

// Name is the name that models see.
func (t *ScriptTool) Name() string { return strings.ReplaceAll(t.Reference, ".", "_") }

// ScriptTool returns the tool with a reference such as orders.refunds.create. It returns false if there is no such
// function, or if its docstring does not describe its parameters.
func (p *Project) ScriptTool(reference string) (*ScriptTool, bool) {
	tool := p.scriptTool(reference)
	if tool == nil || len(tool.problems) > 0 {
		return nil, false
	}
	return tool, true
}

// ScriptTools returns the tools that a reference or a wildcard names. The wildcard orders.refunds.* names all public
// functions of tools/orders/refunds.star, in the order of the file.
func (p *Project) ScriptTools(pattern string) (tools []*ScriptTool) {
	for _, reference := range p.scriptReferences(pattern) {
		if tool, ok := p.ScriptTool(reference); ok {
			tools = append(tools, tool)
		}
	}
	return tools
}

// scriptReferences returns the references of the functions that a reference or a wildcard names.
func (p *Project) scriptReferences(pattern string) (references []string) {
	stem, wildcard := strings.CutSuffix(pattern, ".*")
	if !wildcard {
		if p.scriptTool(pattern) == nil {
			return nil
		}
		return []string{pattern}
	}
	f := p.starlark[scriptPath(stem)]
	if f == nil {
		return nil
	}
	for _, def := range f.functions {
		reference := stem + "." + def.Name.Name
		if isPublic(def) && f.function(def.Name.Name) == def {
			references = append(references, reference)
		}
	}
	return references
}

// scriptPath returns the script of a reference without its function.
func scriptPath(stem string) string {
	return toolsFolder + strings.ReplaceAll(stem, ".", "/") + ".star"
}

func isPublic(def *syntax.DefStmt) bool { return !strings.HasPrefix(def.Name.Name, "_") }

// scriptTool returns the tool with a reference, also if it has problems, or nil.
func (p *Project) scriptTool(reference string) *ScriptTool {
	at := strings.LastIndexByte(reference, '.')
	if at < 0 {
		return nil
	}
	f := p.starlark[scriptPath(reference[:at])]
	if f == nil {
		return nil
	}
	def := f.function(reference[at+1:])
	if def == nil || !isPublic(def) {
		return nil
	}
	if known, ok := p.scriptTools.Load(reference); ok {
		tool, _ := known.(*ScriptTool)
		return tool
	}
	tool := p.newScriptTool(f, def, reference)
	p.scriptTools.Store(reference, tool)
	return tool
}

// newScriptTool describes a function from its signature and its docstring.
func (p *Project) newScriptTool(f *starlarkFile, def *syntax.DefStmt, reference string) *ScriptTool {
	t := &ScriptTool{Reference: reference, File: f.path, Function: def.Name.Name, Position: starlarkPosition(f.path, def.Name.NamePos)}
	if len(t.Name()) > maxToolName {
		t.problems.add(t.Position, "the name %s has %d bytes, at most %d are allowed; shorten a folder, the file or the function",
			t.Name(), len(t.Name()), maxToolName)
	}
	text, at := docstringOf(f.path, def)
	doc := parseDocstring(text, at)
	t.problems = append(t.problems, doc.problems...)
	t.Description, t.Idempotent = doc.description, doc.idempotent
	if t.Description == "" {
		t.problems.add(t.Position, "tool %s needs a docstring that describes it for the model", reference)
	}
	parameters := t.readSignature(f.path, def)
	switch {
	case doc.schema != "":
		t.useSchema(p.Files, doc, parameters)
	default:
		t.Parameters = t.buildSchema(doc, parameters)
	}
	if len(t.problems) == 0 {
		t.compileSchema()
	}
	return t
}

// compileSchema compiles the schema of a tool without other problems.
func (t *ScriptTool) compileSchema() {
	schema, err := jsonschema.Compile(t.Parameters)
	if err != nil {
		t.problems.add(t.Position, "the JSON Schema of the parameters of %s is invalid: %v", t.Reference, err)
		return
	}
	t.Schema = schema
}

// docstringOf returns the docstring of a function and its position, "" without one.
func docstringOf(file string, def *syntax.DefStmt) (string, Position) {
	if stmt, ok := def.Body[0].(*syntax.ExprStmt); ok {
		if literal, ok := stmt.X.(*syntax.Literal); ok && literal.Token == syntax.STRING {
			text, _ := literal.Value.(string)
			return text, starlarkPosition(file, literal.TokenPos)
		}
	}
	return "", starlarkPosition(file, def.Name.NamePos)
}

// scriptParameter is a parameter of a function.
type scriptParameter struct {
	name string
	at   Position
	// defaultExpr is nil for a parameter without a default.
	defaultExpr syntax.Expr
}

// readSignature returns the parameters that the model fills.
func (t *ScriptTool) readSignature(file string, def *syntax.DefStmt) (parameters []scriptParameter) {
	for _, param := range def.Params {
		switch x := param.(type) {
		case *syntax.Ident:
			parameters = append(parameters, scriptParameter{x.Name, starlarkPosition(file, x.NamePos), nil})
		case *syntax.BinaryExpr: // name=default
			name, _ := x.X.(*syntax.Ident)
			parameters = append(parameters, scriptParameter{name.Name, starlarkPosition(file, name.NamePos), x.Y})
		case *syntax.UnaryExpr:
			if x.X != nil {
				t.problems.add(starlarkPosition(file, x.OpPos), "a tool cannot have *args or **kwargs; name its parameters")
			}
		}
	}
	isContext := func(p scriptParameter) bool { return p.name == contextParameter }
	t.TakesContext = slices.ContainsFunc(parameters, isContext)
	return slices.DeleteFunc(parameters, isContext)
}

// buildSchema returns the JSON Schema of the parameters that the docstring describes.
func (t *ScriptTool) buildSchema(doc *docstring, parameters []scriptParameter) map[string]any {
	properties := map[string]any{}
	required := []any{}
	for _, p := range parameters {
		line := doc.args[p.name]
		if line == nil {
			t.problems.add(p.at, "parameter %s has no line in the section Args of the docstring; add one such as: %s (string): Its meaning.", p.name, p.name)
			continue
		}
		schema := line.schema()
		switch {
		case line.invalid:
		case p.defaultExpr != nil:
			t.checkDefault(line, p, schema)
		case line.optional:
			t.problems.add(p.at, "parameter %s is optional and has no default; write %s=None", p.name, p.name)
		default:
			required = append(required, p.name)
		}
		properties[p.name] = schema
	}
	for _, name := range slices.Sorted(maps.Keys(doc.args)) {
		if !slices.ContainsFunc(parameters, func(p scriptParameter) bool { return p.name == name }) {
			t.problems.add(doc.args[name].at, "function %s has no parameter %s that the model fills; remove the line", t.Function, name)
		}
	}
	return map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
}

// checkDefault adds a default to a parameter's schema. None means that the parameter is absent.
func (t *ScriptTool) checkDefault(line *docArgument, p scriptParameter, schema map[string]any) {
	value, ok := literalValue(p.defaultExpr)
	switch problem := ""; {
	case !ok:
		t.problems.add(p.at, "the default of parameter %s must be a literal value", p.name)
	case value == nil:
	default:
		if problem = line.misfit(value); problem != "" {
			t.problems.add(p.at, "the default of parameter %s does not fit its line in the docstring: %s", p.name, problem)
			return
		}
		schema["default"] = value
	}
}

// maxSchemaFile limits a file in schemas/ in bytes.
const maxSchemaFile = 64 << 10

// useSchema takes the schema of the parameters from a file in schemas/.
func (t *ScriptTool) useSchema(files Files, doc *docstring, parameters []scriptParameter) {
	file := "schemas/" + doc.schema + ".json"
	text, ok := files[file]
	switch {
	case !ok:
		t.problems.add(doc.schemaAt, "the schema %s does not exist", file)
		return
	case len(text) > maxSchemaFile:
		t.problems.add(doc.schemaAt, "%s has %d bytes, at most %d are allowed", file, len(text), maxSchemaFile)
		return
	case len(doc.args) > 0:
		t.problems.add(doc.schemaAt, "a docstring has either Args or Schema; remove one")
	}
	if err := exactjson.Decode(text, &t.Parameters); err != nil || t.Parameters["type"] != "object" {
		t.problems.add(doc.schemaAt, "%s must be a JSON Schema with the type object", file)
		return
	}
	inlined, err := jsonschema.Inline(t.Parameters, t.Parameters)
	if err != nil {
		t.problems.add(doc.schemaAt, "%s: %v", file, err)
		return
	}
	t.Parameters, _ = inlined.(map[string]any)
	properties, _ := t.Parameters["properties"].(map[string]any)
	required, _ := t.Parameters["required"].([]any)
	for _, p := range parameters {
		_, described := properties[p.name]
		switch {
		case !described:
			t.problems.add(p.at, "parameter %s is no property of %s; add it", p.name, file)
		case p.defaultExpr == nil && !slices.Contains(required, any(p.name)):
			t.problems.add(p.at, "parameter %s has no default, so %s must require it", p.name, file)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if !slices.ContainsFunc(parameters, func(p scriptParameter) bool { return p.name == name }) {
			t.problems.add(t.Position, "function %s has no parameter %s, which is a property of %s; add it", t.Function, name, file)
		}
	}
}

// checkScriptTool checks a reference of an agent to a tool in tools/, or a wildcard.
func (p *repoParser) checkScriptTool(at Position, reference string) {
	stem := strings.TrimSuffix(reference, path.Ext(reference))
	file := scriptPath(stem)
	f := p.project.starlark[file]
	references := p.project.scriptReferences(reference)
	switch {
	case !p.hasFile(file):
		p.problems.add(at, "tool %q needs the file %s.yaml or %s, which does not exist", reference, strings.TrimSuffix(file, path.Ext(file)), file)
	case f == nil: // The file's own problems are reported.
	case len(references) == 0:
		p.problems.add(at, "tool %q: %s has no such public function%s", reference, file, knownFunctions(f))
	}
	for _, reference := range references {
		for _, problem := range p.project.scriptTool(reference).problems {
			p.problems.append(problem)
		}
	}
}

// knownFunctions returns the public functions of a script for a message.
func knownFunctions(f *starlarkFile) string {
	var names []string
	for _, def := range f.functions {
		if isPublic(def) {
			names = append(names, def.Name.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf("; it has %s", strings.Join(names, ", "))
}
