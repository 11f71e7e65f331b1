// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"errors"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

func (h *Handler) report(w http.ResponseWriter, r *http.Request, token store.Token) error {
	var req dispatchapi.BuildReport
	if err := decode(w, r, dispatchapi.MaxSmallRequest, &req); err != nil {
		return err
	}
	report := store.BuildReport{
		Phase: store.DeploymentPhase(req.Phase), Commit: req.Commit, CommitMessage: req.CommitMessage, Author: req.Author,
	}
	return done(w, h.call(r.Context(), token.ProjectID, func(ctx context.Context) error {
		return h.opts.Store.ReportBuild(ctx, token.Deployment(), report)
	}))
}

func (h *Handler) log(w http.ResponseWriter, r *http.Request, token store.Token) error {
	var req dispatchapi.BuildLog
	if err := decode(w, r, dispatchapi.MaxLogRequest, &req); err != nil {
		return err
	}
	return done(w, h.call(r.Context(), token.ProjectID, func(ctx context.Context) error {
		return h.opts.Store.AppendBuildLog(ctx, token.Deployment(), req.Number, req.Chunk)
	}))
}

func (h *Handler) putBundle(w http.ResponseWriter, r *http.Request, token store.Token) error {
	if r.ContentLength > maxBundle {
		return httpserver.NewProblem(http.StatusRequestEntityTooLarge, httpserver.CodeBundleTooLarge, "A bundle has at most 25 MiB.")
	}
	_, err := h.opts.Store.PutBundle(r.Context(), token.ProjectID, chi.URLParam(r, "digest"), r.Body, maxBundle)
	if errors.Is(err, store.ErrConflict) {
		return httpserver.NewProblem(http.StatusUnprocessableEntity, httpserver.CodeWrongDigest, "The bytes do not have this digest, or are more than 25 MiB.")
	}
	return done(w, err)
}

func (h *Handler) result(w http.ResponseWriter, r *http.Request, token store.Token) error {
	var req dispatchapi.BuildResult
	if err := decode(w, r, dispatchapi.MaxRequest, &req); err != nil {
		return err
	}
	result := store.BuildResult{
		BundleDigest: req.BundleDigest, TestResults: req.TestResults,
		FailureReason: store.FailureReason(req.FailureReason), Message: req.Message,
	}
	for _, a := range req.Agents {
		result.Agents = append(result.Agents, store.Agent(a))
	}
	for _, c := range req.Connectors {
		result.Connectors = append(result.Connectors, store.ConnectorFile(c))
	}
	return done(w, h.call(r.Context(), token.ProjectID, func(ctx context.Context) error {
		return h.opts.Store.FinishBuild(ctx, token.Deployment(), result)
	}))
}
