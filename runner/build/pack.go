// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/gitremote"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// phasePacking is the first phase that Pack reports.
const phasePacking = "packing"

// maxMessage limits the message of a failure, in bytes. The log has all of it.
const maxMessage = 4000

// Dispatch receives the reports of Pack. *dispatchapi.Client implements it.
type Dispatch interface {
	logSink
	Upload(ctx context.Context, limit int64) ([]byte, error)
	ReportBuild(ctx context.Context, req dispatchapi.BuildReport) error
	PutBundle(ctx context.Context, digest string, data []byte) error
	FinishBuild(ctx context.Context, req dispatchapi.BuildResult) error
}

// PackOptions configure Pack.
type PackOptions struct {
	// Dir is the output folder of Fetch, unless Upload is set.
	Dir string
	// Upload is the digest of an upload in dispatch; "" for a commit.
	Upload string
	// Dispatch receives reports, log and bundle; required.
	Dispatch Dispatch
	// Check finds keys that the engine does not support; nil skips the check.
	Check func(*bundle.Project) bundle.Problems
	// SkipTests skips the test phase.
	SkipTests bool
	// MCP lists the tools of MCP servers; required if a repository can have some.
	MCP ToolLister
	// Models answer tests without a mock. Tools are the built-in tools; nil means the tools of the
	// engine.
	Models engine.Models
	// Variables are the variables for prompts in tests, as in engine.Config.
	Variables func() (runnerconfig.Variables, error)
	// Prices are the prices for the cost of tests, as in engine.Config.
	Prices func() (runnerconfig.Prices, error)
	Tools  []engine.Tool
	// TestTimeout limits all tests together; 0 for no limit.
	TestTimeout time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Pack validates and packs the fetched files and reports the outcome. It returns nil also if the
// repository has problems, and if the build was superseded. It returns an error if the outcome
// could not be reported, so that the Job retries.
func Pack(ctx context.Context, opts PackOptions) error {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	log := newBuildLog(ctx, opts.Dispatch, opts.Now)
	result, err := packProject(ctx, opts, log)
	var mine *buildError
	if errors.As(err, &mine) {
		result = dispatchapi.BuildResult{FailureReason: dispatchapi.FailureBuild, Message: gitremote.Clip(mine.Error(), maxMessage)}
		log.addLine("build failed:\n%s", mine.Error())
		err = nil
	}
	log.close()
	if err == nil {
		err = opts.Dispatch.FinishBuild(ctx, result)
	}
	if errors.Is(err, dispatchapi.ErrFenced) {
		return nil // Superseded or cancelled: the outcome is final.
	}
	if err != nil {
		return fmt.Errorf("reporting the build: %w", err)
	}
	return nil
}

// buildError is a failure that the author of the repository has to fix.
type buildError struct{ err error }

func (e *buildError) Error() string { return e.err.Error() }
func (e *buildError) Unwrap() error { return e.err }

func packProject(ctx context.Context, opts PackOptions, log *buildLog) (dispatchapi.BuildResult, error) {
	var none dispatchapi.BuildResult
	read := readCommit
	if opts.Upload != "" {
		read = readUpload
	}
	files, err := read(ctx, opts, log)
	if err != nil {
		return none, err
	}
	project, err := loadProject(files, opts.Check)
	if err != nil {
		return none, err
	}
	log.addLine("valid; agents: %d, connectors: %d, test cases: %d", len(project.Agents), len(project.Connectors), countCases(project))
	if err := LockTools(ctx, opts.MCP, opts.Variables, project, project.Agents, log.addLine); err != nil {
		return none, err
	}
	if err := warnOAuthApps(opts.Variables, project, log.addLine); err != nil {
		return none, err
	}
	built, err := uploadBundle(ctx, opts, log, project)
	if err != nil {
		return none, err
	}
	return testProject(ctx, opts, log, project, built)
}

// readCommit reports the fetched commit to dispatch and reads the files.
func readCommit(ctx context.Context, opts PackOptions, log *buildLog) (bundle.Files, error) {
	fetched, err := readResult(opts.Dir)
	if err != nil {
		return nil, err
	}
	for _, line := range fetched.Log {
		log.addText(line)
	}
	report := dispatchapi.BuildReport{
		Branch: fetched.Branch, Commit: fetched.Commit, CommitMessage: fetched.Message, Author: fetched.Author,
	}
	if fetched.Error == "" {
		report.Phase = phasePacking
	}
	err = opts.Dispatch.ReportBuild(ctx, report)
	if rejected := (*dispatchapi.RejectedError)(nil); errors.As(err, &rejected) {
		return nil, &buildError{errors.New(rejected.Detail)} // for example if the branch has moved since an earlier build was lost
	}
	if err != nil {
		return nil, err
	}
	if fetched.Error != "" {
		return nil, &buildError{errors.New(fetched.Error)}
	}
	root, err := os.OpenRoot(filepath.Join(opts.Dir, sourceFolder))
	if err != nil {
		return nil, fmt.Errorf("opening the fetched files: %w", err)
	}
	defer root.Close()
	files, err := bundle.ReadFiles(root.FS())
	return files, ofRepository(err)
}

// readUpload fetches and reads an upload.
func readUpload(ctx context.Context, opts PackOptions, log *buildLog) (bundle.Files, error) {
	log.addLine("fetching the upload, %s", opts.Upload)
	packed, err := opts.Dispatch.Upload(ctx, bundle.MaxSize)
	if errors.Is(err, dispatchapi.ErrRejected) {
		return nil, &buildError{fmt.Errorf("the upload was deleted (%w); upload the folder again", err)}
	}
	if err != nil {
		return nil, fmt.Errorf("fetching the upload: %w", err)
	}
	if err := opts.Dispatch.ReportBuild(ctx, dispatchapi.BuildReport{Phase: phasePacking}); err != nil {
		return nil, err
	}
	files, err := bundle.UnpackUpload(packed, opts.Upload)
	switch {
	case errors.Is(err, bundle.ErrDigest):
		return nil, fmt.Errorf("fetching the upload: %w", err)
	case errors.Is(err, bundle.ErrInvalid), errors.Is(err, bundle.ErrTooLarge):
		return nil, &buildError{err}
	case err != nil:
		return nil, ofRepository(err)
	}
	log.addLine("%d files", len(files))
	return files, nil
}

// ofRepository converts problems of the repository to a buildError.
func ofRepository(err error) error {
	var problems bundle.Problems
	switch {
	case errors.As(err, &problems):
		return &buildError{problems}
	case err != nil:
		return fmt.Errorf("reading the files: %w", err)
	}
	return nil
}

// loadProject validates the files.
func loadProject(files bundle.Files, check func(*bundle.Project) bundle.Problems) (*bundle.Project, error) {
	project, problems := checkFiles(files, check)
	if len(problems) > 0 {
		return nil, &buildError{problems}
	}
	return project, nil
}

// uploadBundle packs and stores the bundle.
func uploadBundle(ctx context.Context, opts PackOptions, log *buildLog, project *bundle.Project) (dispatchapi.BuildResult, error) {
	var packed bytes.Buffer
	digest, size, err := bundle.Pack(project.Files, &packed)
	if errors.Is(err, bundle.ErrTooLarge) {
		return dispatchapi.BuildResult{}, &buildError{err}
	}
	if err != nil {
		return dispatchapi.BuildResult{}, fmt.Errorf("packing: %w", err)
	}
	log.addLine("packed %d files into %d bytes, %s", len(project.Files), size, digest)
	err = opts.Dispatch.PutBundle(ctx, digest, packed.Bytes())
	if rejected := (*dispatchapi.RejectedError)(nil); errors.As(err, &rejected) {
		return dispatchapi.BuildResult{}, &buildError{errors.New(rejected.Detail)} // for example if the project's storage is full
	}
	if err != nil {
		return dispatchapi.BuildResult{}, fmt.Errorf("uploading the bundle: %w", err)
	}
	result := dispatchapi.BuildResult{BundleDigest: digest}
	for _, c := range project.Connectors {
		result.Connectors = append(result.Connectors, dispatchapi.ConnectorFile{Key: c.Key, Content: string(project.Files[c.SourcePath])})
	}
	for _, a := range project.Agents {
		agent := dispatchapi.Agent{
			Name: a.Name, Description: a.Description, Type: string(a.Type), SourcePath: a.SourcePath,
			VariantOf: a.VariantOf, TestName: a.TestName, MaxConcurrentRuns: a.MaxConcurrentRuns, Config: a.Config(),
			SendsByMiddleware: project.SendsByMiddleware(a.Name),
		}
		for _, use := range a.Models() {
			if !slices.Contains(agent.Models, use.Reference) {
				agent.Models = append(agent.Models, use.Reference)
			}
		}
		if c := a.Concurrency; c != nil {
			agent.ConcurrencyKey, agent.ConcurrencyDrop = c.Key, c.OnConflict == bundle.OnConflictDrop
		}
		result.Agents = append(result.Agents, agent)
	}
	return result, nil
}
