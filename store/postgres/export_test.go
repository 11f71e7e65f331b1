// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Tuned returns options that change how a test connects.
func (o Options) Tuned(tune func(config *pgx.ConnConfig)) Options {
	o.tune = tune
	return o
}

// HoldStarts makes claims wait as if others were in progress. release starts the waiting claims as
// one batch, and returns once none waits.
func (s *Store) HoldStarts() (release func(ctx context.Context)) {
	s.starts.mutex.Lock()
	defer s.starts.mutex.Unlock()
	s.starts.busy = true
	return engine{s}.startWaiting
}

// StartsWaiting returns the number of claims that wait to be started.
func (s *Store) StartsWaiting() int {
	s.starts.mutex.Lock()
	defer s.starts.mutex.Unlock()
	return len(s.starts.waiting)
}

// The statements of a look for queued and running runs, and the planner settings of connections.
var (
	Planning         = planning
	WaitingStatement = waitingStatement
	BusyStatement    = busyStatement
)

// LockDrops takes the lock for dropping history, until the session has been idle for a time.
var LockDrops = lockDrops

// DropPatience is how long a statement that drops partitions waits for locks.
const DropPatience = dropPatience

// AcceptStatements returns the accepting statements, by their optional parts.
func AcceptStatements() map[string]string {
	all := map[string]string{}
	for parts, statement := range acceptStatements {
		all[fmt.Sprintf("%+v", parts)] = statement
	}
	return all
}
