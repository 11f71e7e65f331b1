// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/gitremote"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/engine"
)

// phasePacking is the phase that Pack reports.
const phasePacking = "packing"

// maxMessage is the most bytes of a failure's message; the log has all.
const maxMessage = 4000

// Dispatch is what Pack tells. *dispatchapi.Client is one.
type Dispatch interface {
	logSink
	Upload(ctx context.Context, limit int64) ([]byte, error)
	ReportBuild(ctx context.Context, req dispatchapi.BuildReport) error
	PutBundle(ctx context.Context, digest string, data []byte) error
	FinishBuild(ctx context.Context, req dispatchapi.BuildResult) error
}

// PackOptions say what to pack.
type PackOptions struct {
	// Dir is the folder that Fetch wrote to, unless Upload is given.
	Dir string
	// Upload is the digest of what was uploaded, which dispatch has; "" for a commit.
	Upload string
	// Dispatch takes reports, log and bundle; required.
	Dispatch Dispatch
	// Check finds what the engine cannot run; nil means nothing.
	Check func(*bundle.Project) bundle.Problems
	// SkipTests leaves the test phase out.
	SkipTests bool
	// Models are asked by tests where no mock stands in for them, Tools are the
	// built-in tools; nil means those of the engine.
	Models engine.Models
	// Variables are engine.Config's, for the prompts of tests.
	Variables func() (runnerconfig.Variables, error)
	// Prices are engine.Config's, by which it is told what tests cost.
	Prices func() (runnerconfig.Prices, error)
	Tools  []engine.Tool
	// TestTimeout is of all tests together; 0 for none.
	TestTimeout time.Duration
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// Pack validates and packs what was fetched and reports the outcome. The error
// is nil also when the build failed for the repository's sake, and when it was
// superseded: then there is nobody left to tell. It is not nil when the outcome
// could not be reported, so that the Job tries again.
func Pack(ctx context.Context, opts PackOptions) error {
	if opts.Now == nil {
		opts.Now = time.Now
	}
	log := newBuildLog(ctx, opts.Dispatch, opts.Now)
	result, err := pack(ctx, opts, log)
	var mine *buildError
	if errors.As(err, &mine) {
		result = dispatchapi.BuildResult{FailureReason: dispatchapi.FailureBuild, Message: gitremote.Clip(mine.Error(), maxMessage)}
		log.say("build failed:\n%s", mine.Error())
		err = nil
	}
	log.close()
	if err == nil {
		err = opts.Dispatch.FinishBuild(ctx, result)
	}
	if errors.Is(err, dispatchapi.ErrFenced) {
		return nil // Superseded or cancelled: the outcome is decided.
	}
	if err != nil {
		return fmt.Errorf("reporting the build: %w", err)
	}
	return nil
}

// buildError is a failure of the build that its owner has to mend.
type buildError struct{ err error }

func (e *buildError) Error() string { return e.err.Error() }
func (e *buildError) Unwrap() error { return e.err }

func pack(ctx context.Context, opts PackOptions, log *buildLog) (dispatchapi.BuildResult, error) {
	var none dispatchapi.BuildResult
	read := readCommit
	if opts.Upload != "" {
		read = readUpload
	}
	files, err := read(ctx, opts, log)
	if err != nil {
		return none, err
	}
	project, err := load(files, opts.Check)
	if err != nil {
		return none, err
	}
	log.say("valid; agents: %d, connectors: %d, test cases: %d", len(project.Agents), len(project.Connectors), cases(project))
	built, err := upload(ctx, opts, log, project)
	if err != nil {
		return none, err
	}
	return test(ctx, opts, log, project, built)
}

// readCommit tells dispatch what was fetched, and reads the files.
func readCommit(ctx context.Context, opts PackOptions, log *buildLog) (bundle.Files, error) {
	fetched, err := readResult(opts.Dir)
	if err != nil {
		return nil, err
	}
	for _, line := range fetched.Log {
		log.add(line)
	}
	report := dispatchapi.BuildReport{
		Branch: fetched.Branch, Commit: fetched.Commit, CommitMessage: fetched.Message, Author: fetched.Author,
	}
	if fetched.Error == "" {
		report.Phase = phasePacking
	}
	err = opts.Dispatch.ReportBuild(ctx, report)
	if rejected := (*dispatchapi.RejectedError)(nil); errors.As(err, &rejected) {
		return nil, &buildError{errors.New(rejected.Detail)} // as where the branch has moved since the build was lost
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

// readUpload fetches what was uploaded, and reads the files.
func readUpload(ctx context.Context, opts PackOptions, log *buildLog) (bundle.Files, error) {
	log.say("fetching what was uploaded, %s", opts.Upload)
	packed, err := opts.Dispatch.Upload(ctx, bundle.MaxSize)
	if errors.Is(err, dispatchapi.ErrRejected) {
		return nil, &buildError{fmt.Errorf("what was uploaded is not there any more (%w); upload the folder again", err)}
	}
	if err != nil {
		return nil, fmt.Errorf("fetching what was uploaded: %w", err)
	}
	if err := opts.Dispatch.ReportBuild(ctx, dispatchapi.BuildReport{Phase: phasePacking}); err != nil {
		return nil, err
	}
	files, err := bundle.UnpackUpload(packed, opts.Upload)
	switch {
	case errors.Is(err, bundle.ErrDigest):
		return nil, fmt.Errorf("fetching what was uploaded: %w", err)
	case errors.Is(err, bundle.ErrInvalid), errors.Is(err, bundle.ErrTooLarge):
		return nil, &buildError{err}
	case err != nil:
		return nil, ofRepository(err)
	}
	log.say("%d files", len(files))
	return files, nil
}

// ofRepository is the error of reading files: problems of the repository are its owner's to mend.
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

// load validates the files.
func load(files bundle.Files, check func(*bundle.Project) bundle.Problems) (*bundle.Project, error) {
	project, problems := checkFiles(files, check)
	if len(problems) > 0 {
		return nil, &buildError{problems}
	}
	return project, nil
}

// upload packs and stores the bundle.
func upload(ctx context.Context, opts PackOptions, log *buildLog, project *bundle.Project) (dispatchapi.BuildResult, error) {
	var packed bytes.Buffer
	digest, size, err := bundle.Pack(project.Files, &packed)
	if errors.Is(err, bundle.ErrTooLarge) {
		return dispatchapi.BuildResult{}, &buildError{err}
	}
	if err != nil {
		return dispatchapi.BuildResult{}, fmt.Errorf("packing: %w", err)
	}
	log.say("packed %d files into %d bytes, %s", len(project.Files), size, digest)
	err = opts.Dispatch.PutBundle(ctx, digest, packed.Bytes())
	if rejected := (*dispatchapi.RejectedError)(nil); errors.As(err, &rejected) {
		return dispatchapi.BuildResult{}, &buildError{errors.New(rejected.Detail)} // as where the project's storage is full
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
		}
		if c := a.Concurrency; c != nil {
			agent.ConcurrencyKey, agent.ConcurrencyDrop = c.Key, c.OnConflict == bundle.OnConflictDrop
		}
		result.Agents = append(result.Agents, agent)
	}
	return result, nil
}
