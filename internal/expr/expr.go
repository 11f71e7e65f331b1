// SPDX-License-Identifier: Apache-2.0

// Package expr evaluates the expressions of agents: CEL over a run's input. It knows
// their language alone; what their values are for is their users' to say.
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
	// MaxSize is the most bytes of an expression.
	MaxSize = 1 << 10
	// maxCost bounds one evaluation, maxCosts those on one input together. The unit is that of
	// prices: a node, or about 10 bytes that are read or allocated.
	maxCost  = 10_000
	maxCosts = 100_000
	// maxCompiled is how many compiled expressions are remembered.
	maxCompiled = 512
)

// environment is what an expression may name: the run's input.
var environment = mustEnv(slices.Concat(withNumbers, []cel.EnvOption{cel.Variable("input", cel.DynType), priced, cel.ASTValidators(written{})}))

// compiled remembers expressions: those of live agents are evaluated again and again.
var compiled = cache.New[string, program](maxCompiled, 0, nil)

// program is a compiled expression, or why there is none.
type program struct {
	*evaluation
	err error
}

// CheckKey says what is wrong with the expression of a key: with its syntax, or
// with what it yields, where that is known without an input.
func CheckKey(expression string) error {
	_, err := compile(expression)
	return err
}

// compile makes a program of the expression of a key.
func compile(expression string) (*evaluation, error) {
	ast, err := check(environment, expression)
	if err != nil {
		return nil, err
	}
	switch kind := ast.OutputType(); kind.Kind() {
	case types.StringKind, types.IntKind, types.UintKind, types.DoubleKind, types.BoolKind, types.DynKind:
	default:
		return nil, fmt.Errorf("it yields a %s; %s", kind, wanted)
	}
	return planned(environment, ast, maxCost)
}

// wanted is what keys may be made of.
const wanted = "a key is a string, a number or a bool"

// firstOf is the first of the issues, with its place in the expression.
func firstOf(issues *cel.Issues) error {
	first := issues.Errors()[0]
	return fmt.Errorf("at its line %d, column %d: %s", first.Location.Line(), first.Location.Column()+1, first.Message)
}

// On evaluates the expressions of keys on an input, JSON of any form, which is read
// once and not before there is an expression. A value becomes text: a string as it is,
// a number without an exponent, a bool as true or false. What it returns is not for
// concurrent use.
func On(input []byte) func(expression string) (key string, err error) {
	o := &on{read: sync.OnceValues(func() (any, error) { return read(input) }), known: map[string]result{}}
	return o.key
}

// on is an input with what is known of it.
type on struct {
	read  func() (any, error)
	costs uint64
	known map[string]result
}

type result struct {
	key string
	err error
}

func (o *on) key(expression string) (string, error) {
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
		return "", errors.New("the expressions on this input cost too much together")
	}
	value, cost, err := p.on(context.Background(), map[string]any{"input": input}) // its cost ends it soon
	if o.costs += cost; err != nil {
		return "", err
	}
	return text(value)
}

// text is a value as a key.
func text(value ref.Val) (string, error) {
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
	return "", fmt.Errorf("it yields a %s; %s", value.Type().TypeName(), wanted)
}

// read decodes an input, whose numbers adapter makes numbers of.
func read(input []byte) (value any, err error) {
	if err := exactjson.Decode(input, &value); err != nil {
		return nil, fmt.Errorf("the input is no JSON: %w", err)
	}
	return value, nil
}
