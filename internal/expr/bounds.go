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
	// matches is the function of CEL that takes a regular expression.
	matches = "matches"
	// reads is a function that no expression can name. It returns its argument, and its price is
	// that of reading it.
	reads = "@reads"
)

// priced declares reads.
var priced = cel.Function(reads, cel.Overload("reads", []*cel.Type{cel.TypeParamType("A")}, cel.TypeParamType("A"),
	cel.UnaryBinding(func(v ref.Val) ref.Val { return v })))

// written refuses patterns that an expression computes: what one costs is known of a
// constant alone, before it is compiled.
type written struct{}

// Name implements cel.ASTValidator.
func (written) Name() string { return "written" }

// ToConfig implements cel.ASTValidator.
func (written) ToConfig() *env.Validator { return env.NewValidator("written") }

// Validate implements cel.ASTValidator.
func (written) Validate(_ *cel.Env, _ cel.ValidatorConfig, a *ast.AST, issues *cel.Issues) {
	for _, call := range ast.MatchDescendants(ast.NavigateAST(a), ast.FunctionMatcher(matches)) {
		args := call.AsCall().Args() // without what it is a method of
		last := args[len(args)-1]
		text, isText := "", false
		if last.Kind() == ast.LiteralKind {
			text, isText = last.AsLiteral().Value().(string)
		}
		if !isText {
			issues.ReportErrorAtID(last.ID(), "the pattern of matches must be a text in quotes")
		} else if _, _, err := pattern.Compile(text); err != nil {
			issues.ReportErrorAtID(last.ID(), "the pattern of matches: %v", err)
		}
	}
}

// prepare checks that all that a parsed expression does has a price, and puts a price on what CEL
// reads without a call: the keys of maps, and what a macro runs over.
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

// unpriced reports the first function of a checked expression that has no price.
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

// planned makes a program of a checked expression, of which one evaluation costs at most limit.
// Each step of a loop costs the nodes in it, and each call its price, before it begins.
func planned(environment *cel.Env, checked *cel.Ast, limit uint64) (*evaluation, error) {
	p := &plan{steps: map[int64]uint64{}}
	nodes := p.weigh(checked.NativeRep().Expr())
	var err error
	if p.bindings, err = bindingsOf(environment); err != nil {
		return nil, err
	}
	program, err := environment.Program(checked, cel.CustomDecoratorV2(p.decorate))
	return &evaluation{program: program, limit: limit, nodes: nodes}, err
}

// bindingsOf returns the implementations of the functions that have a price.
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

// plan is what an expression becomes a program by.
type plan struct {
	bindings map[string]*functions.Overload
	// steps is the cost of one step of a loop by the ID of the condition that it begins with.
	steps map[int64]uint64
}

// The weights of nodes that allocate more than a value.
const listWeight, mapWeight, entryWeight, loopWeight = 5, 10, 8, 10

// weigh returns the cost of the nodes of an expression that are evaluated at most once, and notes
// those of loops.
func (p *plan) weigh(e ast.Expr) uint64 {
	sum := uint64(1)
	switch e.Kind() {
	case ast.SelectKind:
		sum += p.weigh(e.AsSelect().Operand())
	case ast.CallKind:
		if e.AsCall().IsMemberFunction() {
			sum += p.weigh(e.AsCall().Target())
		}
		for _, arg := range e.AsCall().Args() {
			sum += p.weigh(arg)
		}
	case ast.ListKind:
		sum += listWeight
		for _, element := range e.AsList().Elements() {
			sum += p.weigh(element)
		}
	case ast.MapKind:
		sum += mapWeight
		for _, entry := range e.AsMap().Entries() {
			sum += entryWeight + p.weigh(entry.AsMapEntry().Key()) + p.weigh(entry.AsMapEntry().Value())
		}
	case ast.ComprehensionKind:
		loop := e.AsComprehension()
		p.steps[loop.LoopCondition().ID()] = p.weigh(loop.LoopCondition()) + p.weigh(loop.LoopStep())
		sum += loopWeight + p.weigh(loop.IterRange()) + p.weigh(loop.AccuInit()) + p.weigh(loop.Result())
	}
	return sum
}

// decorate puts the price of a call before it, and that of a loop's step before each.
func (p *plan) decorate(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	id := i.ID()
	if call, isCall := i.(interpreter.InterpretableCall); isCall {
		made, err := p.call(call)
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

// call is a call with its price.
func (p *plan) call(call interpreter.InterpretableCall) (interpreter.InterpretableV2, error) {
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
		text := call.Args()[1].(interpreter.InterpretableConst).Value().(types.String) // written sees to that
		return out, out.match(string(text))
	default:
		bound := p.bindings[call.OverloadID()]
		if bound == nil {
			bound = p.bindings[call.Function()]
		}
		if bound == nil {
			return nil, fmt.Errorf("the function %s has no implementation", call.Function())
		}
		out.do = called(bound, call)
	}
	return out, nil
}

// match makes a call one that matches a pattern, which is compiled once. Its price is what CEL
// takes for a match, with the instructions of the pattern instead of its bytes.
func (c *pricedCall) match(text string) error {
	compiled, size, err := pattern.Compile(text)
	if err != nil {
		return err
	}
	each := uint64(math.Ceil(float64(size) * common.RegexStringLengthCostFactor))
	c.price = func(args []ref.Val, _ uint64) uint64 { return units(1+textOf(args[0])) * each }
	c.do = func(args ...ref.Val) ref.Val {
		if in, isText := args[0].(types.String); isText {
			return types.Bool(compiled.MatchString(string(in)))
		}
		return types.NoSuchOverloadErr()
	}
	return nil
}

// called calls an implementation as CEL does.
func called(b *functions.Overload, call interpreter.InterpretableCall) functions.FunctionOp {
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

// pricedCall is a call whose price is charged before it.
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
	m.charge(c.Function(), c.price(args, m.left()))
	return types.LabelErrNode(c.ID(), c.do(args...))
}

// Eval implements interpreter.Interpretable.
func (c *pricedCall) Eval(named interpreter.Activation) ref.Val {
	return c.Exec(interpreter.AsFrame(named))
}

// step is the condition that each step of a loop begins with.
type step struct {
	interpreter.InterpretableV2
	cost uint64
}

// Exec implements interpreter.InterpretableV2.
func (s *step) Exec(frame *interpreter.ExecutionFrame) ref.Val {
	meterOf(frame).charge("a loop", s.cost)
	return s.InterpretableV2.Exec(frame)
}

// Eval implements interpreter.Interpretable.
func (s *step) Eval(named interpreter.Activation) ref.Val { return s.Exec(interpreter.AsFrame(named)) }
