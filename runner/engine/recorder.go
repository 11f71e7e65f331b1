// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"google.golang.org/genai"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
)

// errJournal says that entries could not be appended.
var errJournal = errors.New("appending to the journal")

// ErrLaterJournal is the cause of an attempt that was not begun because the journal
// holds a kind of entry that this release does not know: to go on without it might
// repeat what it records.
var ErrLaterJournal = errors.New("the journal is of a later release")

// modelAnswer is the data of a model_answer entry.
type modelAnswer struct {
	// Agent is the path of the agent in the tree, Turn counts its answers from 1.
	Agent        string                 `json:"agent"`
	Turn         int                    `json:"turn"`
	Model        string                 `json:"model"`
	Content      *genai.Content         `json:"content"`
	FinishReason genai.FinishReason     `json:"finish_reason,omitempty"`
	Usage        dispatchapi.TokenUsage `json:"usage"`
}

// modelFailure is the data of a model_failure entry: an answer that was of no use.
type modelFailure struct {
	Agent string                 `json:"agent"`
	Turn  int                    `json:"turn"`
	Model string                 `json:"model"`
	Error string                 `json:"error"`
	Usage dispatchapi.TokenUsage `json:"usage"`
}

// toolStarted is the data of a tool_started entry.
type toolStarted struct {
	Agent     string         `json:"agent"`
	CallID    string         `json:"call_id"`
	Tool      string         `json:"tool"`
	Arguments map[string]any `json:"arguments"`
	// Sends says that it sends to a connector.
	Sends bool `json:"sends,omitempty"`
}

// toolResult is the data of a tool_result entry: a result or an error.
type toolResult struct {
	CallID string         `json:"call_id"`
	Tool   string         `json:"tool"`
	Result map[string]any `json:"result,omitempty"`
	Error  string         `json:"error,omitempty"`
}

type turnKey struct {
	agent string
	turn  int
}

// recorder is a run's journal as one attempt sees it: what is there to be
// answered again, and what is yet to be appended.
type recorder struct {
	sink   Journal
	prices func() (runnerconfig.Prices, error) // nil: none is known

	mu      sync.Mutex
	next    int64
	size    int // bytes of the data of all entries
	pending []dispatchapi.JournalEntry
	answers map[turnKey]modelAnswer
	started map[string]startedTool
	results map[string]toolResult
	calls   map[string]bool // ids of calls that were answered so far
	tokens  dispatchapi.TokenUsage
	err     error // the first that ended the attempt
	broken  error // the prior journal cannot be read

	flushing sync.Mutex // appends are in order
}

type startedTool struct {
	name          string
	unsafe, sends bool
	position      int64 // of its entry
}

func newRecorder(prior []dispatchapi.JournalEntry, sink Journal) *recorder {
	r := &recorder{
		sink: sink, next: 1, answers: map[turnKey]modelAnswer{}, started: map[string]startedTool{},
		results: map[string]toolResult{}, calls: map[string]bool{},
	}
	for _, entry := range prior {
		if err := r.load(entry); err != nil {
			r.broken = fmt.Errorf("reading journal entry %d: %w", entry.Sequence, err)
			return r
		}
		r.next = entry.Sequence + 1
		r.size += entry.Size()
	}
	return r
}

func (r *recorder) load(entry dispatchapi.JournalEntry) error {
	switch entry.Kind {
	case dispatchapi.JournalModelAnswer:
		var a modelAnswer
		if err := exactjson.Decode(entry.Data, &a); err != nil {
			return err
		}
		r.answers[turnKey{a.Agent, a.Turn}] = a
		r.count(a.Usage)
	case dispatchapi.JournalModelFailure:
		var f modelFailure
		if err := exactjson.Decode(entry.Data, &f); err != nil {
			return err
		}
		r.count(f.Usage)
	case dispatchapi.JournalToolStarted:
		var s toolStarted
		if err := exactjson.Decode(entry.Data, &s); err != nil {
			return err
		}
		r.started[s.CallID] = startedTool{name: s.Tool, unsafe: entry.Unsafe, sends: s.Sends, position: entry.Sequence}
	case dispatchapi.JournalToolResult:
		var t toolResult
		if err := exactjson.Decode(entry.Data, &t); err != nil {
			return err
		}
		r.results[t.CallID] = t
	default:
		return fmt.Errorf("%w: kind %q", ErrLaterJournal, entry.Kind)
	}
	return nil
}

// interrupted finds a tool that may have had an effect that nobody knows of, or a
// journal from which nobody can tell.
func (r *recorder) interrupted() error {
	if errors.Is(r.broken, ErrLaterJournal) {
		return r.broken
	}
	if r.broken != nil {
		return &failure{code: CodeInternal, message: "the run's journal cannot be read", cause: r.broken}
	}
	for id, s := range r.started {
		if _, done := r.results[id]; !done && s.unsafe {
			return &failure{code: CodeToolInterrupted, message: fmt.Sprintf(
				"tool %q was interrupted and may or may not have taken effect; it is not declared idempotent, so it was not called again", s.name)}
		}
	}
	return nil
}

// answer returns a journaled model answer.
func (r *recorder) answer(agent string, turn int) (modelAnswer, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, ok := r.answers[turnKey{agent, turn}]
	if ok {
		r.remember(a)
	}
	return a, ok
}

// recordAnswer gives every call an id that is unique in the run and records
// the answer.
func (r *recorder) recordAnswer(a modelAnswer) (modelAnswer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, part := range a.Content.Parts {
		if call := part.FunctionCall; call != nil {
			for n := len(r.calls) + 1; call.ID == "" || r.calls[call.ID] || reserved(call.ID); n++ {
				call.ID = fmt.Sprintf("call_%d", n)
			}
			r.calls[call.ID] = true
		}
	}
	data, err := json.Marshal(a)
	if err != nil {
		return a, fmt.Errorf("encoding a model's answer: %w", err)
	}
	if len(data) > dispatchapi.MaxModelAnswer {
		r.addFailure(modelFailure{Agent: a.Agent, Turn: a.Turn, Model: a.Model, Error: CodeAnswerTooLarge, Usage: a.Usage})
		return a, &failure{code: CodeAnswerTooLarge, message: fmt.Sprintf(
			"the model's answer has %d bytes, at most %d are stored; have it say less in one answer", len(data), dispatchapi.MaxModelAnswer)}
	}
	// What goes on is what a later attempt will read.
	var same modelAnswer
	if err := exactjson.Decode(data, &same); err != nil {
		return a, fmt.Errorf("decoding a model's answer: %w", err)
	}
	r.count(a.Usage)
	return same, r.add(dispatchapi.JournalEntry{
		Kind: dispatchapi.JournalModelAnswer, Data: data,
		Usage: r.used(a.Model, a.Usage),
	})
}

// recordFailure records an answer that was of no use, where it is said what it has used: that is
// paid for.
func (r *recorder) recordFailure(f modelFailure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addFailure(f)
}

// addFailure is recordFailure with the lock held. Where the journal has no room for it, the run ends
// for that soon.
func (r *recorder) addFailure(f modelFailure) {
	if f.Usage == (dispatchapi.TokenUsage{}) {
		return
	}
	data, err := json.Marshal(f)
	if err != nil { // cannot be: it has texts and numbers alone
		return
	}
	if r.add(dispatchapi.JournalEntry{Kind: dispatchapi.JournalModelFailure, Data: data, Usage: r.used(f.Model, f.Usage)}) == nil {
		r.count(f.Usage)
	}
}

// used is what a call has used, with what that costs by the prices of now.
func (r *recorder) used(model string, usage dispatchapi.TokenUsage) *dispatchapi.ModelUsage {
	return &dispatchapi.ModelUsage{Model: model, TokenUsage: usage, Cost: r.cost(model, usage)}
}

// cost is nil where no price is known.
func (r *recorder) cost(model string, usage dispatchapi.TokenUsage) *dispatchapi.Cost {
	if r.prices == nil {
		return nil
	}
	prices, err := r.prices()
	price, known := prices.Prices[model]
	if err != nil || !known {
		return nil
	}
	return &dispatchapi.Cost{Currency: price.Currency, Nanos: price.Nanos(runnerconfig.Tokens{
		Input: usage.InputTokens, CachedInput: usage.CachedInputTokens, Output: usage.OutputTokens, Thinking: usage.ThinkingTokens,
	})}
}

func (r *recorder) remember(a modelAnswer) {
	for _, part := range a.Content.Parts {
		if part.FunctionCall != nil {
			r.calls[part.FunctionCall.ID] = true
		}
	}
}

// result returns a journaled tool result.
func (r *recorder) result(callID string) (toolResult, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t, ok := r.results[callID]
	return t, ok
}

// recordStart records that a tool is about to be called, once, and returns the position
// of that entry.
func (r *recorder) recordStart(s toolStarted, unsafe bool) (position int64, err error) {
	data, err := json.Marshal(s)
	if err != nil {
		return 0, fmt.Errorf("encoding a tool's arguments: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.started[s.CallID]; ok {
		return known.position, nil
	}
	position = r.next
	r.started[s.CallID] = startedTool{name: s.Tool, unsafe: unsafe, sends: s.Sends, position: position}
	return position, r.add(dispatchapi.JournalEntry{Kind: dispatchapi.JournalToolStarted, Data: data, Unsafe: unsafe})
}

// sentBy are the names of the tools that sent in attempts before, but for middleware.
func (r *recorder) sentBy() (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, s := range r.started {
		if s.sends && !reserved(id) && !slices.Contains(names, s.name) {
			names = append(names, s.name)
		}
	}
	slices.Sort(names)
	return names
}

// recordResult records what a tool returned and answers it as a later attempt
// will read it.
func (r *recorder) recordResult(t toolResult, unsafe bool) (toolResult, error) {
	data, err := boundedResult(t)
	if err != nil {
		return t, err
	}
	var same toolResult
	if err := exactjson.Decode(data, &same); err != nil {
		return t, fmt.Errorf("decoding a tool's result: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.results[t.CallID] = same
	return same, r.add(dispatchapi.JournalEntry{Kind: dispatchapi.JournalToolResult, Data: data, Unsafe: unsafe})
}

// add numbers an entry, unless the journal has no room for it.
func (r *recorder) add(entry dispatchapi.JournalEntry) error {
	if err := checkJournal(r.size + entry.Size()); err != nil {
		return err
	}
	entry.Sequence = r.next
	r.pending = append(r.pending, entry)
	r.size += entry.Size()
	r.next++
	return nil
}

// flush appends what is pending.
func (r *recorder) flush(ctx context.Context) error {
	r.flushing.Lock()
	defer r.flushing.Unlock()
	for {
		r.mu.Lock()
		next := batch(r.pending)
		r.mu.Unlock()
		if len(next) == 0 {
			return nil
		}
		if err := r.sink.Append(ctx, next); err != nil {
			return fmt.Errorf("%w: %w", errJournal, err)
		}
		r.mu.Lock()
		r.pending = r.pending[len(next):]
		r.mu.Unlock()
	}
}

// shorten appends what is too much for the request that ends a run.
func (r *recorder) shorten(ctx context.Context) error {
	r.mu.Lock()
	fits := len(batch(r.pending)) == len(r.pending)
	r.mu.Unlock()
	if fits {
		return nil
	}
	return r.flush(ctx)
}

// take hands over what is pending.
func (r *recorder) take() []dispatchapi.JournalEntry {
	r.mu.Lock()
	defer r.mu.Unlock()
	batch := r.pending
	r.pending = nil
	return batch
}

// fail keeps the first error that ended the attempt.
func (r *recorder) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
}

func (r *recorder) failed() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

func (r *recorder) usage() dispatchapi.TokenUsage {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tokens
}

func (r *recorder) count(u dispatchapi.TokenUsage) {
	r.tokens.InputTokens += u.InputTokens
	r.tokens.OutputTokens += u.OutputTokens
	r.tokens.ThinkingTokens += u.ThinkingTokens
	r.tokens.CachedInputTokens += u.CachedInputTokens
	r.tokens.TotalTokens += u.TotalTokens
}
