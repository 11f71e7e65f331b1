// SPDX-License-Identifier: Apache-2.0

// Package expr evaluates the expressions of agents: CEL over a run's input. It implements only the
// language. Its callers define the use of the values.
package expr

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/agentplatform/agentplatform/internal/cache"
	"github.com/agentplatform/agentplatform/internal/exactjson"
)

const (
	// MaxSize limits an expression, in bytes.
	MaxSize = 1 << 10
	// maxCost limits one evaluation, maxCosts all evaluations on one input. The unit is the unit of
	// prices: a node, or about 10 bytes that are read or allocated.
	maxCost  = 10_000
	maxCosts = 100_000
	// maxCompiled limits the cached compiled expressions.
	maxCompiled = 512
)

// environment contains the names of a key's expression: the run's input.
var environment = mustEnv(slices.Concat(withNumbers, []cel.EnvOption{cel.Variable("input", cel.DynType), priced, cel.ASTValidators(written{})}))

// compiled caches expressions, because live agents evaluate them often.
var compiled = cache.New[string, program](maxCompiled, 0, nil)

// program is a compiled expression or its error.
type program struct {
	*evaluation
	err error
}

// CheckKey returns the problem of a key's expression: its syntax, or its type if it is known
// without an input.
func CheckKey(expression string) error {
	_, err := compile(expression)
	return err
}

// compile compiles the expression of a key.
func compile(expression string) (*evaluation, error) {
	ast, err := checkExpression(environment, expression)
	if err != nil {
		return nil, err
	}
	switch kind := ast.OutputType(); kind.Kind() {
	case types.StringKind, types.IntKind, types.UintKind, types.DoubleKind, types.BoolKind, types.DynKind:
	default:
		return nil, fmt.Errorf("it returns a %s; %s", kind, wanted)
	}
	return planned(environment, ast, maxCost)
}

// wanted are the types of keys.
const wanted = "a key is a string, a number or a bool"

// firstOf returns the first issue with its position in the expression.
func firstOf(issues *cel.Issues) error {
	first := issues.Errors()[0]
	return &Problem{Line: first.Location.Line(), Column: first.Location.Column() + 1, Message: first.Message}
}

// On returns a function that evaluates the expressions of keys on a JSON input. It decodes the
// input once, for the first expression. It converts a value to text: a string unchanged, a number
// without an exponent, a bool as true or false. The function is not safe for concurrent use.
func On(input []byte) func(expression string) (key string, err error) {
	o := &on{read: sync.OnceValues(func() (any, error) { return decodeInput(input) }), known: map[string]result{}}
	return o.evaluateKey
}

// on is an input with its decoded value.
type on struct {
	read  func() (any, error)
	costs uint64
	known map[string]result
}

type result struct {
	key string
	err error
}

func (o *on) evaluateKey(expression string) (string, error) {
	r, ok := o.known[expression]
	if !ok {
		r.key, r.err = o.evaluate(expression)
		o.known[expression] = r
	}
	return r.key, r.err
}

func (o *on) evaluate(expression string) (string, error) {
	input, err := o.read()
	if err != nil {
		return "", err
	}
	p, ok := compiled.Get(expression)
	if !ok {
		p.evaluation, p.err = compile(expression)
		compiled.Put(expression, p)
	}
	if p.err != nil {
		return "", p.err
	}
	if o.costs > maxCosts {
		return "", errors.New("the expressions on this input exceed the total cost limit")
	}
	value, cost, err := p.evaluate(context.Background(), map[string]any{"input": input}) // its limited cost ends it soon
	if o.costs += cost; err != nil {
		return "", err
	}
	return keyText(value)
}

// keyText converts a value to a key.
func keyText(value ref.Val) (string, error) {
	switch v := value.(type) {
	case types.String:
		return string(v), nil
	case types.Bool:
		return strconv.FormatBool(bool(v)), nil
	case types.Int:
		return strconv.FormatInt(int64(v), 10), nil
	case types.Uint:
		return strconv.FormatUint(uint64(v), 10), nil
	case types.Double:
		return strconv.FormatFloat(float64(v), 'f', -1, 64), nil
	case longNumber:
		return string(v), nil
	}
	return "", fmt.Errorf("it returns a %s; %s", value.Type().TypeName(), wanted)
}

// decodeInput decodes an input with numbers for expressions.
func decodeInput(input []byte) (value any, err error) {
	if err := exactjson.Decode(input, &value); err != nil {
		return nil, fmt.Errorf("the input is not JSON: %w", err)
	}
	return withValues(value), nil
}
