// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"sync"
	"time"
)

// clock tells the database's time, which never runs backwards while the process lives:
// leases, keys and the order of ids hang on it. Where the machine's clock is set back it
// runs at half speed until that has caught up, so that a lease lasts at most twice as
// long as it should. Where that is set ahead it follows at once.
type clock struct {
	// read returns the machine's time, and how long the process has run, which no
	// setting of the clock changes.
	read func() (wall time.Time, running time.Duration)

	mutex sync.Mutex
	told  time.Time
	at    time.Duration // when it was told
}

var started = time.Now()

// machineClock is the clock of all databases of the process.
var machineClock = &clock{read: func() (time.Time, time.Duration) {
	now := time.Now()
	return now.Round(0), now.Sub(started)
}}

func (c *clock) now() time.Time {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	wall, running := c.read()
	slow := c.told.Add((running - c.at) / 2)
	if wall.After(slow) {
		slow = wall
	}
	c.told, c.at = slow, running
	return c.told
}
