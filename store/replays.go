// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
)

// Limits of bulk replays.
const (
	// MaxReplayed is the maximum number of connector runs per replay.
	MaxReplayed = 100_000
	// MaxReplayLook is the maximum number of connector runs that are read to count the matches.
	MaxReplayLook = 20_000
	// MaxReplayPage is the maximum number of connector runs that one call of ReplayOriginals reads.
	MaxReplayPage = 200
	// MaxReplayRate is the maximum number of replayed connector runs per minute.
	MaxReplayRate = 6000
	// MaxRunningReplays is the maximum number of open replays per project.
	MaxRunningReplays = 16
	// MaxReplays is the number of replays kept per connector, the latest ended ones. ReplayAge is
	// how long they are kept after their end.
	MaxReplays = 100
	ReplayAge  = 30 * 24 * time.Hour
	// MaxReplayDetail is the maximum size of Replay.Detail in bytes. The rest is cut.
	MaxReplayDetail = 1024
)

var (
	// ErrReplayMoved means that another process has advanced the replay, or it has ended.
	ErrReplayMoved = errors.New("another process has advanced the replay, or it has ended")
	// ErrReplayRunning means that the connector has an open replay.
	ErrReplayRunning = errors.New("the connector has a replay in progress")
	// ErrTooManyReplays means that the project has the maximum number of open replays.
	ErrTooManyReplays = errors.New("the project has as many replays that have not ended as it may have")
)

// ReplayStatus is the state of a replay.
type ReplayStatus string

// Statuses of replays. All but the first are final.
const (
	ReplayRunning   ReplayStatus = "running"
	ReplayCompleted ReplayStatus = "completed"
	ReplayCancelled ReplayStatus = "cancelled"
	ReplayFailed    ReplayStatus = "failed"
)

// ReplayFilter selects connector runs of a connector. It never matches replays, a DeliverTest or
// open connector runs.
type ReplayFilter struct {
	// Statuses are the final statuses to match; at least one.
	Statuses []ConnectorRunStatus
	// Trigger is the trigger to match; "" matches any.
	Trigger TriggerType
	// Since and Until limit the start time, in milliseconds, without Until itself.
	Since, Until time.Time
}

// Matches reports whether a connector run in the window matches.
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

// ReplayMatch is the number of matches of a filter.
type ReplayMatch struct {
	Matched int64
	// More means that there may be more matches, because the limit was reached.
	More bool
}

// NewReplay is a request for a bulk replay.
type NewReplay struct {
	Connector Key
	// ID is the ID of the replay. A repeated request with the same ID and Fingerprint returns the
	// existing replay.
	ID          uuid.UUID
	Fingerprint []byte
	Filter      ReplayFilter
	// PerMinute is the rate limit of the replay, 1 to MaxReplayRate.
	PerMinute int64
}

// Replay is a bulk replay of connector runs of a connector, oldest first.
type Replay struct {
	ID, ProjectID, ConnectorID uuid.UUID
	Filter                     ReplayFilter
	PerMinute                  int64
	// Match is the number of matches at creation.
	Match  ReplayMatch
	Status ReplayStatus
	// Position is the ID of the last processed connector run.
	Position uuid.UUID
	// Tries is the number of failed attempts for the next connector run, with errors that may not
	// recur.
	Tries int
	// Replayed counts the replayed connector runs. Refused counts the connector runs that could not
	// be replayed, by reason.
	Replayed int64
	Refused  map[string]int64
	// Reason and Detail explain why the replay waits or has failed; otherwise both are empty.
	Reason, Detail string
	CreatedAt      time.Time
	EndedAt        *time.Time
	// TakenAt is the store's time when TakeReplays returned the replay; otherwise zero.
	TakenAt time.Time
}

// Key returns the primary key of the replay.
func (r Replay) Key() Key { return Key{r.ProjectID, r.ID} }

// Connector returns the key of its connector.
func (r Replay) Connector() Key { return Key{r.ProjectID, r.ConnectorID} }

// Done returns the number of processed connector runs.
func (r Replay) Done() (n int64) {
	for _, refused := range r.Refused {
		n += refused
	}
	return n + r.Replayed
}

// ReplayStep advances a running replay.
type ReplayStep struct {
	// From is the expected position. If the replay has another position or has ended, nothing is
	// written.
	From uuid.UUID
	// To is the new state: Status, Position, Tries, Replayed, Refused, Reason and Detail are
	// written.
	To Replay
	// Due is when the replay continues; zero leaves it unchanged.
	Due time.Time
}

// ReplayPage is a page of connector runs that a replay reads, oldest first.
type ReplayPage struct {
	// Originals are the connector runs to replay.
	Originals []ConnectorRun
	// Last is the last connector run that was read: the position after the page.
	Last uuid.UUID
	// End means that the page is the last one.
	End bool
}

// ReplayJobs stores bulk replays. A replay is deleted with its connector.
type ReplayJobs interface {
	// MatchReplay counts the matches of a filter, up to MaxReplayed, among the oldest MaxReplayLook
	// connector runs in the window.
	MatchReplay(ctx context.Context, connector Key, f ReplayFilter) (ReplayMatch, error)
	// StartReplay creates a replay, due at once: Accepted. The verdict is Repeated if it exists,
	// and KeyReused if its ID belongs to another request. It returns ErrReplayRunning while the
	// connector has another open replay, ErrTooManyReplays while the project has MaxRunningReplays,
	// and ErrNotFound without the connector.
	StartReplay(ctx context.Context, r NewReplay) (Replay, Verdict, error)
	// Replay returns a replay.
	Replay(ctx context.Context, replay Key) (Replay, error)
	// ListReplays returns the newest MaxReplays replays of a connector, newest first.
	ListReplays(ctx context.Context, connector Key) ([]Replay, error)
	// CancelReplay ends a replay; ErrConflict if it has ended.
	CancelReplay(ctx context.Context, replay Key) error
	// NextReplay returns the store's time and the due time of the next replay in any project; nil
	// if none is running.
	NextReplay(ctx context.Context) (now time.Time, next *time.Time, err error)
	// TakeReplays returns up to limit due replays, longest waiting first. They become due again
	// after the lease, unless the caller sets an earlier time.
	TakeReplays(ctx context.Context, limit int, lease time.Duration) ([]Replay, error)
	// ReplayOriginals returns the next connector runs of a replay: up to limit matches among the
	// next MaxReplayPage.
	ReplayOriginals(ctx context.Context, r Replay, limit int) (ReplayPage, error)
	// MoveReplay advances a replay; ErrReplayMoved if another process has.
	MoveReplay(ctx context.Context, step ReplayStep) error
}
