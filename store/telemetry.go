// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"time"

	"github.com/google/uuid"
)

// Telemetry is the export of a project's traces to an OTLP collector.
type Telemetry struct {
	// Endpoint is the base URL of the collector, without /v1/traces.
	Endpoint string `json:"endpoint"`
	// WithContent is true if spans have prompts, arguments and results, as the journal has them.
	WithContent bool `json:"with_content"`
	// SamplePercent is the share of exported runs, from 0 to 100.
	SamplePercent int `json:"sample_percent"`
	// Environments limit the export to their runs; empty means all environments.
	Environments []uuid.UUID `json:"environments"`
	// SealedHeaders are the sealed headers of requests; nil without any. SealedKey is the ID of the key
	// that sealed them, or "".
	SealedHeaders []byte `json:"-"`
	SealedKey     string `json:"-"`
}

// Exports reports whether a run of an environment is exported. It is decided when the run ends.
func (t Telemetry) Exports(environment, run uuid.UUID) bool {
	return TraceBucket(run) < t.SamplePercent && (len(t.Environments) == 0 || slices.Contains(t.Environments, environment))
}

// TraceBucket returns a number from 0 to 99 that depends on the ID of a run only. A run is in the sample if its bucket is below
// the percentage.
func TraceBucket(run uuid.UUID) int {
	sum := sha256.Sum256(run[:])
	return int(binary.BigEndian.Uint64(sum[:8]) % 100)
}

// TraceClaim is a request for ended runs whose traces are due.
type TraceClaim struct {
	// Without are projects that get nothing, for example because their collector is busy. Only limits the claim to projects;
	// empty means all projects. A claim has one of both.
	Without, Only []uuid.UUID
	// Projects is the maximum number of projects, Runs the maximum number of runs of each.
	Projects, Runs int
	// Lease is the time after which the runs are due again.
	Lease time.Duration
}

// DueTraces are ended runs of a project whose traces are due.
type DueTraces struct {
	ProjectID uuid.UUID
	Telemetry Telemetry
	Runs      []uuid.UUID
}

// TracedRun is an ended run to export.
type TracedRun struct {
	// Run has no output.
	Run Run
	// Traceparent is the W3C traceparent of the event of the run; "" without one.
	Traceparent string
	// BundleDigest is the digest of the bundle that executed the run; "" for a run that no runner has claimed.
	BundleDigest string
}

// Traces exports ended runs, each at least once.
type Traces interface {
	// ClaimTraces claims ended runs of projects that export traces, round robin.
	ClaimTraces(ctx context.Context, c TraceClaim) ([]DueTraces, error)
	// DelayTraces makes claimed runs of a project due again after a time.
	DelayTraces(ctx context.Context, project uuid.UUID, runs []uuid.UUID, wait time.Duration) error
	// EndTraces ends the export of runs of a project.
	EndTraces(ctx context.Context, project uuid.UUID, runs []uuid.UUID) error
	// DropTraces ends the export of at most limit runs that ended longer than age ago. It returns their number.
	DropTraces(ctx context.Context, age time.Duration, limit int) (int, error)
	// TracedRuns returns ended runs of a project by ID, without missing, erased and expired ones.
	TracedRuns(ctx context.Context, project uuid.UUID, runs []uuid.UUID) ([]TracedRun, error)
	// RunJournals passes the journals of runs of a project to visit, in the order of the IDs of the runs. It reads pages of
	// at most MaxEntries entries and MaxJournalPage bytes, and ends with the first error of visit.
	RunJournals(ctx context.Context, project uuid.UUID, runs []uuid.UUID, visit func(run uuid.UUID, e JournalEntry) error) error
}
