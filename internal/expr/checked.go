// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
)

const (
	// maxNesting limits the depth of lists, maps and macros such as map.
	maxNesting = 12
	// maxWeight limits the types of an expression. CEL's checker formats each type, and a macro
	// over the maps of another macro doubles the types.
	maxWeight = 2_000
)

// checkExpression parses and checks a text of at most MaxSize bytes. It rejects expressions that would take
// the checker long.
func checkExpression(environment *cel.Env, expression string) (*cel.Ast, error) {
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
	if w.weighType(parsed.NativeRep().Expr()); w.deepest > maxNesting {
		return nil, fmt.Errorf("lists, maps and macros are nested more than %d levels deep", maxNesting)
	} else if w.total > maxWeight {
		return nil, fmt.Errorf("the types of its values are too large; simplify the ranges of its macros, such as map and exists")
	}
	checked, issues := environment.Check(parsed)
	if issues.Err() != nil {
		return nil, firstOf(issues)
	}
	return checked, unpriced(checked.NativeRep())
}

// weighing estimates an upper bound of the number of types in an expression without the checker.
type weighing struct {
	of             map[string]int // by the variable of a macro
	depth, deepest int
	total          int
}

// weighType returns an upper bound of the number of types in the type of an expression.
func (w *weighing) weighType(e ast.Expr) (weight int) {
	if w.total > maxWeight || w.deepest > maxNesting {
		return 0 // the limit is already exceeded
	}
	switch e.Kind() {
	case ast.ListKind, ast.MapKind, ast.StructKind, ast.ComprehensionKind:
		w.depth++
		w.deepest = max(w.deepest, w.depth)
		weight = w.nestedWeight(e)
		w.depth--
	case ast.IdentKind:
		weight = max(1, w.of[e.AsIdent()])
	case ast.SelectKind:
		weight = w.weighType(e.AsSelect().Operand())
	case ast.CallKind:
		// A call has its own type, or a type that an argument contains.
		weight = w.highestWeight(e.AsCall().Args())
		if e.AsCall().IsMemberFunction() {
			weight = max(weight, w.weighType(e.AsCall().Target()))
		}
	default:
		weight = 1
	}
	w.total += weight
	return weight
}

// highestWeight returns the highest weight of some expressions, at least 1.
func (w *weighing) highestWeight(of []ast.Expr) int {
	weight := 1
	for _, e := range of {
		weight = max(weight, w.weighType(e))
	}
	return weight
}

// nestedWeight returns the weight of a list, a map or the result of a macro. Elements have one common
// type.
func (w *weighing) nestedWeight(e ast.Expr) int {
	switch e.Kind() {
	case ast.ListKind:
		return 1 + w.highestWeight(e.AsList().Elements())
	case ast.MapKind:
		keys, values := 1, 1
		for _, entry := range e.AsMap().Entries() {
			keys = max(keys, w.weighType(entry.AsMapEntry().Key()))
			values = max(values, w.weighType(entry.AsMapEntry().Value()))
		}
		return 1 + keys + values
	case ast.ComprehensionKind:
		return w.loopWeight(e.AsComprehension())
	}
	for _, field := range e.AsStruct().Fields() {
		w.weighType(field.AsStructField().Value())
	}
	return 1
}

// loopWeight returns the weight of the result of a macro, including its variables.
func (w *weighing) loopWeight(c ast.ComprehensionExpr) int {
	over, begun := w.weighType(c.IterRange()), w.weighType(c.AccuInit())
	defer w.bindVariable(c.IterVar(), over)()
	defer w.bindVariable(c.IterVar2(), over)()
	defer w.bindVariable(c.AccuVar(), begun)()
	w.weighType(c.LoopCondition())
	defer w.bindVariable(c.AccuVar(), max(begun, w.weighType(c.LoopStep())))()
	return w.weighType(c.Result())
}

// bindVariable sets the weight of a variable until end is called.
func (w *weighing) bindVariable(variable string, weight int) (end func()) {
	before, bound := w.of[variable]
	w.of[variable] = weight
	return func() {
		if delete(w.of, variable); bound {
			w.of[variable] = before
		}
	}
}
