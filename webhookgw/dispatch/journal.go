// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// journal appends to a run's journal.
func (h *Handler) journal(w http.ResponseWriter, r *http.Request, token store.Token) error {
	var req dispatchapi.JournalRequest
	lease, err := h.readLease(w, r, token, dispatchapi.MaxRequest, &req, func() int64 { return req.Token })
	if err != nil {
		return err
	}
	journal, err := storeEntries(req.Entries)
	if err != nil {
		return err
	}
	return writeNoContent(w, h.appends.appendJournal(r.Context(), store.JournalAppend{Lease: lease, Entries: journal}))
}

// errSeparate rejects a request of several appends. One of them may be the cause of a failed statement, so the runner sends each alone
// as long as the gateway writes each alone.
var errSeparate = func() httpserver.Problem {
	p := httpserver.NewProblem(http.StatusServiceUnavailable, httpserver.CodeBusy, "A statement with several appends failed. Send each append alone.")
	p.RetryAfter = separateTime
	return p
}()

// appendJournals appends to the journals of several runs. Each append has its own result.
func (h *Handler) appendJournals(w http.ResponseWriter, r *http.Request, token store.Token) error {
	var req dispatchapi.AppendRequest
	if err := decodeRequest(w, r, dispatchapi.MaxRequest, &req); err != nil {
		return err
	}
	if h.appends.isSuspect(token.ProjectID) {
		return errSeparate
	}
	runs := make([]uuid.UUID, len(req.Appends))
	for i, a := range req.Appends {
		runs[i] = a.RunID
	}
	owned, err := h.ownedRuns(r.Context(), runs, token)
	if err != nil {
		return err
	}
	results := make([]dispatchapi.AppendResult, len(req.Appends))
	var appends []store.JournalAppend
	var positions []int // of the appends in the request
	for i, a := range req.Appends {
		journal, err := storeEntries(a.Entries)
		if !owned[a.RunID] {
			err = store.ErrNotFound
		}
		if err != nil {
			results[i] = h.appendResult(r, err)
			continue
		}
		appends = append(appends, store.JournalAppend{Lease: store.Lease{Run: token.Run(a.RunID), Token: a.Token}, Entries: journal})
		positions = append(positions, i)
	}
	for i, err := range h.appends.appendJournals(r.Context(), token.ProjectID, appends) {
		results[positions[i]] = h.appendResult(r, err)
	}
	httpserver.WriteJSON(w, http.StatusOK, dispatchapi.AppendResponse{Results: results})
	return nil
}

// appendResult returns the response that an append alone gets.
func (h *Handler) appendResult(r *http.Request, err error) dispatchapi.AppendResult {
	if err == nil {
		return dispatchapi.AppendResult{Status: http.StatusNoContent}
	}
	problem := h.problemOf(r, err)
	return dispatchapi.AppendResult{Status: problem.Status, Detail: problem.Detail}
}

// writeAppends writes appends of a project after its turn in the queue.
func (h *Handler) writeAppends(ctx context.Context, project uuid.UUID, appends []store.JournalAppend) (errs []error) {
	defer func() {
		if p := recover(); p != nil { // as net/http does for requests
			h.opts.Logger.Error("writing journals panicked", "project", project, "panic", p, "stack", string(debug.Stack()))
			errs = slices.Repeat([]error{errors.New("writing journals panicked")}, len(appends))
		}
	}()
	err := h.callStore(ctx, project, func(ctx context.Context) error {
		if errs = h.opts.Store.AppendJournals(ctx, appends); len(errs) != len(appends) {
			return fmt.Errorf("store answered %d of %d appends", len(errs), len(appends))
		}
		return nil
	})
	if err != nil {
		return slices.Repeat([]error{err}, len(appends))
	}
	return errs
}

// readJournal streams a run's journal, page by page, to the runner that holds the run.
func (h *Handler) readJournal(w http.ResponseWriter, r *http.Request, token store.Token) error {
	lease, err := h.leaseOfQuery(r, token)
	if err != nil {
		return err
	}
	if err := h.checkClaim(r.Context(), lease); err != nil {
		return err
	}
	var after int64
	out := json.NewEncoder(w)
	out.SetEscapeHTML(false)
	for {
		var entries []store.JournalEntry
		err := h.callStore(r.Context(), token.ProjectID, func(ctx context.Context) (err error) {
			entries, err = h.opts.Store.JournalAfter(ctx, lease.Run, after, journalPage)
			return err
		})
		switch {
		case err != nil && after == 0:
			return err
		case err != nil: // the response has started, so it is cut off and is no valid journal
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

// checkClaim returns an error unless the claim is current.
func (h *Handler) checkClaim(ctx context.Context, lease store.Lease) error {
	return h.callStore(ctx, lease.Run.ProjectID, func(ctx context.Context) error { return h.opts.Store.CheckClaim(ctx, lease) })
}

// leaseOfQuery returns the claim of a request without a body.
func (h *Handler) leaseOfQuery(r *http.Request, token store.Token) (store.Lease, error) {
	run, err := h.ownedRun(r, token)
	if err != nil {
		return store.Lease{}, err
	}
	fence, err := strconv.ParseInt(r.URL.Query().Get("token"), 10, 64)
	if err != nil {
		return store.Lease{}, httpserver.NewProblem(http.StatusUnprocessableEntity, httpserver.CodeInvalid, "token is the number of the claim.")
	}
	return store.Lease{Run: run, Token: fence}, nil
}

func wireEntries(entries []store.JournalEntry) []dispatchapi.JournalEntry {
	out := make([]dispatchapi.JournalEntry, len(entries))
	for i, e := range entries {
		out[i] = dispatchapi.JournalEntry{Sequence: e.Sequence, Kind: string(e.Kind), Data: e.Data, Unsafe: e.Unsafe}
	}
	return out
}

// storeEntries converts the entries of a runner for the store. It truncates model names, because the
// model service chooses them and no run should fail because of them.
func storeEntries(in []dispatchapi.JournalEntry) ([]store.JournalEntry, error) {
	out := make([]store.JournalEntry, len(in))
	for i, e := range in {
		kind := store.JournalKind(e.Kind)
		if kind == store.JournalResumed || kind == store.JournalExpired {
			return nil, httpserver.NewProblem(http.StatusUnprocessableEntity, httpserver.CodeReservedKind,
				fmt.Sprintf("Journal entry %d: only the platform can write entries of the kind %s.", e.Sequence, kind))
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
