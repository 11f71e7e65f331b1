// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/agentplatform/agentplatform/bundle"
)

// deadline is a moment and what a run fails with that goes on beyond it. The zero
// value is none.
type deadline struct {
	at   time.Time
	late *failure
}

// endOf is the end of a run: the timeout of the agent that executes it, less what the
// attempts before took and the time between them.
func endOf(in Input) deadline {
	agent, err := in.agent()
	if err != nil {
		return deadline{}
	}
	timeout := agent.RunTimeout()
	return deadline{time.Now().Add(timeout - in.Spent), &failure{code: CodeTimeout, message: fmt.Sprintf(
		"the run took longer than %s, the timeout of agent %q for a run over all its attempts", timeout, agent.Name)}}
}

// stage is an agent as a step of those around it. It begins with the first thing
// that it does in this attempt.
type stage struct {
	agent  *bundle.Agent
	within *stage // nil of the run's own agent

	begin sync.Once
	own   deadline
}

// end is the earliest of the timeouts that the files of the agent and of those around
// it name.
func (s *stage) end() deadline {
	if s == nil {
		return deadline{}
	}
	s.begin.Do(func() {
		if timeout := s.agent.Timeout.Std(); timeout > 0 {
			s.own = deadline{time.Now().Add(timeout), &failure{code: CodeTimeout, message: fmt.Sprintf(
				"agent %q took longer than its timeout of %s", s.agent.Name, timeout)}}
		}
	})
	return s.within.end().sooner(s.own)
}

// sooner is the one that comes first; d where they come together.
func (d deadline) sooner(other deadline) deadline {
	if other.late != nil && (d.late == nil || other.at.Before(d.at)) {
		return other
	}
	return d
}

// bound ends ctx with the deadline.
func (d deadline) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if d.late == nil {
		return ctx, func() {}
	}
	return context.WithDeadlineCause(ctx, d.at, d.late)
}

// timedOut returns the failure when it was a timeout that ended ctx.
func timedOut(ctx context.Context) error {
	var f *failure
	if ctx.Err() != nil && errors.As(context.Cause(ctx), &f) && f.code == CodeTimeout {
		return f
	}
	return nil
}
