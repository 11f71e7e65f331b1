// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/go-chi/chi/v5"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// listFiles lists the attachments of a run's input.
func (h *Handler) listFiles(w http.ResponseWriter, r *http.Request, token store.Token) error {
	run, err := h.ownedRun(r, token)
	if err != nil {
		return err
	}
	var files []store.File
	if err := h.callStore(r.Context(), token.ProjectID, func(ctx context.Context) (err error) {
		files, err = h.opts.Store.RunFiles(ctx, run)
		return err
	}); err != nil {
		return err
	}
	httpserver.WriteJSON(w, http.StatusOK, wireFiles(files))
	return nil
}

func wireFiles(files []store.File) dispatchapi.Files {
	out := dispatchapi.Files{Files: []dispatchapi.File{}, Issues: []dispatchapi.FileIssue{}}
	for _, f := range store.GivenFiles(files) {
		out.Files = append(out.Files, dispatchapi.File{Name: f.Name, FieldName: f.FieldName, MIMEType: f.MIMEType, Size: f.Size})
	}
	for _, f := range store.FileIssues(files) {
		out.Issues = append(out.Issues, dispatchapi.FileIssue{Name: f.Name, FieldName: f.FieldName, Reason: string(f.Reason)})
	}
	return out
}

// streamFile streams an accepted attachment of a run's input.
func (h *Handler) streamFile(w http.ResponseWriter, r *http.Request, token store.Token) error {
	number, err := strconv.Atoi(chi.URLParam(r, "number"))
	if err != nil {
		return store.ErrNotFound
	}
	run, err := h.ownedRun(r, token)
	if err != nil {
		return err
	}
	return h.streamBlob(w, r, token, func(ctx, _ context.Context) (string, io.ReadCloser, error) {
		_, body, err := h.opts.Store.OpenRunFile(ctx, run, number)
		return anyBytes, body, err
	})
}

// saveFile saves a file of a run, with the journal entries that come before its bytes.
func (h *Handler) saveFile(w http.ResponseWriter, r *http.Request, token store.Token) error {
	size, err := strconv.Atoi(r.URL.Query().Get("journal"))
	if err != nil || size < 1 || size > dispatchapi.MaxSavedJournal {
		return httpserver.NewProblem(http.StatusUnprocessableEntity, httpserver.CodeInvalid,
			fmt.Sprintf("journal is the number of bytes of the request before the file, at most %d.", dispatchapi.MaxSavedJournal))
	}
	if r.ContentLength > int64(size)+dispatchapi.MaxSavedFile {
		return httpserver.NewProblem(http.StatusRequestEntityTooLarge, httpserver.CodeTooLarge,
			fmt.Sprintf("A saved file has at most %d MiB.", dispatchapi.MaxSavedFile>>20))
	}
	id, err := runIDParam(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), dispatchapi.SaveTimeout)
	defer cancel()
	if err := h.verifyOwned(ctx, id, token); err != nil {
		return err
	}
	grant, err := waitForMemory(ctx, h.saves, token.ProjectID, saveStream)
	if err != nil {
		return err
	}
	defer grant.End()
	body := pacedSave(w, r)
	journal := make([]byte, size)
	if _, err := io.ReadFull(body, journal); httpserver.TooSlow(err) {
		return errSlowSave
	} else if errors.Is(err, httpserver.ErrCutOff) {
		return err
	} else if err != nil {
		return httpserver.NewProblem(http.StatusBadRequest, httpserver.CodeInvalid, "The request ended before the file.")
	}
	var req dispatchapi.SaveRequest
	if err := json.Unmarshal(journal, &req); err != nil {
		return undecoded(err)
	}
	entries, err := storeEntries(req.Entries)
	if err != nil {
		return err
	}
	err = h.writeFairly(ctx, token.ProjectID, body, func(ctx context.Context, body io.Reader) error {
		return h.opts.Store.SaveFile(ctx, store.Lease{Run: token.Run(id), Token: req.Token}, entries, body)
	})
	switch full := (*store.StorageFullError)(nil); {
	case errors.As(err, &full): // not 429, because the run continues and does not wait for a larger plan
		return httpserver.NewProblem(http.StatusUnprocessableEntity, httpserver.CodeStorageFull,
			"Not saved: "+full.Error()+".")
	case httpserver.TooSlow(err):
		return errSlowSave
	}
	return writeNoContent(w, err)
}

// pacedSave reads the body of a save as long as it keeps the pace.
func pacedSave(w http.ResponseWriter, r *http.Request) io.Reader {
	body := httpserver.Paced(w, httpserver.WholeBody(r.Body), savePace)
	return readerFunc(func(p []byte) (int, error) {
		n, err := body.Read(p)
		if errors.Is(err, io.EOF) {
			httpserver.BodyRead(w)
		}
		return n, err
	})
}

// errSlowSave is no 408, because the runner repeats the request.
var errSlowSave = temporaryProblem(http.StatusServiceUnavailable, httpserver.CodeBusy,
	fmt.Sprintf("The file did not arrive in time. Send at least %d KiB a second.", savePace.BytesPerSecond>>10))

// streamSaved streams a part of a file that a run has saved to the runner that holds the run.
func (h *Handler) streamSaved(w http.ResponseWriter, r *http.Request, token store.Token) error {
	lease, err := h.leaseOfQuery(r, token)
	if err != nil {
		return err
	}
	offset, wrong := strconv.ParseInt(r.URL.Query().Get("offset"), 10, 64)
	length, alsoWrong := strconv.ParseInt(r.URL.Query().Get("length"), 10, 64)
	if errors.Join(wrong, alsoWrong) != nil || offset < 0 || length < 0 || length > dispatchapi.MaxSavedPart {
		return httpserver.NewProblem(http.StatusUnprocessableEntity, httpserver.CodeInvalid,
			fmt.Sprintf("offset and length are numbers of bytes; length is at most %d.", dispatchapi.MaxSavedPart))
	}
	if err := h.checkClaim(r.Context(), lease); err != nil {
		return err
	}
	var body io.ReadCloser
	ctx, cancel := context.WithCancel(r.Context()) // the body lasts longer than the call
	defer cancel()
	if err := h.callStore(ctx, token.ProjectID, func(turn context.Context) (err error) {
		defer context.AfterFunc(turn, cancel)()
		_, body, err = h.opts.Store.OpenSavedFile(ctx, lease.Run, chi.URLParam(r, "file"), offset)
		return err
	}); err != nil {
		return err
	}
	defer body.Close()
	return copyStream(w, "application/octet-stream", io.LimitReader(h.readFairly(ctx, cancel, token.ProjectID, body), length))
}
