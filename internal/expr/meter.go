// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

const (
	// lookEvery is the number of units between two checks of the context.
	lookEvery = 1_000
	// meterName is the name of the meter during an evaluation. No expression can use it.
	meterName = "@meter"
)

// errCost is the error of an evaluation that costs too much.
var errCost = errors.New("cost limit exceeded")

// meter counts the cost of one evaluation and ends it at the limit or at the end of the context.
// Both end the whole expression: operators such as || cannot absorb them.
type meter struct {
	ctx          context.Context //nolint:containedctx // a meter lives as long as the call that has the context
	limit, spent uint64
	looked       uint64 // cost at the last check of the context
	failed       error
}

// remainingCost returns the remaining cost.
func (m *meter) remainingCost() uint64 { return m.limit - m.spent }

// chargeCost adds the cost of the next operation.
func (m *meter) chargeCost(what string, cost uint64) {
	if cost > m.remainingCost() {
		m.spent = m.limit
		m.failEvaluation(fmt.Errorf("%s: %w; simplify the expression, or read less data", what, errCost))
	}
	if m.spent += cost; m.spent-m.looked < lookEvery {
		return
	}
	if m.looked = m.spent; m.ctx.Err() != nil {
		m.failEvaluation(context.Cause(m.ctx))
	}
}

// failEvaluation ends the evaluation like CEL's cost limit.
func (m *meter) failEvaluation(err error) {
	m.failed = err
	panic(interpreter.EvalCancelledError{Message: err.Error()})
}

// meterOf returns the meter of an evaluation.
func meterOf(frame *interpreter.ExecutionFrame) *meter {
	m, _ := frame.ResolveName(meterName)
	return m.(*meter)
}

// metered adds the meter to the names of an expression.
type metered struct {
	cel.Activation
	meter *meter
}

// ResolveName implements cel.Activation.
func (m metered) ResolveName(name string) (any, bool) {
	if name == meterName {
		return m.meter, true
	}
	return m.Activation.ResolveName(name)
}

// evaluation is a compiled expression with a cost limit.
type evaluation struct {
	program cel.Program
	limit   uint64
	nodes   uint64 // nodes outside of loops
}

// evaluate evaluates the expression. It returns the cost also with an error.
func (e *evaluation) evaluate(ctx context.Context, values map[string]any) (value ref.Val, cost uint64, err error) {
	if ctx.Err() != nil {
		return nil, 0, context.Cause(ctx)
	}
	named, err := cel.NewActivation(values)
	if err != nil {
		return nil, 0, err
	}
	m := &meter{ctx: ctx, limit: e.limit, spent: e.nodes}
	value, _, err = e.program.Eval(metered{named, m})
	if m.failed != nil {
		err = m.failed
	}
	return value, m.spent, err
}
