// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/model"
)

// errJournal is the error for entries that could not be appended.
var errJournal = errors.New("appending to the journal")

// ErrLaterJournal is the cause of an attempt that did not begin because the journal has an unknown
// kind of entry. Continuing could repeat a recorded effect.
var ErrLaterJournal = errors.New("the journal is of a later release")

type turnKey struct {
	agent string
	turn  int
}

// recorder is a run's journal in one attempt: the entries to replay and the entries to append.
type recorder struct {
	sink   Journal
	saver  SavedFiles                          // nil if files cannot be saved
	prices func() (runnerconfig.Prices, error) // nil without prices

	mu      sync.Mutex
	next    int64
	size    int // bytes of the data of all entries, with the reserve for each undecided save
	pending []dispatchapi.JournalEntry
	since   time.Time // when the oldest pending entry was added
	aging   *time.Timer
	// urgent is true if a pending entry is the result of an action that must not happen twice.
	urgent bool
	// flushAged appends entries that are old enough. It is called in a goroutine of its own.
	flushAged func()
	answers   map[turnKey]modelAnswer
	started   map[string]startedTool
	results   map[string]toolResult
	steps     map[string]stepEntry
	failures  map[string][]modelFailure // of earlier attempts, by agent
	waiting   *waitEntry                // the last wait, nil if it ended
	files     []fileEntry               // saved files, in their order
	// savedBytes are the bytes of all saved files. unsaved has the pending ones by the sequence of their entries.
	savedBytes int64
	unsaved    map[int64]unsavedFile
	// isStorageFull is true after a rejection for that reason. The attempt then saves no more files, because a script could fetch and
	// send them in a loop.
	isStorageFull bool
	calls         map[string]bool // IDs of answered calls
	tokens        dispatchapi.TokenUsage
	finish        model.FinishReason // of the last answer in the journal
	logs          logBudget
	err           error // first error that ended the attempt
	broken        error // the prior journal cannot be read

	// flushing keeps appends in order. It guards sinkErr, the first failed append, and closed. After either of them nothing
	// is appended.
	flushing chan struct{} // has a token while nothing is appended
	sinkErr  error
	closed   bool
}

type startedTool struct {
	name, digest  string
	unsafe, sends bool
	tells         bool
	position      int64 // position of its entry
	at            time.Time
}

func newRecorder(prior []dispatchapi.JournalEntry, sink Journal, saver SavedFiles) *recorder {
	r := &recorder{
		sink: sink, saver: saver, unsaved: map[int64]unsavedFile{}, next: 1, answers: map[turnKey]modelAnswer{}, started: map[string]startedTool{},
		results: map[string]toolResult{}, steps: map[string]stepEntry{}, calls: map[string]bool{},
		failures: map[string][]modelFailure{}, flushing: make(chan struct{}, 1),
	}
	r.flushing <- struct{}{}
	for _, entry := range prior {
		if err := r.loadEntry(entry); err != nil {
			r.broken = fmt.Errorf("reading journal entry %d: %w", entry.Sequence, err)
			return r
		}
		r.next = entry.Sequence + 1
		r.size += entry.Size()
	}
	return r
}

// recordedFailures returns the unusable answers to an agent in earlier attempts.
func (r *recorder) recordedFailures(agent string) []modelFailure { return r.failures[agent] }

// recordedAnswer returns a recorded model answer.
func (r *recorder) recordedAnswer(agent string, turn int) (modelAnswer, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a, ok := r.answers[turnKey{agent, turn}]
	return a, ok
}

// recordAnswer gives each call an ID that is unique in the run and records the answer.
func (r *recorder) recordAnswer(a modelAnswer) (modelAnswer, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, call := range a.Content.Calls() {
		for n := len(r.calls) + 1; call.ID == "" || r.calls[call.ID] || reserved(call.ID); n++ {
			call.ID = fmt.Sprintf("call_%d", n)
		}
		r.calls[call.ID] = true
	}
	a.Cost = r.callCost(a.Model, a.Usage)
	data, err := json.Marshal(a)
	if err != nil {
		return a, fmt.Errorf("encoding a model's answer: %w", err)
	}
	if len(data) > dispatchapi.MaxModelAnswer {
		r.addFailure(modelFailure{Agent: a.Agent, Turn: a.Turn, Error: string(runerror.ModelAnswerTooLarge), modelRequest: a.modelRequest})
		return a, &failure{code: runerror.ModelAnswerTooLarge, message: fmt.Sprintf(
			"the model's answer has %d bytes, the limit is %d; make it answer with less", len(data), dispatchapi.MaxModelAnswer)}
	}
	// The attempt continues with the value that a later attempt will read.
	var same modelAnswer
	if err := exactjson.Decode(data, &same); err != nil {
		return a, fmt.Errorf("decoding a model's answer: %w", err)
	}
	r.countUsage(a.Usage)
	r.finish = same.FinishReason
	return same, r.addEntry(dispatchapi.JournalEntry{
		Kind: dispatchapi.JournalModelAnswer, Data: data,
		Usage: usageWith(a.Model, a.Usage, a.Cost),
	})
}

// recordFailure records an unusable answer, which is paid, or a request without an answer.
func (r *recorder) recordFailure(f modelFailure) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addFailure(f)
}

// addFailure is recordFailure with the lock held. If the journal is full, the run fails soon for
// that reason.
func (r *recorder) addFailure(f modelFailure) {
	entry := dispatchapi.JournalEntry{Kind: dispatchapi.JournalModelFailure}
	if f.isPaid() {
		f.Cost = r.callCost(f.Model, f.Usage)
		entry.Usage = usageWith(f.Model, f.Usage, f.Cost)
	}
	data, err := json.Marshal(f)
	if err != nil { // impossible: it has only texts and numbers
		return
	}
	if entry.Data = data; r.addEntry(entry) == nil {
		r.countUsage(f.Usage)
	}
}

func usageWith(model string, usage dispatchapi.TokenUsage, cost *dispatchapi.Cost) *dispatchapi.ModelUsage {
	return &dispatchapi.ModelUsage{Model: model, TokenUsage: usage, Cost: cost}
}

// callCost returns the cost of a call at current prices, and nil without a known price.
func (r *recorder) callCost(model string, usage dispatchapi.TokenUsage) *dispatchapi.Cost {
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

// rememberCalls reserves the IDs of the calls of a recorded answer. Agents that run at the same time ask in any order, so
// the IDs of all recorded answers are reserved before the first request.
func (r *recorder) rememberCalls(a modelAnswer) {
	for _, call := range a.Content.Calls() {
		r.calls[call.ID] = true
	}
}

// recordedResult returns the recorded result of an action. The error is a divergence: the action of this attempt is not
// the recorded one.
func (r *recorder) recordedResult(s toolStarted) (toolResult, bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if t, ok := r.results[s.CallID]; ok {
		if t.Digest != s.Digest {
			return toolResult{}, false, diverged(s, t.Tool)
		}
		return t, true, nil
	}
	if known, ok := r.started[s.CallID]; ok && known.digest != s.Digest {
		return toolResult{}, false, diverged(s, known.name)
	}
	return toolResult{}, false, nil
}

// hasBegun reports whether a call has begun in this attempt or an earlier one.
func (r *recorder) hasBegun(callID string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, begun := r.started[callID]
	return begun
}

// recordStart records once that an action is about to happen, and returns what a later attempt will read.
func (r *recorder) recordStart(s toolStarted, unsafe bool) (startedTool, error) {
	data, err := json.Marshal(s)
	if err != nil {
		return startedTool{}, fmt.Errorf("encoding a tool's arguments: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if known, ok := r.started[s.CallID]; ok {
		return known, nil
	}
	began := startedTool{name: s.Tool, digest: s.Digest, unsafe: unsafe, sends: s.Sends, tells: s.Tells, position: r.next, at: s.At}
	r.started[s.CallID] = began
	return began, r.addEntry(dispatchapi.JournalEntry{Kind: dispatchapi.JournalToolStarted, Data: data, Unsafe: unsafe})
}

// sendingTools returns the names of the tools that sent in earlier attempts, without middleware.
func (r *recorder) sendingTools() (names []string) {
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

// recordResult records the result of an action and returns the value that a later attempt will read.
func (r *recorder) recordResult(t toolResult, unsafe bool) (toolResult, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.addResult(t, unsafe)
}

// addResult is recordResult with the lock held.
func (r *recorder) addResult(t toolResult, unsafe bool) (toolResult, error) {
	data, same, err := encodeResult(t)
	if err != nil {
		return same, err
	}
	r.results[t.CallID] = same
	return same, r.addEntry(dispatchapi.JournalEntry{Kind: dispatchapi.JournalToolResult, Data: data, Unsafe: unsafe})
}

// encodeResult returns the data of a result and the value that a later attempt will read.
func encodeResult(t toolResult) (data []byte, same toolResult, err error) {
	if data, err = boundedResult(t); err != nil {
		return nil, same, err
	}
	if err := exactjson.Decode(data, &same); err != nil {
		return nil, same, fmt.Errorf("decoding a tool's result: %w", err)
	}
	return data, same, nil
}

// addEntry numbers an entry. It returns an error if the journal is full.
func (r *recorder) addEntry(entry dispatchapi.JournalEntry) error {
	if err := checkJournal(r.size + entry.Size()); err != nil {
		return err
	}
	entry.Sequence = r.next
	if len(r.pending) == 0 {
		r.since = time.Now()
		if r.flushAged != nil {
			r.aging = time.AfterFunc(maxPendingAge, r.flushAged)
		}
	}
	r.pending = append(r.pending, entry)
	r.size += entry.Size()
	r.next++
	return nil
}

// maxPendingAge is the age at which an entry is appended, also if no effect needs it to be durable. A runner that is
// killed repeats at most the model requests and reads of this time.
const maxPendingAge = 250 * time.Millisecond

// maxResultAge is the age at which the result of an action that must not happen twice is appended. The next action appends it
// earlier. So actions that follow each other share an append.
const maxResultAge = 2 * time.Millisecond

// flushSoon appends pending entries in maxResultAge.
func (r *recorder) flushSoon() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pending) == 0 {
		return
	}
	r.urgent = true
	if r.aging != nil {
		r.aging.Reset(maxResultAge)
	}
}

// flushOld appends pending entries if the oldest is older than maxPendingAge.
func (r *recorder) flushOld(ctx context.Context) error {
	r.mu.Lock()
	young := len(r.pending) == 0 || time.Since(r.since) < maxPendingAge
	r.mu.Unlock()
	if young {
		return nil
	}
	return r.flushPending(ctx)
}

// flushPending appends pending entries.
func (r *recorder) flushPending(ctx context.Context) error {
	<-r.flushing
	defer func() { r.flushing <- struct{}{} }()
	if r.closed || r.sinkErr != nil {
		return r.sinkErr
	}
	for {
		r.mu.Lock()
		next := firstBatch(r.pending)
		r.mu.Unlock()
		if len(next) == 0 {
			return nil
		}
		if isReplaced, err := r.appendBatch(ctx, next); isReplaced && err == nil {
			continue
		} else if err != nil {
			r.sinkErr = fmt.Errorf("%w: %w", errJournal, err)
			return r.sinkErr
		}
		r.mu.Lock()
		r.pending = r.pending[len(next):]
		if _, isSaved := r.unsaved[next[0].Sequence]; isSaved {
			delete(r.unsaved, next[0].Sequence)
			r.size -= rejectionReserve
		}
		r.stopAging()
		r.mu.Unlock()
	}
}

// appendBatch appends the entries of a batch, with the bytes of its file. If the platform does not save the file, it replaces the
// entries.
func (r *recorder) appendBatch(ctx context.Context, batch []dispatchapi.JournalEntry) (isReplaced bool, err error) {
	if batch[0].Kind != dispatchapi.JournalFile {
		return false, r.sink.Append(ctx, batch)
	}
	r.mu.Lock()
	data, isStorageFull := r.unsaved[batch[0].Sequence].data, r.isStorageFull
	r.mu.Unlock()
	if isStorageFull {
		return true, r.replaceRejected(batch, storageFull)
	}
	err = r.saver.Save(ctx, batch, data)
	var rejected *dispatchapi.RejectedError
	if errors.As(err, &rejected) && rejectionReason(rejected) != "" {
		err = r.replaceRejected(batch, rejectionReason(rejected))
		isReplaced = err == nil
	}
	if err != nil {
		return false, fmt.Errorf("saving a file of the run: %w", err)
	}
	return isReplaced, nil
}

// flushBeforeEnd appends pending entries that do not fit into the request that ends a run, or cannot wait for it: the gateway may
// let the end of a run wait for those of other projects.
func (r *recorder) flushBeforeEnd(ctx context.Context) error {
	r.mu.Lock()
	canWait := !r.urgent && len(firstBatch(r.pending)) == len(r.pending)
	r.mu.Unlock()
	if canWait {
		return nil
	}
	return r.flushPending(ctx)
}

// takePending ends the recording. It returns the entries that are not appended.
func (r *recorder) takePending() []dispatchapi.JournalEntry {
	<-r.flushing // an append in the background ends first
	defer func() { r.flushing <- struct{}{} }()
	r.closed = true
	r.mu.Lock()
	defer r.mu.Unlock()
	batch := r.pending
	r.pending = nil
	r.stopAging()
	return batch
}

// stopAging ends the hurry of pending entries if there are none.
func (r *recorder) stopAging() {
	if len(r.pending) > 0 {
		return
	}
	r.urgent = false
	if r.aging != nil {
		r.aging.Stop()
	}
}

// endWith stores the first error that ended the attempt, and returns it.
func (r *recorder) endWith(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
	return r.err
}

func (r *recorder) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

func (r *recorder) totalUsage() dispatchapi.TokenUsage {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tokens
}

// lastFinish returns the reason for the end of the last answer in the journal, "" without one.
func (r *recorder) lastFinish() model.FinishReason {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.finish
}

func (r *recorder) countUsage(u dispatchapi.TokenUsage) {
	r.tokens.InputTokens += u.InputTokens
	r.tokens.OutputTokens += u.OutputTokens
	r.tokens.ThinkingTokens += u.ThinkingTokens
	r.tokens.CachedInputTokens += u.CachedInputTokens
	r.tokens.TotalTokens += u.TotalTokens
}
