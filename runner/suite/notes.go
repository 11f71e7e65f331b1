// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/model"
)

// maxNotes limits the notes of a run. The first ones have the cause.
const maxNotes = 10

// noteKey is the key of a noteList in a context.
type noteKey struct{}

// noteList collects reasons why one run may have failed, each once.
type noteList struct {
	mu   sync.Mutex
	seen []string
}

func (n *noteList) listNotes() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.seen
}

// addNote adds a note to the list of a context.
func addNote(ctx context.Context, text string) {
	n, ok := ctx.Value(noteKey{}).(*noteList)
	if !ok {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.seen) < maxNotes && !slices.Contains(n.seen, text) {
		n.seen = append(n.seen, text)
	}
}

// addErrors adds the errors of a log, which have the positions in scripts.
func addErrors(ctx context.Context, log []engine.LogLine) {
	for _, line := range log {
		if line.Level == "error" {
			addNote(ctx, line.Text)
		}
	}
}

// watchNotes returns the feature that notes rejected calls and errors of scripts.
func watchNotes() engine.Feature {
	return engine.Feature{
		Name: "the notes of a test",
		WrapCall: func(next engine.CallFunc) engine.CallFunc {
			return func(ctx context.Context, call *engine.Call) (engine.Result, error) {
				result, err := next(ctx, call)
				addErrors(ctx, call.Logged())
				return result, err
			}
		},
		WatchStep: func(ctx context.Context, _ *engine.Scope, ended engine.EndedStep) { addErrors(ctx, ended.Log) },
		WatchRejected: func(ctx context.Context, _ *engine.Scope, call *model.Call, problem string) {
			addNote(ctx, fmt.Sprintf("rejected call of %q: %s", call.Name, problem))
		},
	}
}
