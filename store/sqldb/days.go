// SPDX-License-Identifier: Apache-2.0

package sqldb

import (
	"cmp"
	"encoding/binary"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// LeastID returns the lowest ID of a time.
func LeastID(us int64) (id uuid.UUID) {
	binary.BigEndian.PutUint64(id[:8], uint64(max(us, 0)/1000)<<16)
	return id
}

// ProjectDay is a day of a project's history.
type ProjectDay struct {
	Project uuid.UUID
	Day     int64
}

// CompareDays orders days by project.
func CompareDays(a, b ProjectDay) int {
	return cmp.Or(CompareIDs(a.Project, b.Project), cmp.Compare(a.Day, b.Day))
}

// DayOf returns the day of the time in an ID, in days since 1970.
func DayOf(id uuid.UUID) int64 {
	return store.TimeOf(id).UnixMilli() / Day.Milliseconds()
}

// DayStart returns the start of a day, in microseconds.
func DayStart(of int64) int64 { return of * Day.Microseconds() }

// FirstID returns the lowest ID of a day.
func FirstID(of int64) (id uuid.UUID) {
	binary.BigEndian.PutUint64(id[:8], uint64(of*Day.Milliseconds())<<16) //nolint:gosec // days since 1970
	return id
}

// DayStartTime returns the start of a day, zero for day 0.
func DayStartTime(day int64) time.Time {
	if day == 0 {
		return time.Time{}
	}
	return time.UnixMicro(DayStart(day)).UTC()
}

// Day is the length of a day.
const Day = 24 * time.Hour

// DayMicros is a day in microseconds, for statements.
var DayMicros = strconv.FormatInt(Day.Microseconds(), 10)
