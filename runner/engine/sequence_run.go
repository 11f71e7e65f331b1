// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// sequence runs the steps of a sequential agent, once.
type sequence struct {
	*Scope
	// steps have one action, or several that run at the same time.
	steps [][]*stepAction
	// outer is the conversation of the sequence, shared that of the steps with share_history.
	outer, shared *conversation

	input Message
	// results are the results so far, by name. Only the goroutine of the sequence uses them.
	results map[string]result
	// last is the answer of the last step that ran, lastShared that of the last step with share_history, which is not part
	// of the shared conversation yet.
	last, lastShared *Message
}

// run implements AgentFunc.
func (q *sequence) run(ctx context.Context, in Message) (Message, error) {
	q.outer.addMessage("", in.Author, in.Content)
	q.input = in
	for _, actions := range q.steps {
		if err := q.runStep(ctx, actions); err != nil {
			return Message{}, err
		}
	}
	switch {
	case q.agent.Output.IsWritten():
		value, err := q.compute(ctx, "output", q.agent.Output)
		if err != nil {
			return Message{}, err
		}
		text, err := outputText(value)
		return textMessage(q.agent.Name, text), err
	case q.last == nil:
		return textMessage(q.agent.Name, ""), nil
	}
	return *q.last, nil
}

// prepared is an action whose expressions are evaluated.
type prepared struct {
	*stepAction
	skipped   bool
	input     Message
	arguments map[string]any
	step      StepScript

	answer Message
	result result
}

// runStep runs the actions of a step and notes their results. All expressions are evaluated before the first action
// begins, so the results do not depend on which action ends first.
func (q *sequence) runStep(ctx context.Context, actions []*stepAction) error {
	ready := make([]*prepared, len(actions))
	for i, a := range actions {
		var err error
		if ready[i], err = q.prepare(ctx, a); err != nil {
			return err
		}
	}
	if err := q.runActions(ctx, ready); err != nil {
		return err
	}
	for _, p := range ready {
		if p.isForked {
			if err := p.values.join(); err != nil {
				return err
			}
		}
		if p.As != "" {
			q.results[p.As] = p.result
		}
		if p.skipped {
			continue
		}
		q.last = &p.answer
		if p.shares {
			q.lastShared = &p.answer
		}
	}
	return nil
}

// runActions runs actions at the same time. The first failure cancels the others.
func (q *sequence) runActions(ctx context.Context, ready []*prepared) error {
	if len(ready) == 1 {
		return q.runAction(ctx, ready[0])
	}
	var group errgroup.Group
	for _, p := range ready {
		group.Go(func() (err error) {
			defer func() {
				if v := recover(); v != nil {
					err = panicked(v)
				}
				if err != nil {
					err = q.stopAttempt(err)
				}
			}()
			return q.runAction(ctx, p)
		})
	}
	return group.Wait()
}

func (q *sequence) runAction(ctx context.Context, p *prepared) (err error) {
	switch {
	case p.skipped:
		return nil
	case p.tool != nil:
		p.answer, p.result, err = q.callTool(ctx, p)
		return err
	case p.script != nil:
		p.answer, p.result, err = q.runScript(ctx, p)
		return err
	}
	if p.answer, err = p.agent(ctx, p.input); err != nil {
		return err
	}
	p.result = result{text: p.answer.Content.Text()}
	return nil
}

// prepare evaluates the expressions of an action.
func (q *sequence) prepare(ctx context.Context, a *stepAction) (*prepared, error) {
	if a.isForked {
		a.values.begin()
	}
	p := &prepared{stepAction: a}
	if a.When.IsWritten() {
		holds, err := q.holds(ctx, a.key+".when", a.When)
		if err != nil {
			return nil, err
		}
		if !holds {
			p.skipped, p.result = true, result{skipped: true}
			return p, nil
		}
	}
	var err error
	if a.tool != nil {
		p.arguments, err = q.computeKeys(ctx, a.key+".with", a.With)
		return p, err
	}
	if a.script != nil {
		p.step, err = q.prepareScript(ctx, a)
		return p, err
	}
	p.input, err = q.inputOf(ctx, a)
	return p, err
}

// inputOf returns the input of an agent. An agent that shares the conversation answers the answer before it, unless it has
// its own input.
func (q *sequence) inputOf(ctx context.Context, a *stepAction) (Message, error) {
	before := q.lastShared
	if a.shares {
		q.lastShared = nil
	}
	text, written, err := q.ownInput(ctx, a)
	switch {
	case err != nil:
		return Message{}, err
	case written && a.shares && before != nil:
		q.shared.addMessage("", before.Author, before.Content)
		return textMessage("", text), nil
	case written:
		return textMessage("", text), nil
	case a.shares && before != nil:
		return *before, nil
	}
	return q.input, nil
}

// ownInput returns the input that the action computes as text, if it has one.
func (q *sequence) ownInput(ctx context.Context, a *stepAction) (text string, written bool, err error) {
	value, written, err := q.computeInput(ctx, a)
	if err != nil || !written {
		return "", false, err
	}
	text, err = outputText(value)
	return text, true, err
}

// computeInput returns the input that the action computes, if it has one.
func (q *sequence) computeInput(ctx context.Context, a *stepAction) (value any, written bool, err error) {
	switch key := a.key + ".input"; {
	case a.Input.Whole.IsWritten():
		value, err = q.compute(ctx, key, a.Input.Whole)
	case a.Input.Keys != nil:
		value, err = q.computeKeys(ctx, key, a.Input.Keys)
	default:
		return nil, false, nil
	}
	return value, err == nil, err
}
