// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"fmt"
	"math"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/env"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"

	"github.com/agentplatform/agentplatform/internal/pattern"
)

const (
	// matches is the CEL function with a regular expression.
	matches = "matches"
	// reads is a function that no expression can name. It returns its argument, and its price is
	// the cost of reading it.
	reads = "@reads"
)

// priced declares reads.
var priced = cel.Function(reads, cel.Overload("reads", []*cel.Type{cel.TypeParamType("A")}, cel.TypeParamType("A"),
	cel.UnaryBinding(func(v ref.Val) ref.Val { return v })))

// written rejects computed patterns, because only the cost of a constant pattern is known before it
// is compiled.
type written struct{}

// Name implements cel.ASTValidator.
func (written) Name() string { return "written" }

// ToConfig implements cel.ASTValidator.
func (written) ToConfig() *env.Validator { return env.NewValidator("written") }

// Validate implements cel.ASTValidator.
func (written) Validate(_ *cel.Env, _ cel.ValidatorConfig, a *ast.AST, issues *cel.Issues) {
	for _, call := range ast.MatchDescendants(ast.NavigateAST(a), ast.FunctionMatcher(matches)) {
		args := call.AsCall().Args() // without the receiver
		last := args[len(args)-1]
		text, isText := "", false
		if last.Kind() == ast.LiteralKind {
			text, isText = last.AsLiteral().Value().(string)
		}
		if !isText {
			issues.ReportErrorAtID(last.ID(), "the pattern of matches must be a string literal")
		} else if _, _, err := pattern.Compile(text); err != nil {
			issues.ReportErrorAtID(last.ID(), "the pattern of matches: %v", err)
		}
	}
}

// prepare checks that all functions of a parsed expression have a price, and adds a price to values
// that CEL reads without a call: keys of maps, and ranges of macros.
func prepare(a *ast.AST) (err error) {
	factory, next := ast.NewExprFactory(), ast.MaxID(a)
	read := func(e ast.Expr) {
		if e.Kind() == ast.LiteralKind || e.Kind() == ast.ListKind {
			return
		}
		next++
		if at, known := a.SourceInfo().GetOffsetRange(e.ID()); known {
			a.SourceInfo().SetOffsetRange(next, at)
		}
		inner := factory.NewUnspecifiedExpr(next)
		inner.SetKindCase(e)
		e.SetKindCase(factory.NewCall(e.ID(), reads, inner))
	}
	ast.PostOrderVisit(a.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.StructKind:
			err = fmt.Errorf("messages such as %s{} are not supported; use maps", e.AsStruct().TypeName())
		case ast.MapKind:
			for _, entry := range e.AsMap().Entries() {
				read(entry.AsMapEntry().Key())
			}
		case ast.ComprehensionKind:
			read(e.AsComprehension().IterRange())
		case ast.CallKind:
			if call := e.AsCall(); call.FunctionName() == operators.Index && len(call.Args()) > 1 {
				read(call.Args()[1])
			}
		}
	}))
	return err
}

// unpriced returns the first function of a checked expression without a price.
func unpriced(a *ast.AST) (err error) {
	ast.PostOrderVisit(a.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind {
			return
		}
		if _, known := prices[e.AsCall().FunctionName()]; !known && err == nil {
			err = fmt.Errorf("the function %s is not supported", e.AsCall().FunctionName())
		}
	}))
	return err
}

// planned creates a program whose evaluation costs at most limit. Each step of a loop costs its
// nodes, and each call costs its price, before it begins.
func planned(environment *cel.Env, checked *cel.Ast, limit uint64) (*evaluation, error) {
	p := &plan{steps: map[int64]uint64{}}
	nodes := p.weighNode(checked.NativeRep().Expr())
	var err error
	if p.bindings, err = bindingsOf(environment); err != nil {
		return nil, err
	}
	program, err := environment.Program(checked, cel.CustomDecoratorV2(p.decorate))
	return &evaluation{program: program, limit: limit, nodes: nodes}, err
}

// bindingsOf returns the implementations of the functions with a price.
func bindingsOf(environment *cel.Env) (map[string]*functions.Overload, error) {
	out := map[string]*functions.Overload{}
	for name, function := range environment.Functions() {
		if prices[name] == nil {
			continue
		}
		all, err := function.Bindings()
		if err != nil {
			return nil, err
		}
		for _, b := range all {
			out[b.Operator] = b
		}
	}
	return out, nil
}

// plan converts an expression to a program.
type plan struct {
	bindings map[string]*functions.Overload
	// steps is the cost of one step of a loop by the ID of its condition.
	steps map[int64]uint64
}

// The weights of nodes that allocate more than a value.
const listWeight, mapWeight, entryWeight, loopWeight = 5, 10, 8, 10

// weighNode returns the cost of nodes that are evaluated at most once, and records the cost of loops.
func (p *plan) weighNode(e ast.Expr) uint64 {
	sum := uint64(1)
	switch e.Kind() {
	case ast.SelectKind:
		sum += p.weighNode(e.AsSelect().Operand())
	case ast.CallKind:
		if e.AsCall().IsMemberFunction() {
			sum += p.weighNode(e.AsCall().Target())
		}
		for _, arg := range e.AsCall().Args() {
			sum += p.weighNode(arg)
		}
	case ast.ListKind:
		sum += listWeight
		for _, element := range e.AsList().Elements() {
			sum += p.weighNode(element)
		}
	case ast.MapKind:
		sum += mapWeight
		for _, entry := range e.AsMap().Entries() {
			sum += entryWeight + p.weighNode(entry.AsMapEntry().Key()) + p.weighNode(entry.AsMapEntry().Value())
		}
	case ast.ComprehensionKind:
		loop := e.AsComprehension()
		p.steps[loop.LoopCondition().ID()] = p.weighNode(loop.LoopCondition()) + p.weighNode(loop.LoopStep())
		sum += loopWeight + p.weighNode(loop.IterRange()) + p.weighNode(loop.AccuInit()) + p.weighNode(loop.Result())
	}
	return sum
}

// decorate charges the price of a call before the call, and the price of a loop's step before each
// step.
func (p *plan) decorate(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	id := i.ID()
	if call, isCall := i.(interpreter.InterpretableCall); isCall {
		made, err := p.pricedCallOf(call)
		if err != nil {
			return nil, err
		}
		i = made
	}
	if cost := p.steps[id]; cost > 0 {
		return &step{InterpretableV2: i, cost: cost}, nil
	}
	return i, nil
}

// pricedCallOf returns a call with its price.
func (p *plan) pricedCallOf(call interpreter.InterpretableCall) (interpreter.InterpretableV2, error) {
	cost, known := prices[call.Function()]
	if !known {
		return nil, fmt.Errorf("the function %s is not supported", call.Function())
	}
	if cost == nil {
		return call, nil
	}
	out := &pricedCall{InterpretableCall: call, price: cost}
	switch call.Function() {
	case operators.Equals:
		out.do = func(args ...ref.Val) ref.Val { return types.Equal(args[0], args[1]) }
	case operators.NotEquals:
		out.do = func(args ...ref.Val) ref.Val { return types.Bool(types.Equal(args[0], args[1]) != types.True) }
	case matches:
		text := call.Args()[1].(interpreter.InterpretableConst).Value().(types.String) // written guarantees it
		return out, out.matchPattern(string(text))
	default:
		bound := p.bindings[call.OverloadID()]
		if bound == nil {
			bound = p.bindings[call.Function()]
		}
		if bound == nil {
			return nil, fmt.Errorf("the function %s has no implementation", call.Function())
		}
		out.do = callFunction(bound, call)
	}
	return out, nil
}

// matchPattern compiles the pattern of a call once. Its price is CEL's price of a match, with the
// instructions of the pattern instead of its bytes.
func (c *pricedCall) matchPattern(text string) error {
	compiled, size, err := pattern.Compile(text)
	if err != nil {
		return err
	}
	each := uint64(math.Ceil(float64(size) * common.RegexStringLengthCostFactor))
	c.price = func(args []ref.Val, _ uint64) uint64 { return readUnits(1+textSize(args[0])) * each }
	c.do = func(args ...ref.Val) ref.Val {
		if in, isText := args[0].(types.String); isText {
			return types.Bool(compiled.MatchString(string(in)))
		}
		return types.NoSuchOverloadErr()
	}
	return nil
}

// callFunction calls an implementation like CEL.
func callFunction(b *functions.Overload, call interpreter.InterpretableCall) functions.FunctionOp {
	return func(args ...ref.Val) ref.Val {
		if b.OperandTrait == 0 || args[0].Type().HasTrait(b.OperandTrait) {
			switch {
			case len(args) == 1 && b.Unary != nil:
				return b.Unary(args[0])
			case len(args) == 2 && b.Binary != nil:
				return b.Binary(args[0], args[1])
			case b.Function != nil:
				return b.Function(args...)
			}
		}
		if of, receives := args[0].(traits.Receiver); receives {
			return of.Receive(call.Function(), call.OverloadID(), args[1:])
		}
		return types.NoSuchOverloadErr()
	}
}

// pricedCall charges its price before the call.
type pricedCall struct {
	interpreter.InterpretableCall
	price price
	do    functions.FunctionOp
}

// Exec implements interpreter.InterpretableV2.
func (c *pricedCall) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	nodes := c.Args()
	args := make([]ref.Val, len(nodes))
	for i, node := range nodes {
		if args[i] = node.Exec(frame); types.IsUnknownOrError(args[i]) {
			return args[i]
		}
	}
	m := meterOf(frame)
	m.chargeCost(c.Function(), c.price(args, m.remainingCost()))
	return types.LabelErrNode(c.ID(), c.do(args...))
}

// Eval implements interpreter.Interpretable.
func (c *pricedCall) Eval(named interpreter.Activation) ref.Val {
	return c.Exec(interpreter.AsFrame(named))
}

// step is the condition at the beginning of each step of a loop.
type step struct {
	interpreter.InterpretableV2
	cost uint64
}

// Exec implements interpreter.InterpretableV2.
func (s *step) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	meterOf(frame).chargeCost("a loop", s.cost)
	return s.InterpretableV2.Exec(frame)
}

// Eval implements interpreter.Interpretable.
func (s *step) Eval(named interpreter.Activation) ref.Val { return s.Exec(interpreter.AsFrame(named)) }
