// SPDX-License-Identifier: Apache-2.0

// Package delivery sends the results of runs to the destinations of outbound connectors. It signs
// each request and retries it until the destination accepts it or the schedule ends. A destination
// gets each result at least once.
//
// A Sender creates deliveries from the outbox of ended runs, claims due deliveries, and sends each
// one through the guarded client of package egress. It records the outcomes of several attempts in
// one transaction. If a Sender stops or crashes, its claims expire. The attempt then counts as
// lost, and another Sender makes the next one.
//
// The function decideAttempt decides about the outcome of an attempt. It uses neither the network nor the
// store.
package delivery

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/connector"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/pause"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// maxUnderWay limits the deliveries in a process: being sent, waiting to be sent, or waiting to
	// be recorded.
	maxUnderWay = 1024
	// maxClaimedPerConnector limits the claimed deliveries of one connector over all processes.
	// maxConcurrentRequests limits the concurrent requests of one process to it. The other claimed
	// deliveries start when a request ends.
	maxClaimedPerConnector = 256
	maxConcurrentRequests  = maxClaimedPerConnector / 2
	// postLimit is the number of ended runs that become deliveries in one batch.
	postLimit = 256
	// maxSendDelay is how long after its claim was requested a delivery can start. It covers the wait
	// for the slot of another attempt, and the time to claim and read it.
	maxSendDelay = connector.MaxTimeout + 10*time.Second
	// recordTimeout limits the time to record an attempt: another record and its own.
	recordTimeout = 2 * storeTimeout
	// lease is the duration of a claim. It covers sending and recording, so that no other process
	// sends the same delivery. It is also how long the deliveries of a crashed gateway wait.
	lease = maxSendDelay + connector.MaxTimeout + recordTimeout
	// emptyPause is the minimum time between two empty claims.
	emptyPause = 50 * time.Millisecond
	// pollInterval is the interval for checking for deliveries without a notification.
	pollInterval = 30 * time.Second
	// keyPollInterval is the interval for checking whether there are keys.
	keyPollInterval = time.Second
	// stopGrace is how long attempts can continue after the process stops.
	stopGrace = 5 * time.Second
	// maxFailurePause limits the backoff after errors of the store.
	maxFailurePause = 15 * time.Second
)

// Store is the part of the store that deliveries need.
type Store interface {
	store.Deliveries
	store.Notifier
	OpenBlob(ctx context.Context, key store.Key) (io.ReadCloser, error)
}

// Options configure a Sender.
type Options struct {
	Store Store
	Keys  Keys
	// Guard decides which addresses are allowed.
	Guard *egress.Guard
	// Metrics counts attempts; nil disables the metrics.
	Metrics *metrics.Gateway
	// Logger receives the log; nil means slog.Default.
	Logger *slog.Logger
	// Now is the clock for signatures; nil means time.Now.
	Now func() time.Time
	// Random returns a number from 0 to 1; nil means math/rand.
	Random func() float64
	// WithTimeout limits attempts; nil means context.WithTimeout.
	WithTimeout func(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc)
}

// Sender sends due deliveries. Each gateway can run one.
type Sender struct {
	opts   Options
	client *http.Client
	// Both have capacity 1: ended runs may have left results, and deliveries may be due.
	ended, claimable chan struct{}
	// recordable has capacity 1: attempts have ended. stopped is closed when no further attempt
	// starts.
	recordable, stopped chan struct{}
	// slow means that the last record took too long. Only the recording goroutine uses it.
	slow bool

	mutex      sync.Mutex
	underWay   int
	byProject  map[uuid.UUID]int
	connectors map[store.Key]*connectorQueue // by connector
	large      *largeQueue
	done       []store.Attempt // to be recorded
	recording  bool
	attempts   sync.WaitGroup
}

// New returns a Sender. It sends while Run runs.
func New(opts Options) *Sender {
	if opts.Metrics == nil {
		opts.Metrics = metrics.NewGateway(nil, nil)
	}
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	if opts.Random == nil {
		opts.Random = rand.Float64
	}
	if opts.WithTimeout == nil {
		opts.WithTimeout = context.WithTimeout
	}
	return &Sender{
		opts: opts, client: opts.Guard.Client(egress.Webhook, egress.ClientOptions{MaxResponse: store.MaxExcerpt + 1, MaxIdlePerHost: maxConcurrentRequests}),
		ended: make(chan struct{}, 1), claimable: make(chan struct{}, 1), recordable: make(chan struct{}, 1), stopped: make(chan struct{}),
		byProject: map[uuid.UUID]int{}, connectors: map[store.Key]*connectorQueue{}, large: newLargeQueue(),
	}
}

// Run sends until ctx ends, and then waits a while for running attempts. An error while deliveries
// are created does not stop other deliveries from being sent.
func (s *Sender) Run(ctx context.Context) error {
	hints, stop := s.opts.Store.Subscribe(store.TopicDelivery)
	defer stop()
	attempts, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	for s.opts.Keys.SealingKey() == "" && pause.For(ctx, keyPollInterval) == nil {
	}
	var loops sync.WaitGroup
	loops.Go(func() { s.postDeliveries(ctx) })
	loops.Go(func() { s.claimDeliveries(ctx, attempts, hints) })
	loops.Wait()
	close(s.stopped)
	time.AfterFunc(stopGrace, cancel)
	s.attempts.Wait()
	return nil
}

// notifyLoop notifies a loop that there may be work.
func notifyLoop(loop chan<- struct{}) {
	select {
	case loop <- struct{}{}:
	default: // already notified
	}
}

// logFailure logs an error of a loop and waits. The backoff grows with each consecutive failure.
func (s *Sender) logFailure(ctx context.Context, what string, err error, failures int) {
	if ctx.Err() == nil {
		s.opts.Logger.Error(what, "error", err)
		_ = pause.For(ctx, min(time.Second<<min(failures, 4), maxFailurePause)) // the loop checks ctx
	}
}

// postDeliveries creates deliveries for ended runs. After each failure it uses smaller batches, because the
// batch may have been too large.
func (s *Sender) postDeliveries(ctx context.Context) {
	for limit, failures := postLimit, 0; ctx.Err() == nil; {
		asking, cancel := context.WithTimeout(ctx, storeTimeout)
		n, err := s.opts.Store.PostDeliveries(asking, limit)
		cancel()
		var aside *store.SetAsideError
		if errors.As(err, &aside) { // the other rows were processed
			s.opts.Logger.Error("creating deliveries of results: some are set aside", "rows", len(aside.Rows), "error", err)
			err = nil
		}
		if err != nil {
			s.logFailure(ctx, "creating deliveries of results", err, failures)
			if n > 0 {
				limit = min(limit, n)
			}
			limit, failures = max(limit/2, 1), failures+1
			continue
		}
		limit, failures = min(limit*2, postLimit), 0
		if n > 0 { // a batch has only a part of a project's rows
			notifyLoop(s.claimable)
		} else {
			select {
			case <-s.ended:
			case <-ctx.Done():
			}
		}
	}
}

// claimDeliveries claims due deliveries and starts their attempts in the context attempts.
func (s *Sender) claimDeliveries(ctx, attempts context.Context, hints <-chan store.Hint) {
	for failures := 0; ctx.Err() == nil; {
		select {
		case <-hints:
			notifyLoop(s.ended)
		default:
		}
		claim := s.nextClaim()
		if claim.Limit == 0 {
			s.waitForWork(ctx, hints, pollInterval)
			continue
		}
		asking, cancel := context.WithTimeout(ctx, storeTimeout)
		since := s.opts.Now()
		begun, err := s.opts.Store.ClaimDeliveries(asking, claim)
		cancel()
		var aside *store.SetAsideError
		if errors.As(err, &aside) { // the other deliveries were claimed
			s.opts.Logger.Error("claiming deliveries: some are set aside", "rows", len(aside.Rows), "error", err)
			err = nil
		}
		s.beginAll(attempts, s.addDestinations(begun, since, err))
		switch {
		case err != nil:
			s.logFailure(ctx, "claiming deliveries", err, failures)
			failures++
			continue
		case len(begun) == 0:
			s.waitForWork(ctx, hints, s.timeUntilDue(ctx, s.nextClaim()))
		}
		failures = 0
	}
}

// nextClaim returns how many deliveries can start: half of the free slots. So there are slots for
// another project while a dozen projects are slow.
func (s *Sender) nextClaim() store.DeliveryClaim {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	half := (maxUnderWay - s.underWay + 1) / 2
	held := make(map[store.Key]int, len(s.connectors))
	for connector, l := range s.connectors {
		held[connector] = l.held
	}
	return store.DeliveryClaim{
		Limit: half, PerConnector: maxClaimedPerConnector, Lease: lease, PerProject: half, UnderWay: maps.Clone(s.byProject), OfConnector: held,
		Most: s.large.freeCapacity(s.opts.Now()),
	}
}

// timeUntilDue returns the time until a delivery may be due that has capacity.
func (s *Sender) timeUntilDue(ctx context.Context, claim store.DeliveryClaim) time.Duration {
	if claim.Limit == 0 {
		return pollInterval
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	in, waits, err := s.opts.Store.NextDelivery(ctx, claim)
	if err != nil || !waits {
		return pollInterval
	}
	return min(pollInterval, max(in, emptyPause))
}

// waitForWork returns when there may be work.
func (s *Sender) waitForWork(ctx context.Context, hints <-chan store.Hint, after time.Duration) {
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-timer.C:
		notifyLoop(s.ended)
	case <-hints:
		notifyLoop(s.ended)
	case <-s.claimable:
	case <-ctx.Done():
	}
}
