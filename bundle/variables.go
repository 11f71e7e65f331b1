// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"cmp"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.starlark.net/syntax"

	"github.com/agentplatform/agentplatform/internal/expand"
)

// Values of the tag variables.
const (
	variablesPrompt = "prompt"
	variablesPlain  = "plain"
	variablesAny    = "any"
)

// PromptVariable begins a placeholder of a prompt for a variable of the environment.
const PromptVariable = "env."

var (
	// PromptPlaceholder matches a placeholder of a prompt.
	PromptPlaceholder = regexp.MustCompile(`\{[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_-]*)*\}`)
	// plainBraces matches a name in braces that does not follow a $.
	plainBraces = regexp.MustCompile(`(?:^|[^${])(\{\{? *[A-Za-z_][A-Za-z0-9_.-]* *\}?\})`)
	// VariableName is the form of the name of an environment's variable.
	VariableName = regexp.MustCompile(`^[A-Z_][A-Z0-9_]{0,127}$`)
)

// VariableUse is a place of a repository that names a variable of the environment.
type VariableUse struct {
	Name string
	// Written is the reference, such as {env.NAME}, ${NAME} or env("NAME").
	Written  string
	Position Position
	// AllowsSensitive is true if the variable may be sensitive.
	AllowsSensitive bool
}

// VariableUses returns the places that name variables: in the keys whose fields have the tag variables, and in calls of env
// with a literal name. They are in the order of files and positions.
func (p *Project) VariableUses() (uses []VariableUse) {
	walk := func(t reflect.Type, n *node) {
		eachVariableText(t, n, func(f *field, n *node, text string) {
			for _, name := range variableNames(f.variables, text) {
				written := "${" + name + "}"
				if f.variables == variablesPrompt {
					written = "{" + PromptVariable + name + "}"
				}
				uses = append(uses, VariableUse{name, written, n.pos, f.variables == variablesAny})
			}
		})
	}
	for _, a := range p.Agents {
		walk(reflect.TypeFor[Agent](), a.source)
	}
	for _, c := range p.Connectors {
		walk(reflect.TypeFor[Connector](), c.source)
	}
	for _, source := range p.toolFiles {
		walk(reflect.TypeFor[ToolFile](), source)
	}
	for _, f := range p.starlark {
		for _, v := range f.variables {
			uses = append(uses, VariableUse{v.name, "env(" + strconv.Quote(v.name) + ")", v.at, true})
		}
	}
	slices.SortFunc(uses, func(a, b VariableUse) int {
		return cmp.Or(cmp.Compare(a.Position.File, b.Position.File), cmp.Compare(a.Position.Line, b.Position.Line),
			cmp.Compare(a.Position.Column, b.Position.Column), cmp.Compare(a.Name, b.Name))
	})
	return slices.Compact(uses) // Agents share the values of files of defaults.
}

// PlainBraces returns the placeholders without $ in the URLs and headers of agents, where ${NAME} stands for a variable. They are
// sent as they are.
func (p *Project) PlainBraces() (problems Problems) {
	for _, a := range p.Agents {
		eachVariableText(reflect.TypeFor[Agent](), a.source, func(f *field, n *node, text string) {
			if f.name != "url" && f.name != "base_url" && f.name != "headers" {
				return
			}
			if found := plainBraces.FindStringSubmatch(text); found != nil {
				problems = append(problems, Problem{Position: n.pos, Message: found[1] +
					" never gets a value here; write ${NAME} for a variable of the environment"})
			}
		})
	}
	return problems
}

// eachVariableText calls use for each text of a value that can name variables, by the tags of the value's type.
func eachVariableText(t reflect.Type, n *node, use func(f *field, n *node, text string)) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Slice:
		for _, item := range n.items {
			eachVariableText(t.Elem(), item, use)
		}
	case reflect.Map:
		for _, e := range n.entries {
			eachVariableText(t.Elem(), e.value, use)
		}
	case reflect.Struct:
		for _, f := range fieldsOf(t).ordered {
			switch value := n.findNode(f.name); {
			case value == nil:
			case f.variables != "":
				value.eachText(func(n *node, text string) { use(f, n, text) })
			default:
				eachVariableText(f.goType, value, use)
			}
		}
	}
}

// eachText calls use for each text of a value, except names of keys.
func (n *node) eachText(use func(n *node, text string)) {
	for _, item := range n.items {
		item.eachText(use)
	}
	for _, e := range n.entries {
		e.value.eachText(use)
	}
	if text, isText := n.scalar.(string); isText {
		use(n, text)
	}
}

// variableNames returns the names of the variables in a text whose field has a tag variables.
func variableNames(tag, text string) []string {
	if tag == variablesPrompt {
		return PromptVariables(text)
	}
	none := expand.Expansion{Lookup: func(string) (string, bool) { return "", false }}
	_, _, _ = ExpandContext(text, &none, func(string) (string, bool) { return "", true }) // Malformed texts are reported already.
	return none.Missing()
}

// PromptVariables returns the names of the environment's variables in a system prompt in order.
func PromptVariables(prompt string) (names []string) {
	for _, written := range PromptPlaceholder.FindAllString(prompt, -1) {
		if name, isVariable := strings.CutPrefix(written[1:len(written)-1], PromptVariable); isVariable && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// literalVariable returns the literal name of the variable that a call of env asks for.
func literalVariable(call *syntax.CallExpr) (name *syntax.Literal) {
	function, ok := call.Fn.(*syntax.Ident)
	if !ok || function.Name != "env" || !isPredeclared(function) || len(call.Args) != 1 {
		return nil
	}
	argument := call.Args[0]
	if named, ok := argument.(*syntax.BinaryExpr); ok && named.Op == syntax.EQ {
		argument = named.Y
	}
	if literal, ok := argument.(*syntax.Literal); ok && literal.Token == syntax.STRING {
		return literal
	}
	return nil
}
