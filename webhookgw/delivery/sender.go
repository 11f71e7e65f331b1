// SPDX-License-Identifier: Apache-2.0

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

	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/outbound"
	"github.com/agentplatform/agentplatform/internal/pause"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// maxUnderWay is how many deliveries a process holds at most: that are sent, wait to be, or
	// to be recorded.
	maxUnderWay = 1024
	// perConnector is how many of them may be to one connector, over all processes, and atOnce
	// how many of these a process sends at once. The others are at hand as soon as one ends.
	perConnector = 256
	atOnce       = perConnector / 2
	// postLimit is how many ended runs become deliveries at once.
	postLimit = 256
	// sendWithin is until when, from when its claim was asked for, a delivery is sent, and else
	// not under that claim: until another attempt has ended, for whose place it may have to
	// wait, and a while for being claimed and read.
	sendWithin = outbound.MaxTimeout + 10*time.Second
	// recordWithin is how long it may take to record what came of an attempt: another record,
	// and its own.
	recordWithin = 2 * storeTimeout
	// lease is how long a claim lasts: for as long as all of that may take, so that nobody
	// sends what somebody still may; and for how long what a gateway held that was killed waits.
	lease = sendWithin + outbound.MaxTimeout + recordWithin
	// emptyPause is the least time between two claims that found nothing.
	emptyPause = 50 * time.Millisecond
	// lookEvery is how often is looked for deliveries that nobody has told of.
	lookEvery = 30 * time.Second
	// awaitKeys is how often is looked whether there are keys.
	awaitKeys = time.Second
	// farewell is how long attempts may go on once the process stops.
	farewell = 5 * time.Second
	// maxFailurePause is the longest pause after errors of the store.
	maxFailurePause = 15 * time.Second
)

// Store is what deliveries need of the store.
type Store interface {
	store.Deliveries
	store.Notifier
	OpenBlob(ctx context.Context, key store.Key) (io.ReadCloser, error)
}

// Options configure a Sender.
type Options struct {
	Store Store
	Keys  Keys
	// Guard decides which addresses may be reached.
	Guard *egress.Guard
	// Metrics count attempts; nil counts nowhere.
	Metrics *metrics.Gateway
	// Logger is where the sender logs; nil means slog.Default.
	Logger *slog.Logger
	// Now is the clock of signatures; nil means time.Now.
	Now func() time.Time
	// Random is from 0 to 1; nil means that of math/rand.
	Random func() float64
	// WithTimeout bounds attempts; nil means context.WithTimeout.
	WithTimeout func(ctx context.Context, after time.Duration) (context.Context, context.CancelFunc)
}

// Sender sends what is due; all replicas of the gateway may run one.
type Sender struct {
	opts   Options
	client *http.Client
	// Each holds one: what has ended may have left results, and something may be claimed.
	ended, claimable chan struct{}
	// recordable holds one: attempts have ended meanwhile. stopped is closed once none begins any more.
	recordable, stopped chan struct{}
	// slow says that the last record took too long; whoever records has it.
	slow bool

	mutex     sync.Mutex
	underWay  int
	byProject map[uuid.UUID]int
	lanes     map[store.Key]*lane // by connector
	larges    *larges
	done      []store.Attempt // to be recorded
	recording bool
	attempts  sync.WaitGroup
}

// New makes a sender; it sends once Run runs.
func New(opts Options) *Sender {
	if opts.Metrics == nil {
		opts.Metrics = metrics.NewGateway(nil)
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
		opts: opts, client: opts.Guard.Client(egress.Webhook, egress.ClientOptions{MaxResponse: store.MaxExcerpt + 1, MaxIdlePerHost: atOnce}),
		ended: make(chan struct{}, 1), claimable: make(chan struct{}, 1), recordable: make(chan struct{}, 1), stopped: make(chan struct{}),
		byProject: map[uuid.UUID]int{}, lanes: map[store.Key]*lane{}, larges: newLarges(),
	}
}

// Run sends until ctx ends, and lets what is under way then end within a while. What keeps
// deliveries from being made keeps none from being sent.
func (s *Sender) Run(ctx context.Context) error {
	hints, stop := s.opts.Store.Subscribe(store.TopicDelivery)
	defer stop()
	attempts, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	for s.opts.Keys.SealingKey() == "" && pause.For(ctx, awaitKeys) == nil {
	}
	var loops sync.WaitGroup
	loops.Go(func() { s.post(ctx) })
	loops.Go(func() { s.claim(ctx, attempts, hints) })
	loops.Wait()
	close(s.stopped)
	time.AfterFunc(farewell, cancel)
	s.attempts.Wait()
	return nil
}

// signal tells a loop that there may be something to do.
func signal(loop chan<- struct{}) {
	select {
	case loop <- struct{}{}:
	default: // it will look
	}
}

// failed logs what a loop could not do, and pauses longer with each failure in a row.
func (s *Sender) failed(ctx context.Context, what string, err error, failures int) {
	if ctx.Err() == nil {
		s.opts.Logger.Error(what, "error", err)
		_ = pause.For(ctx, min(time.Second<<min(failures, 4), maxFailurePause)) // ended by ctx as the loop is
	}
}

// post makes deliveries of what has ended; of fewer runs at once after each failure, for
// they may have been too many.
func (s *Sender) post(ctx context.Context) {
	for limit, failures := postLimit, 0; ctx.Err() == nil; {
		asking, cancel := context.WithTimeout(ctx, storeTimeout)
		n, err := s.opts.Store.PostDeliveries(asking, limit)
		cancel()
		var aside *store.SetAsideError
		if errors.As(err, &aside) { // the others go on
			s.opts.Logger.Error("making deliveries of results: some are set aside", "rows", len(aside.Rows), "error", err)
			err = nil
		}
		if err != nil {
			s.failed(ctx, "making deliveries of results", err, failures)
			if n > 0 {
				limit = min(limit, n)
			}
			limit, failures = max(limit/2, 1), failures+1
			continue
		}
		limit, failures = min(limit*2, postLimit), 0
		if n > 0 { // a project has a part of them alone
			signal(s.claimable)
		} else {
			select {
			case <-s.ended:
			case <-ctx.Done():
			}
		}
	}
}

// claim begins attempts of what is due, in the context of these.
func (s *Sender) claim(ctx, attempts context.Context, hints <-chan store.Hint) {
	for failures := 0; ctx.Err() == nil; {
		select {
		case <-hints:
			signal(s.ended)
		default:
		}
		claim := s.room()
		if claim.Limit == 0 {
			s.wait(ctx, hints, lookEvery)
			continue
		}
		asking, cancel := context.WithTimeout(ctx, storeTimeout)
		since := s.opts.Now()
		begun, err := s.opts.Store.ClaimDeliveries(asking, claim)
		cancel()
		var aside *store.SetAsideError
		if errors.As(err, &aside) { // the others go on
			s.opts.Logger.Error("claiming deliveries: some are set aside", "rows", len(aside.Rows), "error", err)
			err = nil
		}
		s.beginAll(attempts, s.claimedOf(begun, since, err))
		switch {
		case err != nil:
			s.failed(ctx, "claiming deliveries", err, failures)
			failures++
			continue
		case len(begun) == 0:
			s.wait(ctx, hints, s.next(ctx, s.room()))
		}
		failures = 0
	}
}

// room is what may begin: half of what is free, so that there is some for a project that
// comes next while a dozen others are slow.
func (s *Sender) room() store.DeliveryClaim {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	half := (maxUnderWay - s.underWay + 1) / 2
	held := make(map[store.Key]int, len(s.lanes))
	for connector, l := range s.lanes {
		held[connector] = l.held
	}
	return store.DeliveryClaim{
		Limit: half, PerConnector: perConnector, Lease: lease, PerProject: half, UnderWay: maps.Clone(s.byProject), OfConnector: held,
		Most: s.larges.most(s.opts.Now()),
	}
}

// next is in how long something may be due that there is room for.
func (s *Sender) next(ctx context.Context, claim store.DeliveryClaim) time.Duration {
	if claim.Limit == 0 {
		return lookEvery
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	in, waits, err := s.opts.Store.NextDelivery(ctx, claim)
	if err != nil || !waits {
		return lookEvery
	}
	return min(lookEvery, max(in, emptyPause))
}

// wait returns when something may have to be done.
func (s *Sender) wait(ctx context.Context, hints <-chan store.Hint, after time.Duration) {
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-timer.C:
		signal(s.ended)
	case <-hints:
		signal(s.ended)
	case <-s.claimable:
	case <-ctx.Done():
	}
}
