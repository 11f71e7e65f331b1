// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

func (h *Handler) reportBuild(w http.ResponseWriter, r *http.Request, token store.Token) error {
	var req dispatchapi.BuildReport
	if err := decodeRequest(w, r, dispatchapi.MaxSmallRequest, &req); err != nil {
		return err
	}
	report := store.BuildReport{
		Phase: store.DeploymentPhase(req.Phase), Branch: req.Branch, Commit: req.Commit, CommitMessage: req.CommitMessage, Author: req.Author,
	}
	return writeNoContent(w, h.callStore(r.Context(), token.ProjectID, func(ctx context.Context) error {
		return h.opts.Store.ReportBuild(ctx, token.Deployment(), report)
	}))
}

func (h *Handler) appendBuildLog(w http.ResponseWriter, r *http.Request, token store.Token) error {
	var req dispatchapi.BuildLog
	if err := decodeRequest(w, r, dispatchapi.MaxLogRequest, &req); err != nil {
		return err
	}
	return writeNoContent(w, h.callStore(r.Context(), token.ProjectID, func(ctx context.Context) error {
		return h.opts.Store.AppendBuildLog(ctx, token.Deployment(), req.Number, req.Chunk)
	}))
}

// streamUpload streams the uploaded source of the token's deployment.
func (h *Handler) streamUpload(w http.ResponseWriter, r *http.Request, token store.Token) error {
	return h.streamBlob(w, r, token, func(ctx, _ context.Context) (string, io.ReadCloser, error) {
		body, err := h.opts.Store.OpenUpload(ctx, token.Deployment())
		return anyBytes, body, err
	})
}

func (h *Handler) putBundle(w http.ResponseWriter, r *http.Request, token store.Token) error {
	if r.ContentLength > maxBundle {
		return httpserver.NewProblem(http.StatusRequestEntityTooLarge, httpserver.CodeBundleTooLarge, "A bundle has at most 25 MiB.")
	}
	_, err := h.opts.Store.PutBundle(r.Context(), token.Deployment(), chi.URLParam(r, "digest"), httpserver.WholeBody(r.Body), maxBundle)
	if errors.Is(err, store.ErrConflict) {
		return httpserver.NewProblem(http.StatusUnprocessableEntity, httpserver.CodeWrongDigest, "The bytes do not have this digest, or are more than 25 MiB, or the build has ended with another bundle.")
	}
	if full := (*store.StorageFullError)(nil); errors.As(err, &full) { // not 429, because the build fails and does not wait for a larger plan
		return httpserver.NewProblem(http.StatusUnprocessableEntity, httpserver.CodeStorageFull, "The bundle is not stored: "+full.Error()+".")
	}
	return writeNoContent(w, err)
}

func (h *Handler) finishBuild(w http.ResponseWriter, r *http.Request, token store.Token) error {
	var req dispatchapi.BuildResult
	if err := decodeRequest(w, r, dispatchapi.MaxRequest, &req); err != nil {
		return err
	}
	result := store.BuildResult{
		BundleDigest:  req.BundleDigest,
		FailureReason: store.FailureReason(req.FailureReason), Message: req.Message,
	}
	var err error
	if result.TestResults, err = storeTests(token.Deployment().ID, req.TestResults); err != nil {
		return err
	}
	for _, a := range req.Agents {
		result.Agents = append(result.Agents, storedAgent(a))
	}
	for _, c := range req.Connectors {
		result.Connectors = append(result.Connectors, store.ConnectorFile(c))
	}
	return writeNoContent(w, h.callStore(r.Context(), token.ProjectID, func(ctx context.Context) error {
		return h.opts.Store.FinishBuild(ctx, token.Deployment(), result)
	}))
}

// storedAgent returns an agent as deployments record it.
func storedAgent(a dispatchapi.Agent) store.Agent {
	return store.Agent{
		Name: a.Name, Description: a.Description, Type: a.Type, SourcePath: a.SourcePath, VariantOf: a.VariantOf, TestName: a.TestName,
		MaxConcurrentRuns: a.MaxConcurrentRuns, Models: a.Models, ConcurrencyKey: a.ConcurrencyKey, ConcurrencyDrop: a.ConcurrencyDrop,
		SendsByMiddleware: a.SendsByMiddleware, Config: a.Config,
	}
}

// storedTest is the recorded result of a test, in its REST shape.
type storedTest struct {
	ID uuid.UUID `json:"id"`
	dispatchapi.TestResult
	// AgentRunIDs is empty, because the runs of a test only exist in the build.
	AgentRunIDs []uuid.UUID `json:"agent_run_ids"`
}

// limitCosts limits costs as for runs. It drops costs in another currency than the prices.
func limitCosts(costs dispatchapi.DayCosts) dispatchapi.DayCosts {
	const lastDay = 1 << 24 // far in the future
	out := make(dispatchapi.DayCosts, len(costs))
	for i, c := range costs {
		if !slices.Contains(store.Currencies, store.Currency(c.Currency)) {
			c.Currency, c.Nanos = "", 0
		}
		out[i] = dispatchapi.DayCost{
			Day: min(max(c.Day, 0), lastDay), Calls: min(max(c.Calls, 0), store.MaxTokens), Currency: c.Currency, Nanos: min(max(c.Nanos, 0), store.MaxCost),
		}
	}
	return out
}

// Limits of test results. The limits of a bundle are far below.
const (
	maxTestRuns = 1 << 20
	maxDuration = 1 << 40 // milliseconds
	maxName     = 255     // bytes
)

// limitTest limits a test result, whatever a build reports, because client programs add these
// numbers.
func limitTest(r dispatchapi.TestResult) dispatchapi.TestResult {
	r.AgentName, r.TestName = removeControls(r.AgentName), removeControls(r.TestName)
	r.Runs = min(max(r.Runs, 0), maxTestRuns)
	r.Successes = min(max(r.Successes, 0), r.Runs)
	r.SuccessThreshold = min(max(r.SuccessThreshold, 0), 1)
	r.DurationMS = min(max(r.DurationMS, 0), maxDuration)
	of := func(tokens int64) int64 { return min(max(tokens, 0), store.MaxTokens) }
	u := r.TokenUsage
	r.TokenUsage = dispatchapi.TokenUsage{
		InputTokens: of(u.InputTokens), OutputTokens: of(u.OutputTokens), ThinkingTokens: of(u.ThinkingTokens),
		CachedInputTokens: of(u.CachedInputTokens), TotalTokens: of(u.TotalTokens),
	}
	r.Costs = limitCosts(r.Costs)
	return r
}

// removeControls removes control characters and invalid UTF-8 from a name.
func removeControls(name string) string {
	return store.Cut(strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return unicode.ReplacementChar
		}
		return c
	}, name), maxName)
}

// storeTests gives each test result of a deployment an ID. It returns nil without results.
func storeTests(deployment uuid.UUID, results dispatchapi.Tests) (json.RawMessage, error) {
	if len(results) == 0 {
		return nil, nil
	}
	list := make([]storedTest, len(results))
	for i, r := range results {
		r = limitTest(r)
		id := uuid.NewSHA1(deployment, fmt.Appendf(nil, "%s/%s", r.AgentName, r.TestName))
		list[i] = storedTest{ID: id, TestResult: r, AgentRunIDs: []uuid.UUID{}}
	}
	data, err := json.Marshal(list)
	if err != nil {
		return nil, fmt.Errorf("writing the results of tests: %w", err)
	}
	return data, nil
}
