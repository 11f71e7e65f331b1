// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
)

const (
	// maxNesting is how deep lists and maps may lie in each other, and macros such as map.
	maxNesting = 12
	// maxWeight bounds the types of an expression: CEL's checker writes out each, and a macro
	// that runs over maps of what another one runs over makes types that double with each.
	maxWeight = 2_000
)

// check makes a checked expression of a text, which has at most MaxSize bytes. What the checker
// would take long for is refused before.
func check(environment *cel.Env, expression string) (*cel.Ast, error) {
	if len(expression) > MaxSize {
		return nil, fmt.Errorf("the expression has more than %d bytes", MaxSize)
	}
	parsed, issues := environment.Parse(expression)
	if issues.Err() != nil {
		return nil, firstOf(issues)
	}
	if err := prepare(parsed.NativeRep()); err != nil {
		return nil, err
	}
	w := weighing{of: map[string]int{}}
	if w.weigh(parsed.NativeRep().Expr()); w.deepest > maxNesting {
		return nil, fmt.Errorf("lists, maps and macros lie more than %d deep in each other", maxNesting)
	} else if w.total > maxWeight {
		return nil, fmt.Errorf("the types of its values are too large: simplify what its macros, such as map and exists, run over")
	}
	checked, issues := environment.Check(parsed)
	if issues.Err() != nil {
		return nil, firstOf(issues)
	}
	return checked, unpriced(checked.NativeRep())
}

// weighing adds up how many types there are in the types of all that an expression has in it, at
// most, as far as that is known without the checker.
type weighing struct {
	of             map[string]int // by the variable of a macro
	depth, deepest int
	total          int
}

// weigh is how many types the type of an expression has in it, at most.
func (w *weighing) weigh(e ast.Expr) (weight int) {
	if w.total > maxWeight || w.deepest > maxNesting {
		return 0 // it is too much already
	}
	switch e.Kind() {
	case ast.ListKind, ast.MapKind, ast.StructKind, ast.ComprehensionKind:
		w.depth++
		w.deepest = max(w.deepest, w.depth)
		weight = w.nested(e)
		w.depth--
	case ast.IdentKind:
		weight = max(1, w.of[e.AsIdent()])
	case ast.SelectKind:
		weight = w.weigh(e.AsSelect().Operand())
	case ast.CallKind:
		// What a call comes to is of a type of its own, or of one that an argument has in it.
		weight = w.most(e.AsCall().Args())
		if e.AsCall().IsMemberFunction() {
			weight = max(weight, w.weigh(e.AsCall().Target()))
		}
	default:
		weight = 1
	}
	w.total += weight
	return weight
}

// most is the weight of the heaviest of some expressions, 1 at least.
func (w *weighing) most(of []ast.Expr) int {
	weight := 1
	for _, e := range of {
		weight = max(weight, w.weigh(e))
	}
	return weight
}

// nested is the weight of a list, a map or what a macro comes to. Elements have one type together.
func (w *weighing) nested(e ast.Expr) int {
	switch e.Kind() {
	case ast.ListKind:
		return 1 + w.most(e.AsList().Elements())
	case ast.MapKind:
		keys, values := 1, 1
		for _, entry := range e.AsMap().Entries() {
			keys = max(keys, w.weigh(entry.AsMapEntry().Key()))
			values = max(values, w.weigh(entry.AsMapEntry().Value()))
		}
		return 1 + keys + values
	case ast.ComprehensionKind:
		return w.loop(e.AsComprehension())
	}
	for _, field := range e.AsStruct().Fields() {
		w.weigh(field.AsStructField().Value())
	}
	return 1
}

// loop is the weight of what a macro comes to, with its variables in it.
func (w *weighing) loop(c ast.ComprehensionExpr) int {
	over, begun := w.weigh(c.IterRange()), w.weigh(c.AccuInit())
	defer w.bind(c.IterVar(), over)()
	defer w.bind(c.IterVar2(), over)()
	defer w.bind(c.AccuVar(), begun)()
	w.weigh(c.LoopCondition())
	defer w.bind(c.AccuVar(), max(begun, w.weigh(c.LoopStep())))()
	return w.weigh(c.Result())
}

// bind gives a variable its weight, until what it returns is called.
func (w *weighing) bind(variable string, weight int) (end func()) {
	before, bound := w.of[variable]
	w.of[variable] = weight
	return func() {
		if delete(w.of, variable); bound {
			w.of[variable] = before
		}
	}
}
