// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/runerror"
)

// deadline is a time and the failure after it. The zero value is no deadline.
type deadline struct {
	at   time.Time
	late *failure
}

// runDeadline returns the end of a run: the timeout of its agent minus the time since the first attempt
// began.
func runDeadline(in Input) deadline {
	agent, err := in.executingAgent()
	if err != nil {
		return deadline{}
	}
	timeout := agent.RunTimeout()
	return deadline{time.Now().Add(timeout - in.Spent), &failure{code: runerror.Timeout, message: fmt.Sprintf(
		"the run took longer than %s, the timeout of agent %q for all attempts of a run", timeout, agent.Name)}}
}

// stage is an agent as a step of its parents. It begins with its first action in this attempt.
type stage struct {
	agent  *bundle.Agent
	within *stage // nil for the run's own agent

	begin sync.Once
	own   deadline
	spent spending
}

// earliestDeadline returns the earliest timeout of the agent and its parents.
func (s *stage) earliestDeadline() deadline {
	if s == nil {
		return deadline{}
	}
	s.begin.Do(func() {
		if timeout := s.agent.Timeout.Std(); timeout > 0 {
			s.own = deadline{time.Now().Add(timeout), &failure{code: runerror.Timeout, message: fmt.Sprintf(
				"agent %q took longer than its timeout of %s", s.agent.Name, timeout)}}
		}
	})
	return s.within.earliestDeadline().earlierOf(s.own)
}

// earlierOf returns the earlier deadline, or d if they are equal.
func (d deadline) earlierOf(other deadline) deadline {
	if other.late != nil && (d.late == nil || other.at.Before(d.at)) {
		return other
	}
	return d
}

// withDeadline ends ctx at the deadline.
func (d deadline) withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if d.late == nil {
		return ctx, func() {}
	}
	return context.WithDeadlineCause(ctx, d.at, d.late)
}

// timedOut returns the failure if a timeout ended ctx.
func timedOut(ctx context.Context) error {
	var f *failure
	if ctx.Err() != nil && errors.As(context.Cause(ctx), &f) && f.code == runerror.Timeout {
		return f
	}
	return nil
}
