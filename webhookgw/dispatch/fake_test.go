// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// fake is a store where each token belongs to a runner of the project and environment with the same
// name, and each run belongs to that environment. Its fields set the other results.
type fake struct {
	Store
	tokens map[string]bool // valid tokens; nil means all
	hold   chan struct{}   // blocks token reads until it is closed, unless nil
	none   bool            // there is no run

	claimed   []store.Claimed
	entry     string        // the data of each journal entry
	length    int64         // the length of each journal
	reading   chan struct{} // each page of a journal waits for a value
	unread    uuid.UUID     // the run with an unreadable journal
	body      io.Reader     // of each input
	lost      func(store.Lease) bool
	completed func([]store.Completion) ([]error, error)

	away  error       // the error of Attend
	waits []store.Key // environments with queued runs, whatever hints report

	undrifted  error         // the error of RecordDrift
	holdDrift  chan struct{} // RecordDrift waits until it is closed
	actions    []string      // the tools of each agent
	actionless error
	sent       store.Sent
	unsent     error

	mutex    sync.Mutex
	sends    []store.Send
	drift    map[store.Key][]store.DriftReport
	counted  map[string]int
	renewed  []store.Held
	beating  store.Key
	released []store.Lease
	written  []store.JournalEntry
}

// named returns the ID for a name.
func named(name string) uuid.UUID { return uuid.NewSHA1(uuid.Nil, []byte(name)) }

func (f *fake) count(call string) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if f.counted == nil {
		f.counted = map[string]int{}
	}
	f.counted[call]++
}

func (f *fake) calls(call string) int {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.counted[call]
}

var fakeNames = sync.OnceValue(func() map[[sha256.Size]byte]string {
	names := map[[sha256.Size]byte]string{}
	for _, name := range []string{"greedy", "modest", "a", "b", "c", "d"} {
		names[sha256.Sum256([]byte(name))] = name
	}
	return names
})

func (f *fake) Token(_ context.Context, digest []byte) (store.Token, error) {
	f.count("Token")
	if f.hold != nil {
		<-f.hold
	}
	name, known := fakeNames()[[sha256.Size]byte(digest)]
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if !known || f.tokens != nil && !f.tokens[name] {
		return store.Token{}, store.ErrNotFound
	}
	return store.Token{SHA256: digest, Kind: store.TokenRunner, ProjectID: named(name), EnvironmentID: named(name)}, nil
}

func (*fake) Connections() int { return fakeConnections }

// fakeConnections is the number of connections of a fake.
const fakeConnections = 16

func (f *fake) Claim(context.Context, store.Claim) (store.ClaimResult, error) {
	f.count("Claim")
	return store.ClaimResult{Runs: f.claimed}, nil
}

func (f *fake) RecordDrift(_ context.Context, environment store.Key, reports []store.DriftReport) error {
	f.count("RecordDrift")
	if f.holdDrift != nil {
		<-f.holdDrift
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.drift = map[store.Key][]store.DriftReport{environment: reports}
	return f.undrifted
}

func (f *fake) Actions(_ context.Context, _ store.Key, agents []string) (all []store.Action, err error) {
	f.count("Actions")
	for _, agent := range agents {
		for _, name := range f.actions {
			all = append(all, store.Action{AgentName: agent, Name: name, Connector: "a connector"})
		}
	}
	return all, f.actionless
}

func (f *fake) Send(_ context.Context, s store.Send) (store.Sent, error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.sends = append(f.sends, s)
	return f.sent, f.unsent
}

func (f *fake) Attend(_ context.Context, runners []store.RunnerKey) ([]store.Key, error) {
	f.count("Attend")
	return f.waits, f.away
}

func (f *fake) Subscribe(store.Topic) (<-chan store.Hint, func()) {
	hints := make(chan store.Hint)
	return hints, func() { close(hints) }
}

func (f *fake) Environment(context.Context, store.Key) (store.Environment, error) {
	return store.Environment{}, nil
}

func (f *fake) RunEnvironments(_ context.Context, project uuid.UUID, runs []uuid.UUID) (map[uuid.UUID]uuid.UUID, error) {
	f.count("RunEnvironments")
	environments := map[uuid.UUID]uuid.UUID{}
	for _, run := range runs {
		if !f.none {
			environments[run] = project
		}
	}
	return environments, nil
}

func (f *fake) RunInput(context.Context, store.Key) (string, io.ReadCloser, error) {
	return "text/plain", io.NopCloser(f.body), nil
}

func (f *fake) JournalAfter(ctx context.Context, run store.Key, sequence int64, limit int) (entries []store.JournalEntry, err error) {
	f.count("JournalAfter")
	if f.unread != uuid.Nil && run.ID == f.unread {
		return nil, errors.New("no answer")
	}
	if f.reading != nil {
		select {
		case <-f.reading:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	for sequence < f.length && len(entries) < limit {
		sequence++
		entries = append(entries, store.JournalEntry{Sequence: sequence, Kind: store.JournalModelAnswer, Data: []byte(f.entry)})
	}
	return entries, nil
}

func (f *fake) CheckClaim(_ context.Context, l store.Lease) error {
	if f.lost != nil && f.lost(l) {
		return store.ErrFenced
	}
	return nil
}

func (f *fake) AppendJournal(_ context.Context, l store.Lease, entries []store.JournalEntry) error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.written = append(f.written, entries...)
	if f.lost != nil && f.lost(l) {
		return store.ErrFenced
	}
	return nil
}

func (f *fake) AppendJournals(ctx context.Context, appends []store.JournalAppend) (errs []error) {
	for _, a := range appends {
		errs = append(errs, f.AppendJournal(ctx, a.Lease, a.Entries))
	}
	return errs
}

func (f *fake) Heartbeat(_ context.Context, environment store.Key, held []store.Held, _ time.Duration) (lost []store.Lease, err error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.beating, f.renewed = environment, append(f.renewed, held...)
	return nil, nil
}

func (f *fake) Complete(_ context.Context, completions []store.Completion) ([]error, error) {
	f.count("Complete")
	if f.completed == nil {
		return make([]error, len(completions)), nil
	}
	return f.completed(completions)
}

func (f *fake) Release(_ context.Context, l store.Lease, _ time.Duration) error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.released = append(f.released, l)
	return nil
}

func handlerOf(f *fake) *Handler {
	return New(Options{Store: f, Logger: slog.New(slog.DiscardHandler)})
}

// ask sends a request with a token.
func ask(t *testing.T, h http.Handler, token, method, target, body string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+token)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}
