// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestClock_NeverGoesBack(t *testing.T) {
	t.Parallel()
	noon := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	var (
		wall    = noon
		running time.Duration
	)
	c := &clock{read: func() (time.Time, time.Duration) { return wall, running }}
	for _, step := range []struct {
		what          string
		passed, moved time.Duration // of the process, and of the machine's clock
		told          time.Duration // since noon
	}{
		{"it starts at the machine's time", 0, 0, 0},
		{"and follows it", time.Second, time.Second, time.Second},
		{"set back by an hour, it stays", 0, -time.Hour, time.Second},
		{"and runs at half speed", 10 * time.Second, 10 * time.Second, 6 * time.Second},
		{"on every call", 2 * time.Nanosecond, 2 * time.Nanosecond, 6*time.Second + time.Nanosecond},
		{"until the machine's clock has caught up", 3 * time.Hour, 3 * time.Hour, 2*time.Hour + 11*time.Second + 2*time.Nanosecond},
		{"set ahead, it follows", 0, 5 * time.Minute, 2*time.Hour + 5*time.Minute + 11*time.Second + 2*time.Nanosecond},
	} {
		running += step.passed
		wall = wall.Add(step.moved)
		require.Equal(t, step.told, c.now().Sub(noon), step.what)
	}
}
