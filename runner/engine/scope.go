// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"time"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
)

// Scope is one position of the agent tree in one attempt of a run.
type Scope struct {
	*attempt
	agent *bundle.Agent
	path  string
	stage *stage
	// values are the run's context at this position.
	values *runContext
}

// Agent returns the agent at this position.
func (s *Scope) Agent() *bundle.Agent { return s.agent }

// Path returns the position in the tree, such as "pipeline/0:classify". It is the same in all attempts.
func (s *Scope) Path() string { return s.path }

// Project returns the repository.
func (s *Scope) Project() *bundle.Project { return s.in.Project }

// RunID returns the ID of the run.
func (s *Scope) RunID() string { return s.in.RunID }

// DeploymentID returns the ID of the deployment with the repository, or "" outside the platform.
func (s *Scope) DeploymentID() string { return s.in.DeploymentID }

// HasBegun reports whether the agent began in an earlier attempt, so that its model has seen the tools.
func (s *Scope) HasBegun() bool {
	_, answered := s.journal.recordedAnswer(s.path, 1)
	return answered || s.journal.hasBegun(stepCalls+s.path)
}

// childScope returns the scope of a step of the agent.
func (s *Scope) childScope(agent *bundle.Agent, path string) *Scope {
	return &Scope{attempt: s.attempt, agent: agent, path: path, stage: &stage{agent: agent, within: s.stage}, values: s.values}
}

// limitTime limits a step by the remaining time of the run and the stage.
func (s *Scope) limitTime(ctx context.Context) (context.Context, context.CancelFunc) {
	return s.end.earlierOf(s.stage.earliestDeadline()).withDeadline(ctx)
}

// Files returns the attachments of the run.
func (s *Scope) Files() []File { return s.in.Files }

// Attempt returns the number of the attempt, from 1.
func (s *Scope) Attempt() int { return s.in.Attempt }

// TokenUsage returns the tokens of the run so far.
func (s *Scope) TokenUsage() dispatchapi.TokenUsage { return s.journal.totalUsage() }

// Duration returns the time since the run's first attempt began.
func (s *Scope) Duration() time.Duration { return s.in.Spent + s.engine.cfg.Now().Sub(s.begun) }
