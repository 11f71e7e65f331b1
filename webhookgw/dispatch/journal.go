// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// journal appends to a run's journal.
func (h *Handler) journal(w http.ResponseWriter, r *http.Request, token store.Token) error {
	var req dispatchapi.JournalRequest
	lease, err := h.lease(w, r, token, dispatchapi.MaxRequest, &req, func() int64 { return req.Token })
	if err != nil {
		return err
	}
	journal, err := entries(req.Entries)
	if err != nil {
		return err
	}
	return done(w, h.call(r.Context(), token.ProjectID, func(ctx context.Context) error {
		return h.opts.Store.AppendJournal(ctx, lease, journal)
	}))
}

// readJournal streams a run's journal to the runner that holds it, page by page.
func (h *Handler) readJournal(w http.ResponseWriter, r *http.Request, token store.Token) error {
	lease, err := h.leaseOfQuery(r, token)
	if err != nil {
		return err
	}
	// Appending nothing asks whether the claim is current.
	if err := h.call(r.Context(), token.ProjectID, func(ctx context.Context) error {
		return h.opts.Store.AppendJournal(ctx, lease, nil)
	}); err != nil {
		return err
	}
	var after int64
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	for {
		var entries []store.JournalEntry
		err := h.call(r.Context(), token.ProjectID, func(ctx context.Context) (err error) {
			entries, err = h.opts.Store.JournalAfter(ctx, lease.Run, after, journalPage)
			return err
		})
		switch {
		case err != nil && after == 0:
			return err
		case err != nil: // the answer is under way: cut off, it is no journal
			panic(http.ErrAbortHandler)
		case after == 0:
			w.Header().Set("Content-Type", "application/x-ndjson")
			w.WriteHeader(http.StatusOK)
		}
		for _, entry := range wireEntries(entries) {
			if out.Encode(entry) != nil {
				panic(http.ErrAbortHandler)
			}
			after = entry.Sequence
		}
		if store.LastJournalPage(entries, journalPage) {
			return nil
		}
	}
}

// leaseOfQuery is the claim that a request without a body speaks of.
func (h *Handler) leaseOfQuery(r *http.Request, token store.Token) (store.Lease, error) {
	id, err := runID(r)
	if err != nil {
		return store.Lease{}, err
	}
	if err := h.owned(r.Context(), id, token); err != nil {
		return store.Lease{}, err
	}
	fence, err := strconv.ParseInt(r.URL.Query().Get("token"), 10, 64)
	if err != nil {
		return store.Lease{}, httpserver.NewProblem(http.StatusUnprocessableEntity, httpserver.CodeInvalid, "token is the number of the claim.")
	}
	return store.Lease{Run: token.Run(id), Token: fence}, nil
}

func wireEntries(entries []store.JournalEntry) []dispatchapi.JournalEntry {
	out := make([]dispatchapi.JournalEntry, len(entries))
	for i, e := range entries {
		out[i] = dispatchapi.JournalEntry{Sequence: e.Sequence, Kind: string(e.Kind), Data: e.Data, Unsafe: e.Unsafe}
	}
	return out
}

// entries are a runner's as they are stored. What a model calls itself is cut, for its
// service says that and no run is to fail of it.
func entries(in []dispatchapi.JournalEntry) ([]store.JournalEntry, error) {
	out := make([]store.JournalEntry, len(in))
	for i, e := range in {
		kind := store.JournalKind(e.Kind)
		if kind == store.JournalResumed || kind == store.JournalExpired {
			return nil, httpserver.NewProblem(http.StatusUnprocessableEntity, httpserver.CodeReservedKind,
				fmt.Sprintf("Journal entry %d: entries of the kind %s are written by the platform alone.", e.Sequence, kind))
		}
		out[i] = store.JournalEntry{Sequence: e.Sequence, Kind: kind, Data: e.Data, Unsafe: e.Unsafe}
		if u := e.Usage; u != nil {
			used := store.ModelUsage{Model: store.Cut(u.Model, dispatchapi.MaxModel), TokenUsage: store.TokenUsage(u.TokenUsage)}
			if u.Cost != nil {
				used.Cost = store.Cost{Currency: store.Currency(u.Cost.Currency), Nanos: u.Cost.Nanos}
			}
			out[i].Usage = used.Bounded()
		}
	}
	return out, nil
}
