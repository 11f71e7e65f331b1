// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"maps"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/env"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/agentplatform/agentplatform/internal/pattern"
)

// matches is the function of CEL that takes a regular expression.
const matches = "matches"

// everyFew is after how many steps of a loop it is looked whether the context has ended.
const everyFew = 100

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

// planned makes a program of a checked expression, of which one evaluation costs at most
// limit. CEL counts what a call cost when it is over; what may be dear in a single call is
// priced before it.
func planned(environment *cel.Env, checked *cel.Ast, limit uint64) (cel.Program, error) {
	p := &plan{limit: limit, prices: maps.Clone(priced), sizes: map[string]int{}}
	p.prices[matches] = p.matching
	var err error
	if p.bindings, err = bindingsOf(environment); err != nil {
		return nil, err
	}
	return environment.Program(checked, cel.CostLimit(limit), cel.CostTracking(p), cel.CustomDecoratorV2(p.decorate), cel.InterruptCheckFrequency(everyFew))
}

// bindingsOf are the implementations of the functions that have a price.
func bindingsOf(environment *cel.Env) (map[string]*functions.Overload, error) {
	out := map[string]*functions.Overload{}
	for name, function := range environment.Functions() {
		if priced[name] == nil {
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
	limit    uint64
	prices   map[string]price
	bindings map[string]*functions.Overload
	sizes    map[string]int // of patterns
}

// decorate puts the price of a call before it.
func (p *plan) decorate(i interpreter.InterpretableV2) (interpreter.InterpretableV2, error) {
	call, isCall := i.(interpreter.InterpretableCall)
	if !isCall || p.prices[call.Function()] == nil {
		return i, nil
	}
	implementation, err := p.implementation(call)
	if implementation == nil {
		return i, err
	}
	cost := p.prices[call.Function()]
	return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), func(args ...ref.Val) ref.Val {
		if cost(args, p.limit) > p.limit {
			return types.NewErr("%s: cost limit exceeded", call.Function())
		}
		return implementation(args...)
	}), nil
}

// implementation is what a call comes to.
func (p *plan) implementation(call interpreter.InterpretableCall) (functions.FunctionOp, error) {
	switch call.Function() {
	case operators.Equals:
		return func(args ...ref.Val) ref.Val { return types.Equal(args[0], args[1]) }, nil
	case operators.NotEquals:
		return func(args ...ref.Val) ref.Val { return types.Bool(types.Equal(args[0], args[1]) != types.True) }, nil
	case matches:
		return p.matcher(string(call.Args()[1].(interpreter.InterpretableConst).Value().(types.String))) // written sees to that
	}
	for _, name := range []string{call.OverloadID(), call.Function()} {
		if b := p.bindings[name]; b != nil {
			return called(b), nil
		}
	}
	return nil, nil
}

// matcher matches a pattern, which is compiled once.
func (p *plan) matcher(text string) (functions.FunctionOp, error) {
	compiled, size, err := pattern.Compile(text)
	if err != nil {
		return nil, err
	}
	p.sizes[text] = size
	return func(args ...ref.Val) ref.Val {
		if in, isText := args[0].(types.String); isText {
			return types.Bool(compiled.MatchString(string(in)))
		}
		return types.NoSuchOverloadErr()
	}, nil
}

// called calls an implementation as CEL does.
func called(b *functions.Overload) functions.FunctionOp {
	return func(args ...ref.Val) ref.Val {
		switch {
		case b.OperandTrait != 0 && !args[0].Type().HasTrait(b.OperandTrait):
			return types.NoSuchOverloadErr()
		case len(args) == 1 && b.Unary != nil:
			return b.Unary(args[0])
		case len(args) == 2 && b.Binary != nil:
			return b.Binary(args[0], args[1])
		case b.Function != nil:
			return b.Function(args...)
		}
		return types.NoSuchOverloadErr()
	}
}

// CallCost implements interpreter.ActualCostEstimator: what a call cost, nil where CEL's
// own price is right.
func (p *plan) CallCost(function, _ string, args []ref.Val, _ ref.Val) *uint64 {
	cost := p.prices[function]
	if cost == nil {
		return nil
	}
	paid := cost(args, p.limit)
	return &paid
}
