// SPDX-License-Identifier: Apache-2.0

// Package serve executes agent runs. It claims them from dispatch, fetches their bundles, runs the
// agents and reports the results.
//
// # Claims
//
// A claim has a lease. The lease is short until the first heartbeat confirms it, and heartbeats
// renew it. If dispatch cannot be reached, runs continue and append their journals later. Only tool
// calls wait: no call begins without a confirmed lease, because another runner may have the run. If
// a claim is lost or its run is cancelled, the run ends here immediately and without a report.
//
// Claim requests name the runner's current runs. So dispatch can repeat a claim that was lost on
// its way and can name claims that are no longer current. A runner without a free slot sends
// requests only for this reason.
//
// # Bundles
//
// The runner prefetches bundles that are about to go live. If it cannot open a bundle, the bundle
// may belong to a newer release. The runner then reports it and releases its runs for other
// runners.
//
// # Shutdown
//
// When the context of Run ends, the runner claims no more runs and tells dispatch. Model requests
// and tool calls in progress can finish and are recorded. Then the runs are released, and another
// runner resumes them. After the grace period the runner cancels the remaining work.
package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/pause"
	"github.com/agentplatform/agentplatform/runner/engine"
)

const (
	// heartbeatInterval is the interval of heartbeats, heartbeatRetry the pause after a failed one.
	heartbeatInterval = 10 * time.Second
	heartbeatRetry    = time.Second
	heartbeatTimeout  = 5 * time.Second
	// presence is how long a runner is ready after its last answered claim request: the time of an
	// open request, and some margin.
	presence = claimWait + 10*time.Second
	// reportTime is the end of the grace period, reserved for reports.
	reportTime = 5 * time.Second
	// farewellTime limits each attempt to tell dispatch that the runner drains. farewells is the
	// number of attempts, farewellPause the pause between them.
	farewellTime  = time.Second
	farewells     = 3
	farewellPause = 200 * time.Millisecond
)

// processBytes is the number of random bytes that distinguish processes with the same name.
const processBytes = 8

// Dispatch is the source of runs. *dispatchapi.Client implements it.
type Dispatch interface {
	Claim(ctx context.Context, req dispatchapi.ClaimRequest) (dispatchapi.ClaimResponse, error)
	Heartbeat(ctx context.Context, req dispatchapi.HeartbeatRequest) (dispatchapi.HeartbeatResponse, error)
	Journal(ctx context.Context, runID uuid.UUID, req dispatchapi.JournalRequest) error
	Complete(ctx context.Context, runID uuid.UUID, req dispatchapi.CompleteRequest) error
	Release(ctx context.Context, runID uuid.UUID, req dispatchapi.ReleaseRequest) error
	Send(ctx context.Context, runID uuid.UUID, req dispatchapi.SendRequest) (dispatchapi.SendResponse, error)
	Input(ctx context.Context, runID uuid.UUID, limit int64) ([]byte, error)
	ReadJournal(ctx context.Context, runID uuid.UUID, token int64) ([]dispatchapi.JournalEntry, error)
	Files(ctx context.Context, runID uuid.UUID) (dispatchapi.Files, error)
	File(ctx context.Context, runID uuid.UUID, number int, limit int64) ([]byte, error)
	Save(ctx context.Context, runID uuid.UUID, req dispatchapi.SaveRequest, data []byte) error
	SavedPart(ctx context.Context, runID uuid.UUID, token int64, file string, offset, length int64) ([]byte, error)
	Bundle(ctx context.Context, digest string, limit int64) ([]byte, error)
}

// Options configure a Server.
type Options struct {
	// Dispatch and Engine are required.
	Dispatch Dispatch
	Engine   *engine.Engine
	// RunnerID names this runner for people; required. Dispatch sees another name for each process,
	// so a restarted runner does not get the leases of a killed one.
	RunnerID string
	// Concurrency is the maximum number of parallel runs; 0 means 10.
	Concurrency int
	// Grace is how long runs can continue after the end of Run's context; 0 means 30 s.
	Grace time.Duration
	// Bundles is the maximum number of cached bundles; 0 means 16.
	Bundles int
	// Heartbeat is the interval of heartbeats; 0 means 10 s.
	Heartbeat time.Duration
	// Metrics count runs and requests; nil disables them.
	Metrics *metrics.Runner
	// Drift has the comparisons of pinned MCP tools to report; nil reports none.
	Drift *DriftBook
	// Now is the clock for readiness; nil means time.Now.
	Now func() time.Time
}

// Server executes runs.
type Server struct {
	opts     Options
	bundles  *bundleCache
	prefetch *prefetcher

	mu     sync.Mutex
	polled time.Time // last answered claim request
	ending bool      // the runner drains
	// unanswered is true if the previous claim request got no response.
	unanswered bool
	runs       map[uuid.UUID]*claim
	busy       int                     // open runs, including lost ones that have not ended
	freed      context.CancelCauseFunc // ends the wait for free slots; nil if nothing waits
	wanted     int                     // number of free slots that freed waits for

	gatherAgain time.Time // when claims wait for free slots again; only the claim loop has it

	memory *semaphore.Weighted // bytes for attachments
	slots  chan struct{}       // one token per executed run
	beat   chan struct{}       // requests a heartbeat now
	fresh  chan struct{}       // requests a heartbeat soon
	group  sync.WaitGroup
}

// New creates a server. The error names a missing option.
func New(opts Options) (*Server, error) {
	if opts.Dispatch == nil || opts.Engine == nil || opts.RunnerID == "" {
		return nil, errors.New("dispatch, engine and runner ID are required")
	}
	if opts.Concurrency == 0 {
		opts.Concurrency = 10
	}
	if opts.Grace == 0 {
		opts.Grace = 30 * time.Second
	}
	if opts.Bundles == 0 {
		opts.Bundles = 16
	}
	if opts.Heartbeat == 0 {
		opts.Heartbeat = heartbeatInterval
	}
	if opts.Metrics == nil {
		opts.Metrics = metrics.NewRunner(nil, nil, nil)
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Drift == nil {
		opts.Drift = NewDriftBook(nil)
	}
	opts.RunnerID += "/" + uuid.NewString()[:processBytes]
	if opts.Concurrency > dispatchapi.MaxLeases || opts.Bundles > dispatchapi.MaxDigests || len(opts.RunnerID) > dispatchapi.MaxRunnerID {
		return nil, fmt.Errorf("a runner executes at most %d runs, holds at most %d bundles and has a name of at most %d bytes",
			dispatchapi.MaxLeases, dispatchapi.MaxDigests, dispatchapi.MaxRunnerID)
	}
	bundles := newBundleCache(opts.Dispatch, opts.Bundles)
	return &Server{
		opts: opts, bundles: bundles, prefetch: newPrefetcher(bundles), runs: map[uuid.UUID]*claim{},
		memory: semaphore.NewWeighted(maxFileBytes),
		slots:  make(chan struct{}, opts.Concurrency), beat: make(chan struct{}, 1), fresh: make(chan struct{}, 1),
	}, nil
}

// Run claims and executes runs until ctx ends, and then drains. It returns nil if all runs ended or
// were released within the grace period.
func (s *Server) Run(ctx context.Context) error {
	// reporting outlives ctx for heartbeats and reports. working ends model requests and tool
	// calls.
	reporting, endReporting := context.WithCancel(context.WithoutCancel(ctx))
	defer endReporting()
	working, endWorking := context.WithCancelCause(reporting)
	defer endWorking(nil)

	s.opts.Metrics.Slots(s.opts.Concurrency)
	var beside sync.WaitGroup
	beside.Go(func() { s.heartbeats(reporting) })
	beside.Go(func() { s.prefetch.runLoop(ctx) })
	s.claimLoop(ctx, life{working: working, reporting: reporting, stop: ctx.Done()})
	s.updateState(func() { s.ending = true })
	slog.InfoContext(ctx, "draining", "runs", len(s.holding()))
	s.group.Go(func() { s.farewell(reporting) })
	err := s.drainRuns(endWorking, endReporting)
	endReporting()
	beside.Wait()
	return err
}

// life contains the contexts of a run.
type life struct {
	working, reporting context.Context //nolint:containedctx // lives of a run, handed to its goroutine
	stop               <-chan struct{}
}

// errGrace is the cause for runs that are cancelled after the grace period.
var errGrace = errors.New("grace period is over")

// drainRuns waits for the runs, cancels the remaining ones, and then stops waiting.
func (s *Server) drainRuns(endWorking context.CancelCauseFunc, endReporting context.CancelFunc) error {
	done := make(chan struct{})
	go func() { s.group.Wait(); close(done) }()
	steps := []struct {
		after time.Duration
		then  func()
	}{
		{max(s.opts.Grace-reportTime, s.opts.Grace/2), func() { endWorking(errGrace) }},
		{min(reportTime, s.opts.Grace/2), endReporting},
	}
	for _, step := range steps {
		timer := time.NewTimer(step.after)
		select {
		case <-done:
			timer.Stop()
			return nil
		case <-timer.C:
			step.then()
		}
	}
	<-done // The context of all work has ended.
	return fmt.Errorf("draining: %w", errGrace)
}

// farewell tells dispatch the open runs of this runner. Other claims were lost with the cancelled
// claim request and can begin elsewhere immediately.
func (s *Server) farewell(ctx context.Context) {
	for range farewells {
		try, cancel := context.WithTimeout(ctx, farewellTime)
		req := s.request()
		req.Draining = true
		_, err := s.opts.Dispatch.Claim(try, req)
		cancel()
		if err == nil {
			return
		}
		slog.WarnContext(ctx, "reporting the drain to dispatch", "error", err)
		if pause.For(ctx, farewellPause) != nil {
			return
		}
	}
}

func (s *Server) updateState(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// Ready returns an error if no runs can reach this runner: dispatch has not answered a claim
// request lately, or the runner drains. A runner without a free slot is ready.
func (s *Server) Ready(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.ending:
		return errors.New("the runner is draining")
	case s.polled.IsZero():
		return errors.New("the dispatch port has not answered yet")
	case s.opts.Now().Sub(s.polled) > presence:
		return errors.New("the dispatch port has not answered for " + presence.String())
	}
	return nil
}
