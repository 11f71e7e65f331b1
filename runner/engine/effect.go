// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runerror"
)

const (
	// maxEffects limits the effects of one call, because each has an entry in the journal.
	maxEffects = 1000
	// maxShownArguments limits the arguments of an effect in the journal, as JSON in bytes.
	maxShownArguments = 16 << 10
)

// effectSeparator separates the owner of an effect from its number. No call ID of a model contains it.
const effectSeparator = "/"

// Effects performs the effects of a script, one at a time, once over all attempts. A script that runs again gets the
// recorded results, and continues with the first effect that has none.
type Effects struct {
	scope *Scope
	owner string
	// keys begins the idempotency keys of the effects.
	keys  string
	count int
	// began is the journal entry that announces the script.
	began int64
	// tells is true if the model learns of an interrupted effect.
	tells bool
}

// Effect is what a script does to the outside world.
type Effect struct {
	// Name is the name of the function, such as "http.post".
	Name      string
	Arguments map[string]any
	// Read is true if the effect changes nothing. It is done again if its result was lost.
	Read bool
	// Idempotent is true if a repetition changes nothing more. Otherwise an interrupted effect fails the run.
	Idempotent bool
	// Run performs the effect. key identifies the effect in the run, for requests that carry an idempotency key. The
	// script sees the text of an error.
	Run func(ctx context.Context, key string) (map[string]any, error)
	// Save performs a read in place of Run. Its result is a file of the run, and the script sees its id, name, size and
	// mime_type.
	Save func(ctx context.Context) (NewFile, error)
}

// Effects returns the effects of a call of a tool.
func (c *Call) Effects() *Effects {
	return &Effects{scope: c.Scope, owner: c.ID, keys: c.IdempotencyKey(), began: c.Position, tells: !reserved(c.ID) && c.Scope.agent.ToolOptions.TellsInterrupted()}
}

// Count returns the number of effects so far.
func (e *Effects) Count() int { return e.count }

// Do performs the next effect or returns its recorded result. Its error ends the attempt; an error for the script is
// part of the result.
func (e *Effects) Do(ctx context.Context, effect Effect) (Result, error) {
	if effect.Save != nil && e.scope.in.SavedFiles == nil {
		return Result{Error: "files cannot be saved here"}, nil
	}
	e.count++
	if e.count > maxEffects {
		return Result{Error: fmt.Sprintf("a call can have at most %d requests and variables", maxEffects)}, nil
	}
	id := e.owner + effectSeparator + strconv.Itoa(e.count)
	digest, err := effectDigest(effect)
	if err != nil {
		return Result{Error: "the arguments of " + effect.Name + " are not JSON"}, nil
	}
	unsafe := !effect.Read && !effect.Idempotent
	a := action{
		started: toolStarted{
			Agent: e.scope.path, CallID: id, Tool: effect.Name, Arguments: shownArguments(effect.Arguments), Digest: digest, Tells: unsafe && e.tells,
		},
		unsafe: unsafe && !e.tells, read: effect.Read,
		run: func(ctx context.Context, _ startedTool) (map[string]any, error) {
			return effect.Run(ctx, cmp.Or(e.keys, e.scope.in.RunID+effectSeparator+e.owner)+strings.TrimPrefix(id, e.owner))
		},
	}
	if effect.Save != nil {
		return e.saveFile(ctx, effect, a)
	}
	return e.scope.perform(ctx, a)
}

// saveFile performs an effect that saves a file. Other saves wait until the file is stored, because it is in memory until then.
func (e *Effects) saveFile(ctx context.Context, effect Effect, a action) (Result, error) {
	waiting, held := e.scope.engine.saves, false
	a.file = &NewFile{}
	a.run = func(ctx context.Context, _ startedTool) (_ map[string]any, err error) {
		if err := waiting.Acquire(ctx, 1); err != nil {
			return nil, err
		}
		held = true
		if err := e.scope.journal.rejectAnyFile(); err != nil {
			return nil, err
		}
		*a.file, err = effect.Save(ctx)
		return nil, err
	}
	defer func() {
		if held {
			waiting.Release(1)
		}
	}()
	return e.scope.perform(ctx, a)
}

// SendConnector sends a payload to an outbound connector, by its name, over a link of the mode middleware. It is the next
// effect. A payload is sent once, because it is sent under the position of its journal entry.
func (e *Effects) SendConnector(ctx context.Context, name string, payload any) (Result, error) {
	if e.scope.in.Outbound == nil {
		return Result{Error: "sending is not available here"}, nil
	}
	e.count++
	effect := Effect{Name: bundle.SendConnector, Arguments: map[string]any{"action_name": name, "payload": payload}}
	digest, err := effectDigest(effect)
	if err != nil {
		return Result{Error: "the payload cannot be written as JSON"}, nil
	}
	return e.scope.perform(ctx, action{
		started: toolStarted{
			Agent: e.scope.path, CallID: e.owner + effectSeparator + strconv.Itoa(e.count), Tool: bundle.SendConnector, Sends: true,
			Arguments: shownArguments(effect.Arguments), Digest: digest,
		},
		positioned: true,
		run: func(ctx context.Context, began startedTool) (map[string]any, error) {
			return e.scope.sendPayload(ctx, dispatchapi.SendRequest{Mode: dispatchapi.SendByMiddleware, Name: name, Position: began.position}, payload)
		},
	})
}

// shownArguments returns the arguments for the journal, or their size if they are large. The digest identifies them.
func shownArguments(args map[string]any) map[string]any {
	text, err := json.Marshal(args)
	if err != nil || len(text) <= maxShownArguments {
		return args
	}
	return map[string]any{"bytes": len(text)}
}

// effectDigest identifies the name and the arguments of an effect.
func effectDigest(effect Effect) (string, error) {
	text, err := json.Marshal([]any{effect.Name, effect.Arguments}) // maps are written in the order of their keys
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}

// diverged returns the failure of a run whose script asks for another effect than before.
func diverged(s toolStarted, before string) *failure {
	return &failure{code: runerror.ScriptDiverged, message: fmt.Sprintf(
		"the script of %q did %q as effect %s before, and asks for %q with other arguments or at another position now; "+
			"a script must do the same in each attempt", s.Agent, before, s.CallID, s.Tool)}
}
