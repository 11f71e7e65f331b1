// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
)

// onJSON are the functions of an expression that computes a JSON value.
var onJSON = slices.Concat(withNumbers, []cel.EnvOption{
	cel.Function("json", cel.Overload("json_string", []*cel.Type{cel.StringType}, cel.DynType, cel.UnaryBinding(decoded()))),
	ext.Strings(ext.StringsVersion(5)), cel.CrossTypeNumericComparisons(true), priced, cel.ASTValidators(written{}),
})

// onValues is the environment of expressions over named JSON values, without the names.
var onValues = mustEnv(onJSON)

// Problem is an error in the text of an expression. Line and Column count from 1.
type Problem struct {
	Line, Column int
	Message      string
}

// Error implements error.
func (p *Problem) Error() string {
	return fmt.Sprintf("at line %d, column %d: %s", p.Line, p.Column, p.Message)
}

// IsVariable reports whether a name can be a variable of expressions: it is an identifier, and means nothing else in CEL.
func IsVariable(name string) bool {
	parsed, issues := onValues.Parse(name)
	if issues.Err() != nil || parsed.NativeRep().Expr().Kind() != ast.IdentKind || parsed.NativeRep().Expr().AsIdent() != name {
		return false
	}
	_, issues = onValues.Check(parsed)
	return issues.Err() != nil // it is not the name of a type
}

// Variables are the names that expressions can use, each with any JSON value.
type Variables struct {
	environment *cel.Env
	names       []string
}

// NewVariables declares names. IsVariable is true for each of them.
func NewVariables(names []string) (*Variables, error) {
	options := make([]cel.EnvOption, len(names))
	for i, name := range names {
		options[i] = cel.Variable(name, cel.DynType)
	}
	environment, err := onValues.Extend(options...)
	if err != nil {
		return nil, fmt.Errorf("declaring the variables of expressions: %w", err)
	}
	return &Variables{environment, names}, nil
}

// Value is a compiled expression that computes a JSON value from named JSON values.
type Value struct {
	source     string
	evaluation *evaluation
	uses       []Use
	returns    *cel.Type
}

// Use is the first use of a variable in an expression.
type Use struct {
	Name         string
	Line, Column int
}

// NewValue compiles an expression. The error is a *Problem if it is about one position of the expression.
func (v *Variables) NewValue(expression string) (*Value, error) {
	checked, err := checkExpression(v.environment, expression)
	if err != nil {
		return nil, err
	}
	evaluation, err := planned(v.environment, checked, maxVerdictCost)
	if err != nil {
		return nil, err
	}
	return &Value{source: expression, evaluation: evaluation, uses: v.usesOf(checked.NativeRep()), returns: checked.OutputType()}, nil
}

// usesOf returns the variables of an expression in the order of their first use.
func (v *Variables) usesOf(checked *ast.AST) (uses []Use) {
	ast.PreOrderVisit(checked.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.IdentKind || !slices.Contains(v.names, e.AsIdent()) {
			return
		}
		name := e.AsIdent()
		if slices.ContainsFunc(uses, func(u Use) bool { return u.Name == name }) {
			return
		}
		at := checked.SourceInfo().GetStartLocation(e.ID())
		uses = append(uses, Use{Name: name, Line: at.Line(), Column: at.Column() + 1})
	}))
	return uses
}

// Uses returns the variables that the expression uses. Compute and Holds need the values of these.
func (v *Value) Uses() []Use { return v.uses }

// CheckCondition returns an error if the expression never returns a bool.
func (v *Value) CheckCondition() error {
	if kind := v.returns.Kind(); kind != types.BoolKind && kind != types.DynKind {
		return fmt.Errorf("it returns a %s; write a condition that is true or false", v.returns)
	}
	return nil
}

// Compute evaluates the expression on values that Input returned. It returns a value for json.Marshal whose numbers have
// all digits. It returns the cause of the context if the context ended. Other errors contain no data.
func (v *Value) Compute(ctx context.Context, values map[string]any) (any, error) {
	value, err := v.evaluate(ctx, values)
	if err != nil {
		return nil, err
	}
	out, err := new(jsonConverter).convert(value, 0)
	if err != nil {
		return nil, fmt.Errorf("it cannot be written as JSON: %w", err)
	}
	return out, nil
}

// Holds reports whether the expression is true. It returns the same errors as Compute.
func (v *Value) Holds(ctx context.Context, values map[string]any) (bool, error) {
	value, err := v.evaluate(ctx, values)
	if err != nil {
		return false, err
	}
	holds, isBool := value.(types.Bool)
	if !isBool {
		return false, fmt.Errorf("it returns a %s; write a condition that is true or false", value.Type().TypeName())
	}
	return bool(holds), nil
}

func (v *Value) evaluate(ctx context.Context, values map[string]any) (ref.Val, error) {
	value, _, err := v.evaluation.evaluate(ctx, values)
	switch {
	case err == nil:
		return value, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	}
	return nil, v.withoutData(err)
}

// plainReasons begin the errors of an evaluation that contain no data.
var plainReasons = []string{"no such overload", "division by zero", "modulus by zero", errNotJSON.Error(), errTooManyValues.Error()}

// withoutData returns the error of an evaluation without data. CEL's errors may contain values.
func (v *Value) withoutData(err error) error {
	if errors.Is(err, errCost) {
		return err
	}
	reason := err.Error()
	if key, isMissing := strings.CutPrefix(reason, "no such key: "); isMissing {
		if strings.Contains(v.source, key) {
			return errors.New(reason)
		}
		return errors.New("no such key")
	}
	for _, plain := range plainReasons {
		if strings.HasPrefix(reason, plain) {
			return errors.New(plain)
		}
	}
	return errors.New("an operation of it is not possible with these values")
}
