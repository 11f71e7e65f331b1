// SPDX-License-Identifier: Apache-2.0

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
	// heartbeatInterval is how often claims are renewed, heartbeatRetry how soon
	// after a failed try.
	heartbeatInterval = 10 * time.Second
	heartbeatRetry    = time.Second
	heartbeatTimeout  = 5 * time.Second
	// presence is how long after its last answered request a runner counts as
	// waiting for runs: a request that waits, and some.
	presence = claimWait + 10*time.Second
	// reportTime is the end of the grace period that is kept for reporting.
	reportTime = 5 * time.Second
	// farewellTime bounds each of the tries, farewells in number, to tell dispatch
	// that the runner drains; farewellPause is between them.
	farewellTime  = time.Second
	farewells     = 3
	farewellPause = 200 * time.Millisecond
)

// processBytes is how much of a random id tells processes of one name apart.
const processBytes = 8

// Dispatch is the port that runs come from. *dispatchapi.Client is one.
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
	Bundle(ctx context.Context, digest string, limit int64) ([]byte, error)
}

// Options configure a Server.
type Options struct {
	// Dispatch and Engine are required.
	Dispatch Dispatch
	Engine   *engine.Engine
	// RunnerID names this runner for people; required. To dispatch each process has a
	// name of its own: what is leased to one that was killed is not handed to the one
	// after it under the same name.
	RunnerID string
	// Concurrency is the most runs at a time; 0 means 10.
	Concurrency int
	// Grace is how long runs may go on after the end of Run's context; 0 means 30 s.
	Grace time.Duration
	// Bundles is the most bundles held; 0 means 16.
	Bundles int
	// Heartbeat is the interval of heartbeats; 0 means 10 s.
	Heartbeat time.Duration
	// Metrics count runs and requests; nil counts nowhere.
	Metrics *metrics.Runner
	// Now is the clock by which the runner is ready; nil means time.Now.
	Now func() time.Time
}

// Server executes runs.
type Server struct {
	opts     Options
	bundles  *bundleCache
	prefetch *prefetcher

	mu     sync.Mutex
	polled time.Time // when dispatch last answered a request for runs
	ending bool      // the runner drains
	// unanswered: the answer to the request for runs before did not come.
	unanswered bool
	runs       map[uuid.UUID]*claim
	busy       int                     // runs under way, also those that were lost and have not ended yet
	freed      context.CancelCauseFunc // ends what waits for a free place; nil when nothing does

	memory *semaphore.Weighted // in bytes, for the attachments of runs
	places chan struct{}       // one token for each run that is executed
	beat   chan struct{}       // asks for a heartbeat now
	fresh  chan struct{}       // asks for a heartbeat soon
	group  sync.WaitGroup
}

// New makes a server; an error names the option that is missing.
func New(opts Options) (*Server, error) {
	if opts.Dispatch == nil || opts.Engine == nil || opts.RunnerID == "" {
		return nil, errors.New("dispatch, engine and runner id are required")
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
	opts.RunnerID += "/" + uuid.NewString()[:processBytes]
	if opts.Concurrency > dispatchapi.MaxLeases || opts.Bundles > dispatchapi.MaxDigests || len(opts.RunnerID) > dispatchapi.MaxRunnerID {
		return nil, fmt.Errorf("a runner executes at most %d runs, holds at most %d bundles and has a name of at most %d bytes",
			dispatchapi.MaxLeases, dispatchapi.MaxDigests, dispatchapi.MaxRunnerID)
	}
	bundles := newBundleCache(opts.Dispatch, opts.Bundles)
	return &Server{
		opts: opts, bundles: bundles, prefetch: newPrefetcher(bundles), runs: map[uuid.UUID]*claim{},
		memory: semaphore.NewWeighted(maxFileBytes),
		places: make(chan struct{}, opts.Concurrency), beat: make(chan struct{}, 1), fresh: make(chan struct{}, 1),
	}, nil
}

// Run claims and executes runs until ctx ends, and then drains. It returns nil
// when all runs were ended or given back within the grace period.
func (s *Server) Run(ctx context.Context) error {
	// reporting outlives ctx: it is the life of heartbeats and reports; working
	// is the life of models and tools.
	reporting, endReporting := context.WithCancel(context.WithoutCancel(ctx))
	defer endReporting()
	working, endWorking := context.WithCancelCause(reporting)
	defer endWorking(nil)

	s.opts.Metrics.Places(s.opts.Concurrency)
	var beside sync.WaitGroup
	beside.Go(func() { s.heartbeats(reporting) })
	beside.Go(func() { s.prefetch.run(ctx) })
	s.claims(ctx, life{working: working, reporting: reporting, stop: ctx.Done()})
	s.note(func() { s.ending = true })
	slog.InfoContext(ctx, "draining", "runs", len(s.holding()))
	s.group.Go(func() { s.farewell(reporting) })
	err := s.drain(endWorking, endReporting)
	endReporting()
	beside.Wait()
	return err
}

// life is how long the parts of a run may live.
type life struct {
	working, reporting context.Context //nolint:containedctx // lives of a run, handed to its goroutine
	stop               <-chan struct{}
}

// errGrace is the cause of runs that are cut off.
var errGrace = errors.New("grace period is over")

// drain waits for the runs, cuts off what is left, and then stops waiting.
func (s *Server) drain(endWorking context.CancelCauseFunc, endReporting context.CancelFunc) error {
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
	<-done // Everything's context has ended.
	return fmt.Errorf("draining: %w", errGrace)
}

// farewell tells dispatch what this runner still works on. What else is leased to it
// was lost on its way, with the request that the end of claiming cut off, and may
// begin elsewhere at once.
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
		slog.WarnContext(ctx, "telling dispatch that the runner drains", "error", err)
		if pause.For(ctx, farewellPause) != nil {
			return
		}
	}
}

func (s *Server) note(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// Ready says why no run would come to this runner: dispatch has not answered a
// request for runs lately, or the runner drains. One without a free place is ready.
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
