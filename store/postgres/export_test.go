// SPDX-License-Identifier: Apache-2.0

package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Tuned are the options with a change of how a test connects.
func (o Options) Tuned(tune func(config *pgx.ConnConfig)) Options {
	o.tune = tune
	return o
}

// HoldStarts lets claims wait as if others were being carried out. Release carries out
// together those that wait by then, and returns once nothing waits.
func (s *Store) HoldStarts() (release func(ctx context.Context)) {
	s.starts.mutex.Lock()
	defer s.starts.mutex.Unlock()
	s.starts.busy = true
	return engine{s}.startWaiting
}

// StartsWaiting is how many claims wait to be carried out.
func (s *Store) StartsWaiting() int {
	s.starts.mutex.Lock()
	defer s.starts.mutex.Unlock()
	return len(s.starts.waiting)
}

// The statements of a look that read what is queued and what is under way, and what the
// connections say of how to plan them.
var (
	Planning         = planning
	WaitingStatement = waitingStatement
	BusyStatement    = busyStatement
)

// LockDrops takes the lock of those who drop history, until the session has been idle for so long.
var LockDrops = lockDrops

// DropPatience is how long a statement that drops partitions waits.
const DropPatience = dropPatience

// AcceptStatements are the statements that accept, by what the events of a batch have some of.
func AcceptStatements() map[string]string {
	all := map[string]string{}
	for parts, statement := range acceptStatements {
		all[fmt.Sprintf("%+v", parts)] = statement
	}
	return all
}
