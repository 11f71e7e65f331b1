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
	"github.com/agentplatform/agentplatform/internal/quota"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// maxUnderWay is how many attempts a process has under way, perProject and
	// perConnector how many of these are of one.
	maxUnderWay  = 512
	perProject   = maxUnderWay / 4
	perConnector = 128
	// postLimit is how many ended runs become deliveries at once.
	postLimit = 256
	// lease is how long an attempt may take, with what is read before and recorded after.
	lease = outbound.MaxTimeout + time.Minute
	// maxLarge is how many outputs that do not fit in a row are in memory, largeParts the
	// parts of these of which a project has one.
	maxLarge   = 16
	largeParts = 4
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
	large  *quota.Places
	freed  chan struct{} // holds one: an attempt has ended

	posts     int // how many runs become deliveries at once
	mutex     sync.Mutex
	underWay  int
	byProject map[uuid.UUID]int
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
		opts: opts, client: opts.Guard.Client(egress.Webhook, egress.ClientOptions{MaxResponse: store.MaxExcerpt + 1, MaxIdlePerHost: perConnector}),
		large: quota.NewPlaces(maxLarge, largeParts), freed: make(chan struct{}, 1), byProject: map[uuid.UUID]int{}, posts: postLimit,
	}
}

// Run sends until ctx ends, and lets what is under way then end within a while.
func (s *Sender) Run(ctx context.Context) error {
	hints, stop := s.opts.Store.Subscribe(store.TopicDelivery)
	defer stop()
	attempts, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	failures := 0
	for s.opts.Keys.SealingKey() == "" && pause.For(ctx, awaitKeys) == nil {
	}
	for ctx.Err() == nil {
		found, err := s.turn(ctx, attempts)
		switch {
		case err != nil && ctx.Err() == nil:
			s.opts.Logger.Error("delivering results", "error", err)
			_ = pause.For(ctx, min(time.Second<<min(failures, 4), maxFailurePause)) // ended by ctx as the loop is
			failures++
		case found:
			failures = 0
		default:
			failures = 0
			s.wait(ctx, hints)
		}
	}
	time.AfterFunc(farewell, cancel)
	s.attempts.Wait()
	return nil
}

// turn makes deliveries and begins attempts; found says that there may be more at once.
// What keeps deliveries from being made keeps none from being sent.
func (s *Sender) turn(ctx, attempts context.Context) (found bool, err error) {
	posted, failed := s.post(ctx)
	claim := s.claim()
	if claim.Limit == 0 {
		return false, failed
	}
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	claimed, err := s.opts.Store.ClaimDeliveries(ctx, claim)
	for _, d := range claimed {
		s.begin(attempts, d, err)
	}
	return posted || len(claimed) > 0, errors.Join(failed, err)
}

// post makes deliveries of what has ended; of fewer runs at once after each failure, for
// one of them may be at fault.
func (s *Sender) post(ctx context.Context) (more bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	n, err := s.opts.Store.PostDeliveries(ctx, s.posts)
	switch full := n == s.posts; {
	case err != nil:
		s.posts = max(s.posts/2, 1)
		return false, err
	default:
		s.posts = min(s.posts*2, postLimit)
		return full, nil
	}
}

// claim is what may begin.
func (s *Sender) claim() store.DeliveryClaim {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return store.DeliveryClaim{
		Limit: maxUnderWay - s.underWay, PerConnector: perConnector, Lease: lease, PerProject: perProject, UnderWay: maps.Clone(s.byProject),
	}
}

// wait returns when something may have to be done.
func (s *Sender) wait(ctx context.Context, hints <-chan store.Hint) {
	next := lookEvery
	if claim := s.claim(); claim.Limit > 0 {
		asking, cancel := context.WithTimeout(ctx, storeTimeout)
		in, waits, err := s.opts.Store.NextDelivery(asking, claim.Without())
		cancel()
		if err == nil && waits {
			next = min(next, max(in, emptyPause))
		}
	}
	timer := time.NewTimer(next)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-hints:
	case <-s.freed:
	case <-ctx.Done():
	}
}

// begin makes an attempt that was claimed; unread is why what it would send is not known.
func (s *Sender) begin(ctx context.Context, d store.ClaimedDelivery, unread error) {
	s.mutex.Lock()
	s.underWay++
	s.byProject[d.Delivery.ProjectID]++
	s.mutex.Unlock()
	s.attempts.Go(func() {
		a := s.attempt(ctx, d, unread)
		s.opts.Metrics.DeliveryAttempt(a.ErrorClass, a.Duration)
		s.record(a)
	})
}

// record has an attempt recorded, with those that end meanwhile: who comes while others
// are being recorded leaves its own to these.
func (s *Sender) record(a store.Attempt) {
	s.mutex.Lock()
	s.done = append(s.done, a)
	if s.recording {
		s.mutex.Unlock()
		return
	}
	s.recording = true
	s.mutex.Unlock()
	for {
		s.mutex.Lock()
		batch := s.done
		s.done = nil
		if len(batch) == 0 {
			s.recording = false
			s.mutex.Unlock()
			return
		}
		s.mutex.Unlock()
		s.store(batch)
		s.leave(batch)
	}
}

// store records attempts. What cannot be recorded is lost: its deliveries are due again
// when their claims end.
func (s *Sender) store(batch []store.Attempt) {
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	for try := range 3 {
		err := s.opts.Store.RecordAttempts(ctx, batch)
		if err == nil {
			for _, a := range batch {
				s.opts.Metrics.DeliveryEnded(a.Outcome.String())
			}
			return
		}
		s.opts.Logger.Error("recording attempts to deliver", "attempts", len(batch), "error", err)
		if errors.Is(err, context.DeadlineExceeded) || pause.For(ctx, time.Second<<try) != nil {
			return
		}
	}
}

// leave makes room.
func (s *Sender) leave(batch []store.Attempt) {
	s.mutex.Lock()
	s.underWay -= len(batch)
	for _, a := range batch {
		project := a.Delivery.ProjectID
		if s.byProject[project]--; s.byProject[project] == 0 {
			delete(s.byProject, project)
		}
	}
	s.mutex.Unlock()
	select {
	case s.freed <- struct{}{}:
	default:
	}
}
