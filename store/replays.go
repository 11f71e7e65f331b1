// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
)

// Bounds of replays of many.
const (
	// MaxReplayed is how many connector runs one replay replays at most.
	MaxReplayed = 100_000
	// MaxReplayLook is how many connector runs are looked at to tell how many match.
	MaxReplayLook = 20_000
	// MaxReplayPage is how many connector runs one call of ReplayOriginals looks at.
	MaxReplayPage = 200
	// MaxReplayRate is how many connector runs a replay replays in a minute at most.
	MaxReplayRate = 6000
	// MaxRunningReplays is how many replays of a project may not have ended: all projects take
	// turns, each replay with its own.
	MaxRunningReplays = 16
	// MaxReplays is how many replays of a connector are kept, those that ended last, and
	// ReplayAge for how long after their end.
	MaxReplays = 100
	ReplayAge  = 30 * 24 * time.Hour
	// MaxReplayDetail is the most bytes of Replay.Detail; more is cut.
	MaxReplayDetail = 1024
)

var (
	// ErrReplayMoved says that a replay has gone on elsewhere, or has ended.
	ErrReplayMoved = errors.New("the replay has gone on elsewhere, or has ended")
	// ErrReplayRunning says that the connector has a replay that has not ended.
	ErrReplayRunning = errors.New("the connector has a replay that has not ended")
	// ErrTooManyReplays says that a project has as many that have not ended as it may have.
	ErrTooManyReplays = errors.New("the project has as many replays that have not ended as it may have")
)

// ReplayStatus says where a replay stands.
type ReplayStatus string

// Statuses of replays. All but the first are final.
const (
	ReplayRunning   ReplayStatus = "running"
	ReplayCompleted ReplayStatus = "completed"
	ReplayCancelled ReplayStatus = "cancelled"
	ReplayFailed    ReplayStatus = "failed"
)

// ReplayFilter says which connector runs of a connector are replayed. Those that are
// replays themselves never are, no DeliverTest, and none that has not ended.
type ReplayFilter struct {
	// Statuses are those of which the connector run has one; at least one, all final.
	Statuses []ConnectorRunStatus
	// Trigger is its cause; "" is any.
	Trigger TriggerType
	// Since and Until bound when it began, in milliseconds; Until is left out.
	Since, Until time.Time
}

// Matches says whether a connector run in the window is one to replay.
func (f ReplayFilter) Matches(r ConnectorRun) bool {
	if r.ReplayOf != nil || r.Kind == DeliverTest || f.Trigger != "" && r.Trigger != f.Trigger {
		return false
	}
	for _, status := range f.Statuses {
		if r.Status == status {
			return true
		}
	}
	return false
}

// ReplayMatch is how many connector runs a filter finds.
type ReplayMatch struct {
	Matched int64
	// More says that there may be more than that: no more were looked at.
	More bool
}

// NewReplay asks for a replay.
type NewReplay struct {
	Connector Key
	// ID is the replay's. A request that names an id of before is answered by what that has
	// become where Fingerprint is the same.
	ID          uuid.UUID
	Fingerprint []byte
	Filter      ReplayFilter
	// PerMinute is how many are replayed in a minute at most, 1 to MaxReplayRate.
	PerMinute int64
}

// Replay lets many connector runs of a connector happen again, oldest first.
type Replay struct {
	ID, ProjectID, ConnectorID uuid.UUID
	Filter                     ReplayFilter
	PerMinute                  int64
	// Match is what the filter found when the replay was made.
	Match  ReplayMatch
	Status ReplayStatus
	// Position is the id of the last connector run that it is done with.
	Position uuid.UUID
	// Tries is how often the next one was tried in vain, for something failed that may not fail
	// again.
	Tries int
	// Replayed counts those that have happened again, Refused those that could not, by
	// the reason.
	Replayed int64
	Refused  map[string]int64
	// Reason and Detail say why it waits, or why it has failed; both are empty otherwise.
	Reason, Detail string
	CreatedAt      time.Time
	EndedAt        *time.Time
	// TakenAt is the store's time when TakeReplays returned it; else zero.
	TakenAt time.Time
}

// Key is the replay's primary key.
func (r Replay) Key() Key { return Key{r.ProjectID, r.ID} }

// Connector is the key of its connector.
func (r Replay) Connector() Key { return Key{r.ProjectID, r.ConnectorID} }

// Done is how many connector runs it is done with.
func (r Replay) Done() (n int64) {
	for _, refused := range r.Refused {
		n += refused
	}
	return n + r.Replayed
}

// ReplayStep takes a running replay on.
type ReplayStep struct {
	// From is its position until now. Where it has another one, or has ended, nothing
	// is written.
	From uuid.UUID
	// To is the replay as it is then: Status, Position, Tries, Replayed, Refused, Reason and
	// Detail are written.
	To Replay
	// Due is when it goes on; zero leaves that as it is.
	Due time.Time
}

// ReplayPage are connector runs that a replay looks at, oldest first.
type ReplayPage struct {
	// Originals are those to replay.
	Originals []ConnectorRun
	// Last is the last one that was looked at: the position once all of the page are done.
	Last uuid.UUID
	// End says that there are no more behind it.
	End bool
}

// ReplayJobs keeps replays of many. What is in one goes with its connector.
type ReplayJobs interface {
	// MatchReplay tells how many connector runs a filter finds, up to MaxReplayed, of the
	// MaxReplayLook oldest ones in the window.
	MatchReplay(ctx context.Context, connector Key, f ReplayFilter) (ReplayMatch, error)
	// StartReplay makes a replay, due at once: Accepted. Repeated where it is there already,
	// KeyReused where it is that of another request. ErrReplayRunning while the connector has another one
	// that has not ended, ErrTooManyReplays while the project has MaxRunningReplays of these, ErrNotFound without the connector.
	StartReplay(ctx context.Context, r NewReplay) (Replay, Verdict, error)
	// Replay reads one.
	Replay(ctx context.Context, replay Key) (Replay, error)
	// ListReplays returns the newest MaxReplays of a connector, newest first.
	ListReplays(ctx context.Context, connector Key) ([]Replay, error)
	// CancelReplay ends one; ErrConflict where it has ended.
	CancelReplay(ctx context.Context, replay Key) error
	// NextReplay is the store's time, and when the next replay of all is due; nil where
	// none is running.
	NextReplay(ctx context.Context) (now time.Time, next *time.Time, err error)
	// TakeReplays returns up to limit replays that are due, the one that has waited longest first. They are due again
	// after the lease: whoever takes them on says sooner when.
	TakeReplays(ctx context.Context, limit int, lease time.Duration) ([]Replay, error)
	// ReplayOriginals looks for the next connector runs of a replay, up to limit of them
	// among the next MaxReplayPage.
	ReplayOriginals(ctx context.Context, r Replay, limit int) (ReplayPage, error)
	// MoveReplay takes a replay on; ErrReplayMoved where somebody else has.
	MoveReplay(ctx context.Context, step ReplayStep) error
}
