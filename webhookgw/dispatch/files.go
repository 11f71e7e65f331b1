// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"io"
	"net/http"
	"strconv"

	"github.com/go-chi/chi/v5"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// files lists the attachments of a run's input.
func (h *Handler) files(w http.ResponseWriter, r *http.Request, token store.Token) error {
	id, err := runID(r)
	if err != nil {
		return err
	}
	if err := h.owned(r.Context(), id, token); err != nil {
		return err
	}
	var files []store.File
	if err := h.call(r.Context(), token.ProjectID, func(ctx context.Context) (err error) {
		files, err = h.opts.Store.RunFiles(ctx, token.Run(id))
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

// file streams an accepted attachment of a run's input.
func (h *Handler) file(w http.ResponseWriter, r *http.Request, token store.Token) error {
	id, err := runID(r)
	if err != nil {
		return err
	}
	number, err := strconv.Atoi(chi.URLParam(r, "number"))
	if err != nil {
		return store.ErrNotFound
	}
	if err := h.owned(r.Context(), id, token); err != nil {
		return err
	}
	var body io.ReadCloser
	ctx, cancel := context.WithCancel(r.Context()) // the body lasts longer than the turn
	defer cancel()
	if err := h.call(ctx, token.ProjectID, func(turn context.Context) (err error) {
		defer context.AfterFunc(turn, cancel)()
		_, body, err = h.opts.Store.OpenRunFile(ctx, token.Run(id), number)
		return err
	}); err != nil {
		return err
	}
	defer body.Close()
	return stream(w, "application/octet-stream", h.inTurn(ctx, cancel, token.ProjectID, body))
}
