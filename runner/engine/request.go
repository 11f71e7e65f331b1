// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"time"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runtrace"
	"github.com/agentplatform/agentplatform/runner/model"
)

// requestFailures records the failed attempts of a request to a model: an unusable answer, which is paid, as an entry of its own,
// and other attempts with the end of the request.
type requestFailures struct {
	agent *llmAgent
	// begin is the begin of the request, or the end of its last unusable answer. attempts are the failed attempts since then, and
	// last is the model of the last one.
	begin    time.Time
	attempts []failedAttempt
	last     model.Model
}

// addFailure implements model.FailureRecorder.
func (r *requestFailures) addFailure(llm model.Model, f *model.Error) {
	l := r.agent
	usage := usageOf(f.Usage)
	if usage == (dispatchapi.TokenUsage{}) {
		if len(r.attempts) == runtrace.MaxEvents {
			r.attempts = r.attempts[1:]
		}
		r.last = llm
		r.attempts = append(r.attempts, failedAttempt{Model: llm.Name(), Error: string(f.Code), period: period{At: l.engine.cfg.Now().UTC().Truncate(time.Millisecond)}})
		return
	}
	failed := modelFailure{Agent: l.path, Turn: l.turn, Error: string(f.Code), modelRequest: r.describe(llm.Name(), llm.Server())}
	failed.ResponseModel, failed.Usage = f.ResponseModel, usage
	l.stage.countUsage(failed.Model, failed.Usage, l.journal.callCost)
	l.journal.recordFailure(failed)
	r.begin, r.attempts = l.engine.cfg.Now(), nil
}

// endRequest records a request without an answer. Its last attempt is the reason.
func (r *requestFailures) endRequest(ctx context.Context, err error) {
	l, before := r.agent, len(r.attempts)-1
	if _, isModel := model.AsError(err); !isModel || ctx.Err() != nil || before < 0 {
		return
	}
	failed := modelFailure{Agent: l.path, Turn: l.turn, Error: r.attempts[before].Error}
	r.attempts = r.attempts[:before]
	failed.modelRequest = r.describe(r.last.Name(), r.last.Server())
	l.journal.recordFailure(failed)
}

// describe returns the request to a model until now.
func (r *requestFailures) describe(reference string, server *runtrace.Server) modelRequest {
	l := r.agent
	return modelRequest{
		Model: reference, Server: server, Temperature: l.agent.Temperature, MaxOutputTokens: l.agent.MaxOutputTokens,
		Attempts: r.attempts, period: l.engine.periodSince(r.begin),
	}
}
