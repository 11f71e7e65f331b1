// SPDX-License-Identifier: Apache-2.0

package script

import (
	"fmt"
	"slices"
	"strings"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"github.com/agentplatform/agentplatform/bundle"
)

// signature are the parameters of a built-in.
type signature struct {
	name   string
	names  []string
	values []starlark.Value // defaults, nil without one
	// varargs and kwargs tell whether the function takes *args and **kwargs.
	varargs, kwargs bool
}

// parseSignature parses the parameters of the table of built-ins.
func parseSignature(name, text string) (*signature, error) {
	file, err := bundle.ScriptOptions().Parse(name, "def f("+text+"): pass", 0)
	if err != nil {
		return nil, err
	}
	s := &signature{name: name}
	def, _ := file.Stmts[0].(*syntax.DefStmt)
	for _, param := range def.Params {
		switch x := param.(type) {
		case *syntax.Ident:
			s.names, s.values = append(s.names, x.Name), append(s.values, nil)
		case *syntax.BinaryExpr:
			value, err := starlark.EvalExprOptions(bundle.ScriptOptions(), new(starlark.Thread), x.Y, nil)
			if err != nil {
				return nil, err
			}
			value.Freeze()
			id, _ := x.X.(*syntax.Ident)
			s.names, s.values = append(s.names, id.Name), append(s.values, value)
		case *syntax.UnaryExpr:
			s.varargs, s.kwargs = s.varargs || x.Op == syntax.STAR, s.kwargs || x.Op == syntax.STARSTAR
		}
	}
	return s, nil
}

// bind matches the arguments of a call with the parameters.
func (s *signature) bindArguments(args starlark.Tuple, kwargs []starlark.Tuple) (*arguments, error) {
	a := &arguments{signature: s, values: slices.Clone(s.values)}
	if len(args) > len(s.names) {
		if !s.varargs {
			return nil, fmt.Errorf("%s takes at most %d arguments (%s)", s.name, len(s.names), strings.Join(s.names, ", "))
		}
		a.rest = args[len(s.names):]
		args = args[:len(s.names)]
	}
	copy(a.values, args)
	for _, pair := range kwargs {
		name, _ := starlark.AsString(pair[0])
		switch i := slices.Index(s.names, name); {
		case i >= 0 && i < len(args):
			return nil, fmt.Errorf("%s got two values for %s", s.name, name)
		case i >= 0:
			a.values[i] = pair[1]
		case !s.kwargs:
			return nil, fmt.Errorf("%s has no parameter %s; it has %s", s.name, name, strings.Join(s.names, ", "))
		default:
			a.fields = append(a.fields, pair)
		}
	}
	for i, value := range a.values {
		if value == nil {
			return nil, fmt.Errorf("%s needs the argument %s", s.name, s.names[i])
		}
	}
	return a, nil
}

// arguments are the arguments of a call of a built-in. The methods that return them remember the first error, so that a
// built-in checks err once.
type arguments struct {
	*signature
	values []starlark.Value
	rest   starlark.Tuple
	fields []starlark.Tuple
	err    error
}

func (a *arguments) mismatch(i int, want string) {
	if a.err == nil {
		a.err = fmt.Errorf("%s: %s must be %s, not %s", a.name, a.names[i], want, a.values[i].Type())
	}
}

func (a *arguments) textArg(i int) string {
	text, ok := starlark.AsString(a.values[i])
	if !ok {
		a.mismatch(i, "a string")
	}
	return text
}

func (a *arguments) flagArg(i int) bool {
	flag, ok := a.values[i].(starlark.Bool)
	if !ok {
		a.mismatch(i, "a bool")
	}
	return bool(flag)
}

func (a *arguments) floatArg(i int) float64 {
	f, ok := starlark.AsFloat(a.values[i])
	if !ok {
		a.mismatch(i, "a number")
	}
	return f
}

func (a *arguments) integer(i int) int64 {
	n, ok := a.values[i].(starlark.Int)
	if !ok {
		a.mismatch(i, "an int")
		return 0
	}
	small, fits := n.Int64()
	if !fits && a.err == nil {
		a.err = fmt.Errorf("%s: %s is too large", a.name, a.names[i])
	}
	return small
}
