// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"context"
	"fmt"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

const (
	// lookEvery is after how many units an evaluation looks whether its context has ended.
	lookEvery = 1_000
	// meterName is the name under which an evaluation finds its meter; no expression can name it.
	meterName = "@meter"
)

// meter counts the cost of one evaluation, and ends it when the cost reaches the limit or the
// context ends. Both end all of the expression: no operator such as || takes their place.
type meter struct {
	ctx          context.Context //nolint:containedctx // a meter lives as long as the call that has the context
	limit, spent uint64
	looked       uint64 // what was spent when it looked at the context
	failed       error
}

// left returns what a call may cost.
func (m *meter) left() uint64 { return m.limit - m.spent }

// charge adds the cost of something that comes next.
func (m *meter) charge(what string, cost uint64) {
	if cost > m.left() {
		m.spent = m.limit
		m.fail(fmt.Errorf("%s: cost limit exceeded; simplify the expression, or let it read less", what))
	}
	if m.spent += cost; m.spent-m.looked < lookEvery {
		return
	}
	if m.looked = m.spent; m.ctx.Err() != nil {
		m.fail(context.Cause(m.ctx))
	}
}

// fail ends the evaluation as CEL ends one that is too expensive.
func (m *meter) fail(err error) {
	m.failed = err
	panic(interpreter.EvalCancelledError{Message: err.Error()})
}

// meterOf returns the meter of an evaluation.
func meterOf(frame *interpreter.ExecutionFrame) *meter {
	m, _ := frame.ResolveName(meterName)
	return m.(*meter)
}

// metered is what an expression names, with the meter of the evaluation.
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

// evaluation is an expression that is ready to be evaluated, at most for limit each time.
type evaluation struct {
	program cel.Program
	limit   uint64
	nodes   uint64 // outside of loops
}

// on evaluates the expression on some values. Its cost is returned in any case.
func (e *evaluation) on(ctx context.Context, values map[string]any) (value ref.Val, cost uint64, err error) {
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
