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

	"github.com/agentplatform/agentplatform/internal/dispatch"
	"github.com/agentplatform/agentplatform/runner/engine"
)

const (
	// claimWait is how long dispatch holds a claim request open.
	claimWait = 20 * time.Second
	// busyPause is how often a runner without a free place asks what to prefetch.
	busyPause = 2 * time.Second
	// heartbeatInterval is how often claims are renewed, heartbeatRetry how soon
	// after a failed try.
	heartbeatInterval = 10 * time.Second
	heartbeatRetry    = time.Second
	heartbeatTimeout  = 5 * time.Second
	// reportTime is the end of the grace period that is kept for reporting.
	reportTime = 5 * time.Second
)

// Dispatch is the port that runs come from. *dispatch.Client is one.
type Dispatch interface {
	Claim(ctx context.Context, req dispatch.ClaimRequest) (dispatch.ClaimResponse, error)
	Heartbeat(ctx context.Context, req dispatch.HeartbeatRequest) (dispatch.HeartbeatResponse, error)
	Journal(ctx context.Context, runID uuid.UUID, req dispatch.JournalRequest) error
	Complete(ctx context.Context, runID uuid.UUID, req dispatch.CompleteRequest) error
	Release(ctx context.Context, runID uuid.UUID, req dispatch.ReleaseRequest) error
	Input(ctx context.Context, runID uuid.UUID, limit int64) ([]byte, error)
	Bundle(ctx context.Context, digest string, limit int64) ([]byte, error)
}

// Options configure a Server.
type Options struct {
	// Dispatch and Engine are required.
	Dispatch Dispatch
	Engine   *engine.Engine
	// RunnerID names this process for people; required.
	RunnerID string
	// Concurrency is the most runs at a time; 0 means 10.
	Concurrency int
	// Grace is how long runs may go on after the end of Run's context; 0 means 30 s.
	Grace time.Duration
	// Bundles is the most bundles held; 0 means 16.
	Bundles int
	// Heartbeat is the interval of heartbeats; 0 means 10 s.
	Heartbeat time.Duration
}

// Server executes runs.
type Server struct {
	opts    Options
	bundles *bundleCache

	mu     sync.Mutex
	runs   map[uuid.UUID]*claim
	places chan struct{} // one token for each run under way
	beat   chan struct{} // asks for a heartbeat now
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
	if opts.Concurrency > dispatch.MaxLeases || opts.Bundles > dispatch.MaxDigests || len(opts.RunnerID) > dispatch.MaxRunnerID {
		return nil, fmt.Errorf("a runner executes at most %d runs, holds at most %d bundles and has a name of at most %d bytes",
			dispatch.MaxLeases, dispatch.MaxDigests, dispatch.MaxRunnerID)
	}
	return &Server{
		opts: opts, bundles: newBundleCache(opts.Dispatch, opts.Bundles), runs: map[uuid.UUID]*claim{},
		places: make(chan struct{}, opts.Concurrency), beat: make(chan struct{}, 1),
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

	var beats sync.WaitGroup
	beats.Go(func() { s.heartbeats(reporting) })
	s.claims(ctx, life{working: working, reporting: reporting, stop: ctx.Done()})
	slog.InfoContext(ctx, "draining", "runs", s.active())
	err := s.drain(endWorking, endReporting)
	endReporting()
	beats.Wait()
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

// claims asks for runs until ctx ends.
func (s *Server) claims(ctx context.Context, l life) {
	failures := 0
	for ctx.Err() == nil {
		free := cap(s.places) - len(s.places)
		req := dispatch.ClaimRequest{RunnerID: s.opts.RunnerID, Digests: s.bundles.digests(), Limit: free}
		if free > 0 {
			req.WaitSeconds = int(claimWait.Seconds())
		}
		resp, err := s.opts.Dispatch.Claim(ctx, req)
		switch {
		case ctx.Err() != nil && err != nil:
			return
		case err != nil:
			failures++
			slog.WarnContext(ctx, "claiming runs", "error", err, "failures", failures)
			wait(ctx, min(time.Duration(failures)*500*time.Millisecond, 5*time.Second))
			continue
		}
		failures = 0
		for _, run := range resp.Runs {
			s.start(l, run)
		}
		if !s.prefetch(ctx, resp.Prefetch) {
			wait(ctx, busyPause) // Dispatch asks again for what is missing.
		}
		if free == 0 {
			s.awaitPlace(ctx)
		}
	}
}

// awaitPlace waits until a place is free, but not for long.
func (s *Server) awaitPlace(ctx context.Context) {
	timer := time.NewTimer(busyPause)
	defer timer.Stop()
	select {
	case s.places <- struct{}{}:
		<-s.places
	case <-timer.C:
	case <-ctx.Done():
	}
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// prefetch fetches bundles that are about to go live; false when one failed.
func (s *Server) prefetch(ctx context.Context, digests []string) bool {
	ok := true
	for _, digest := range digests {
		if _, err := s.bundles.get(ctx, digest); err != nil && ctx.Err() == nil {
			slog.WarnContext(ctx, "prefetching a bundle", "digest", digest, "error", err)
			ok = false
		}
	}
	return ok
}

// start executes a run in a goroutine of its own.
func (s *Server) start(l life, run dispatch.Run) {
	c := newClaim(l.working, run, s.askHeartbeat)
	s.mu.Lock()
	if before := s.runs[run.ID]; before != nil {
		before.end(errLost) // This runner itself has claimed the run anew.
	}
	s.runs[run.ID] = c
	s.mu.Unlock()
	s.places <- struct{}{}
	s.group.Go(func() {
		defer func() {
			c.end(nil)
			s.mu.Lock()
			if s.runs[run.ID] == c {
				delete(s.runs, run.ID)
			}
			s.mu.Unlock()
			<-s.places
		}()
		s.execute(l, c)
	})
}

func (s *Server) active() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.runs)
}
