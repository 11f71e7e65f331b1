// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/pause"
	"github.com/agentplatform/agentplatform/runner/engine"
)

const (
	// claimWait is how long dispatch holds a claim request open.
	claimWait = 20 * time.Second
	// busyPause is how often a runner without a free place asks what to prefetch.
	busyPause = 2 * time.Second
	// claimPause is the pause after a claim that failed; each further one is longer,
	// up to maxClaimPause.
	claimPause, maxClaimPause = 500 * time.Millisecond, 5 * time.Second
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
)

// Dispatch is the port that runs come from. *dispatchapi.Client is one.
type Dispatch interface {
	Claim(ctx context.Context, req dispatchapi.ClaimRequest) (dispatchapi.ClaimResponse, error)
	Heartbeat(ctx context.Context, req dispatchapi.HeartbeatRequest) (dispatchapi.HeartbeatResponse, error)
	Journal(ctx context.Context, runID uuid.UUID, req dispatchapi.JournalRequest) error
	Complete(ctx context.Context, runID uuid.UUID, req dispatchapi.CompleteRequest) error
	Release(ctx context.Context, runID uuid.UUID, req dispatchapi.ReleaseRequest) error
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
	// Metrics count runs and requests; nil counts nowhere.
	Metrics *metrics.Runner
	// Now is the clock by which the runner is ready; nil means time.Now.
	Now func() time.Time
}

// Server executes runs.
type Server struct {
	opts    Options
	bundles *bundleCache

	mu     sync.Mutex
	polled time.Time // when dispatch last answered a request for runs
	ending bool      // the runner drains
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
	if opts.Metrics == nil {
		opts.Metrics = metrics.NewRunner(nil, nil, nil)
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Concurrency > dispatchapi.MaxLeases || opts.Bundles > dispatchapi.MaxDigests || len(opts.RunnerID) > dispatchapi.MaxRunnerID {
		return nil, fmt.Errorf("a runner executes at most %d runs, holds at most %d bundles and has a name of at most %d bytes",
			dispatchapi.MaxLeases, dispatchapi.MaxDigests, dispatchapi.MaxRunnerID)
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

	s.opts.Metrics.Places(s.opts.Concurrency)
	var beats sync.WaitGroup
	beats.Go(func() { s.heartbeats(reporting) })
	s.claims(ctx, life{working: working, reporting: reporting, stop: ctx.Done()})
	s.note(func() { s.ending = true })
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
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.MaxInterval = claimPause, maxClaimPause
	for ctx.Err() == nil {
		free := cap(s.places) - len(s.places)
		req := dispatchapi.ClaimRequest{RunnerID: s.opts.RunnerID, Digests: s.bundles.digests(), Limit: free}
		if free > 0 && s.known() { // the first one only makes the runner known
			req.WaitSeconds = int(claimWait.Seconds())
		}
		resp, err := s.opts.Dispatch.Claim(ctx, req)
		if err != nil && ctx.Err() != nil {
			return
		}
		s.opts.Metrics.Polled(err)
		if err != nil {
			next := pauses.NextBackOff()
			slog.WarnContext(ctx, "claiming runs", "error", err, "again", next.String())
			_ = pause.For(ctx, next) // the loop looks at ctx
			continue
		}
		pauses.Reset()
		s.note(func() { s.polled = s.opts.Now() })
		for _, run := range resp.Runs {
			s.start(l, run)
		}
		if !s.prefetch(ctx, resp.Prefetch) {
			_ = pause.For(ctx, busyPause) // dispatch asks again for what is missing
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
func (s *Server) start(l life, run dispatchapi.Run) {
	c := newClaim(l.working, run, s.askHeartbeat)
	s.opts.Metrics.Began()
	s.mu.Lock()
	if before := s.runs[run.ID]; before != nil {
		before.end(errLost) // This runner itself has claimed the run anew.
	}
	s.runs[run.ID] = c
	s.mu.Unlock()
	s.places <- struct{}{}
	s.group.Go(func() {
		status := metrics.RunUnreported
		defer func() {
			s.opts.Metrics.Left(status)
			c.end(nil)
			s.mu.Lock()
			if s.runs[run.ID] == c {
				delete(s.runs, run.ID)
			}
			s.mu.Unlock()
			<-s.places
		}()
		status = s.execute(l, c)
	})
}

func (s *Server) note(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// known says that dispatch has heard of this runner.
func (s *Server) known() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.polled.IsZero()
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

func (s *Server) active() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.runs)
}
