// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/functions"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"

	"github.com/agentplatform/agentplatform/internal/jsonscan"
)

const (
	// maxVerdictCost limits the evaluation of one verdict: enough to search some MiB of text.
	maxVerdictCost = 2_000_000
	// maxDecoded limits the JSON values that an expression decodes.
	maxDecoded = 100_000
)

// Ended is the end of a run for a verdict.
type Ended struct {
	Output, Error, Status string
	// Context is the context of the run, decoded by exactjson.
	Context map[string]any
}

// onEnds are the names of an expression on the end of a run.
var onEnds = slices.Concat(withNumbers, []cel.EnvOption{
	cel.Variable("output", cel.StringType), cel.Variable("error", cel.StringType), cel.Variable("status", cel.StringType),
	cel.Variable("context", cel.MapType(cel.StringType, cel.DynType)),
	cel.Function("json", cel.Overload("json_string", []*cel.Type{cel.StringType}, cel.DynType, cel.UnaryBinding(decoded()))),
	ext.Strings(ext.StringsVersion(5)),
	cel.CrossTypeNumericComparisons(true), priced,
})

// verdicts is the environment of verdicts.
var verdicts = mustEnv(slices.Concat(onEnds, []cel.EnvOption{cel.ASTValidators(written{})}))

// mustEnv creates an environment.
func mustEnv(options []cel.EnvOption) *cel.Env {
	env, err := cel.NewEnv(options...)
	if err != nil {
		panic("making an environment of expressions: " + err.Error()) // it depends on no input
	}
	return env
}

// Errors of the function json.
var (
	errTooManyValues = fmt.Errorf("json: the text has more than %d values", maxDecoded)
	errNotJSON       = errors.New("json: the text is not JSON")
)

// decoded is the function json, which decodes a text.
func decoded() functions.UnaryOp {
	return func(text ref.Val) ref.Val {
		raw := []byte(text.(types.String))
		if size := jsonscan.Measure(raw); size.Values > maxDecoded {
			return types.WrapErr(errTooManyValues)
		}
		value, err := decodeInput(raw)
		if err != nil {
			return types.WrapErr(errNotJSON)
		}
		return adapter.NativeToValue(value)
	}
}

// Verdict is an expression that decides whether a run passes.
type Verdict struct {
	evaluation *evaluation
	names      []string
}

// NewVerdict compiles an expression over output, error, status and context that returns a bool.
func NewVerdict(expression string) (*Verdict, error) {
	ast, err := checkExpression(verdicts, expression)
	if err != nil {
		return nil, err
	}
	if kind := ast.OutputType(); kind.Kind() != types.BoolKind && kind.Kind() != types.DynKind {
		return nil, fmt.Errorf("it returns a %s; write a condition that is true or false", kind)
	}
	evaluation, err := planned(verdicts, ast, maxVerdictCost)
	if err != nil {
		return nil, err
	}
	v := &Verdict{evaluation: evaluation}
	for _, reference := range ast.NativeRep().ReferenceMap() {
		v.names = append(v.names, reference.Name)
	}
	return v, nil
}

// LooksAt reports whether the expression uses a variable.
func (v *Verdict) LooksAt(name string) bool { return slices.Contains(v.names, name) }

// Holds reports whether the expression is true for a run. It returns an error if the context ends
// before.
func (v *Verdict) Holds(ctx context.Context, run Ended) (bool, error) {
	known := run.Context
	if known == nil {
		known = map[string]any{}
	}
	value, _, err := v.evaluation.evaluate(ctx, map[string]any{"output": run.Output, "error": run.Error, "status": run.Status, "context": known})
	if err != nil {
		return false, err
	}
	holds, isBool := value.Value().(bool)
	if !isBool {
		return false, errors.New("it must return true or false, not a " + value.Type().TypeName())
	}
	return holds, nil
}
