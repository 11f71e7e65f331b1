// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// TypeCron is Connector.Type of a cron connector.
const TypeCron = "cron"

// ErrTickTaken says that a tick is not due any more: somebody has run it, or its connector
// has changed. What is due is to be read again.
var ErrTickTaken = errors.New("a tick is not due any more")

// CronConfig is Connector.Config of a cron connector. A change of schedule or time zone
// begins the schedule anew.
type CronConfig struct {
	// Schedule has five fields or is a word such as @hourly.
	Schedule string `json:"schedule"`
	// TimeZone is an IANA name.
	TimeZone string `json:"timezone"`
	// MissedTicks is skip or latest.
	MissedTicks string `json:"missed_ticks"`
	Prompt      string `json:"prompt"`
	// Payload is a JSON object, or nothing.
	Payload json.RawMessage `json:"payload,omitempty"`
}

// Cron is the configuration of a cron connector.
func (c Connector) Cron() (config CronConfig, err error) {
	if err = json.Unmarshal(c.Config, &config); err != nil {
		err = fmt.Errorf("reading the configuration of connector %s: %w", c.Key(), err)
	}
	return config, err
}

// DueTick is a tick that is due.
type DueTick struct {
	// Route has of the connector its ids, version and configuration, and of its links id
	// and agent.
	Route Route
	// At is when the tick was scheduled. Where nothing is Planned, it is since when the
	// schedule counts: the tick is the first one after it.
	At      time.Time
	Planned bool
	// LastAt is the newest tick that was run or skipped, nil before the first.
	LastAt *time.Time
}

// DueTicks are the ticks that are due.
type DueTicks struct {
	// Now is the database's time.
	Now time.Time
	// Ticks are the oldest of them.
	Ticks []DueTick
	// Next is when the next one is due, or since when the oldest is; nil where none will be.
	Next *time.Time
}

// TickMove says when the next tick of a cron connector is due.
type TickMove struct {
	Connector Key
	// From is DueTick.At. Where it is another one now, nothing is moved.
	From time.Time
	// To is when the next tick is due. Unless it is Planned, that is only when it is to be
	// looked for, from then on.
	To      time.Time
	Planned bool
	// Done is the tick that was run or skipped; zero where none was.
	Done time.Time
}

// TickTimes are the ticks of a cron connector.
type TickTimes struct {
	// Active says whether it ticks: whether it is enabled, in effect, and its environment
	// and project are there.
	Active bool
	// Next and Planned are At and Planned of a DueTick.
	Next    time.Time
	Planned bool
	// Last is the newest tick that was run or skipped, nil before the first.
	Last *time.Time
}

// Ticks tells what cron connectors are due. A connector that is put, enabled again or whose
// environment is there again is due at once, with nothing planned. One that is disabled,
// retired, without its environment or its project is never due.
type Ticks interface {
	// DueTicks returns at most limit of what is due, oldest first, without that of some projects. Where
	// nothing is, it costs one statement, however many connectors there are.
	DueTicks(ctx context.Context, limit int, without ...uuid.UUID) (DueTicks, error)
	// MoveTicks moves those that are still due as the move says, and returns how many.
	MoveTicks(ctx context.Context, moves []TickMove) (int, error)
	// TickTimes returns those of a project's connectors that are cron connectors.
	TickTimes(ctx context.Context, projectID uuid.UUID, connectors []uuid.UUID) (map[uuid.UUID]TickTimes, error)
}
