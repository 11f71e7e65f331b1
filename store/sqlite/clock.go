// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"sync"
	"time"
)

// clock is the database's clock. It never goes back while the process lives, because leases, keys
// and the order of IDs depend on it. If the machine's clock is set back, it runs at half speed
// until that clock has caught up, so a lease lasts at most twice as long. If the machine's clock is
// set ahead, it follows at once.
type clock struct {
	// read returns the machine's time, and the running time of the process, which no clock setting
	// changes.
	read func() (wall time.Time, running time.Duration)

	mutex sync.Mutex
	told  time.Time
	at    time.Duration // when it was read
}

var started = time.Now()

// machineClock is the clock of all databases in the process.
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
