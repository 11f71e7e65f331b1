// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"math"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/env"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"github.com/agentplatform/agentplatform/internal/pattern"
)

// matches is the function of CEL that takes a regular expression.
const matches = "matches"

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
// limit.
func planned(environment *cel.Env, checked *cel.Ast, limit uint64) (cel.Program, error) {
	known := prices{}
	regexes := &interpreter.RegexOptimization{Function: matches, RegexIndex: 1,
		Factory: func(call interpreter.InterpretableCall, text string) (interpreter.InterpretableCall, error) {
			compiled, size, err := pattern.Compile(text)
			if err != nil {
				return nil, err
			}
			known[text] = size
			return interpreter.NewCall(call.ID(), call.Function(), call.OverloadID(), call.Args(), func(args ...ref.Val) ref.Val {
				in, isText := args[0].(types.String)
				switch {
				case !isText:
					return types.NoSuchOverloadErr()
				case matching(len(in), size) > limit: // units are counted when it is over
					return types.NewErr("matches: the text is too long for this pattern: cost limit exceeded")
				}
				return types.Bool(compiled.MatchString(string(in)))
			}), nil
		}}
	return environment.Program(checked, cel.CostLimit(limit), cel.CostTracking(known), cel.OptimizeRegex(regexes))
}

// prices are the sizes of the patterns of an expression. They implement
// interpreter.ActualCostEstimator.
type prices map[string]int

// CallCost is what a call cost, nil where CEL's own price is right.
func (p prices) CallCost(function, _ string, args []ref.Val, _ ref.Val) *uint64 {
	if function != matches {
		return nil
	}
	in, _ := args[0].(types.String)
	text, _ := args[1].(types.String)
	cost := matching(len(in), p[string(text)])
	return &cost
}

// matching is what CEL takes for a match, with the instructions of the pattern in the place
// of its bytes.
func matching(text, size int) uint64 {
	return uint64(math.Ceil(float64(1+text)*common.StringTraversalCostFactor) * math.Ceil(float64(size)*common.RegexStringLengthCostFactor))
}
