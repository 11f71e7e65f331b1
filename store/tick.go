// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
)

// TypeCron is Connector.Type of a cron connector.
const TypeCron = "cron"

// ErrTickTaken means that a tick is no longer due: another process has recorded it, or its
// connector has changed. The caller reads the due ticks again.
var ErrTickTaken = errors.New("the tick is no longer due")

// DueTick is a due tick.
type DueTick struct {
	// Route has the IDs, version and configuration of the connector, and the ID and agent of each
	// link.
	Route Route
	// At is the scheduled time of the tick. If Planned is false, it is the time from which the
	// schedule counts: the tick is the first one after it.
	At      time.Time
	Planned bool
	// LastAt is the newest tick that was recorded or skipped, nil before the first.
	LastAt *time.Time
}

// DueTicks is a page of due ticks.
type DueTicks struct {
	// Now is the database's time.
	Now time.Time
	// Ticks are the oldest due ticks.
	Ticks []DueTick
	// Next is when the next tick is due, or since when the oldest is due; nil if none will be.
	Next *time.Time
}

// TickMove sets the next tick of a cron connector.
type TickMove struct {
	Connector Key
	// From is DueTick.At. If it has changed, nothing is moved.
	From time.Time
	// To is when the next tick is due. If Planned is false, it is when the next tick is computed.
	To      time.Time
	Planned bool
	// Done is the tick that was recorded or skipped; zero if none was.
	Done time.Time
}

// TickTimes are the tick times of a cron connector.
type TickTimes struct {
	// Active reports whether the connector ticks: it is enabled and in effect, and its environment
	// and project exist.
	Active bool
	// Next and Planned are At and Planned of a DueTick.
	Next    time.Time
	Planned bool
	// Last is the newest tick that was recorded or skipped, nil before the first.
	Last *time.Time
}

// Ticks returns due ticks of cron connectors. A connector that is written or enabled, or whose
// environment is restored, is due at once with Planned false. A connector that is disabled,
// retired, or without environment or project is never due.
type Ticks interface {
	// DueTicks returns at most limit due ticks, oldest first, except for the given projects. If
	// none is due, it costs one statement, however many connectors exist.
	DueTicks(ctx context.Context, limit int, without ...uuid.UUID) (DueTicks, error)
	// MoveTicks applies the moves whose ticks are still due and returns their number.
	MoveTicks(ctx context.Context, moves []TickMove) (int, error)
	// TickTimes returns the tick times of the cron connectors among the given connectors of a
	// project.
	TickTimes(ctx context.Context, projectID uuid.UUID, connectors []uuid.UUID) (map[uuid.UUID]TickTimes, error)
}
