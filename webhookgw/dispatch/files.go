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
