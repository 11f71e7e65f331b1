// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"slices"
	"sync"

	"github.com/agentplatform/agentplatform/bundle"
)

// unmockedList collects what one run did that no mock answers, each once.
type unmockedList struct {
	mu   sync.Mutex
	seen []string
}

// unmockedKind is a kind of actions that mocks answer. It is the key of a list in a context.
type unmockedKind string

// Kinds of actions.
const (
	unmockedRequest unmockedKind = "request"
	unmockedCall    unmockedKind = "call"
)

// withUnmocked returns a context whose actions of a kind without a mock are added to a list.
func withUnmocked(ctx context.Context, kind unmockedKind, list *unmockedList) context.Context {
	return context.WithValue(ctx, kind, list)
}

// addUnmocked adds an action to the list of a context, if there is one.
func addUnmocked(ctx context.Context, kind unmockedKind, text string) {
	list, ok := ctx.Value(kind).(*unmockedList)
	if !ok {
		return
	}
	list.mu.Lock()
	defer list.mu.Unlock()
	if !slices.Contains(list.seen, text) {
		list.seen = append(list.seen, text)
	}
}

// listFindings returns a finding for each action.
func (u *unmockedList) listFindings(at bundle.Position, expected string) (out []Finding) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, action := range u.seen {
		out = append(out, Finding{At: at, Expected: expected, Got: "no mock answers " + action})
	}
	return out
}
