// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"time"

	"github.com/google/uuid"
)

const (
	// tailStart is the index of the first byte of an ID that Stamp does not change.
	tailStart = 8
	// versionBits encode version 7 in the first half of an ID.
	versionBits = 7 << 12
	// stampsPerMicrosecond and stampsPerMillisecond are the resolution of IDs.
	stampsPerMicrosecond = 4
	stampsPerMillisecond = 1000 * stampsPerMicrosecond
)

// Tail is the part of an ID that Stamp does not change. A caller recognizes the stored ID by the
// tail of its own.
type Tail [16 - tailStart]byte

// TailOf returns the tail of an id.
func TailOf(id uuid.UUID) Tail { return Tail(id[tailStart:]) }

// Stamp returns a version 7 ID with a time in microseconds and the random part of another ID. The
// store stamps incoming IDs with the database's clock, because history is partitioned and queues
// are ordered by the time in the ID. n orders IDs of the same time: each is a quarter of a
// microsecond after the previous one.
func Stamp(id uuid.UUID, us int64, n int) uuid.UUID {
	at := us*stampsPerMicrosecond + int64(n)
	first := at/stampsPerMillisecond<<16 | versionBits | at%stampsPerMillisecond
	binary.BigEndian.PutUint64(id[:tailStart], uint64(first)) //nolint:gosec // no times before 1970
	return id
}

// TimeOf returns the time in a version 7 ID, in milliseconds.
func TimeOf(id uuid.UUID) time.Time {
	return time.UnixMilli(int64(binary.BigEndian.Uint64(id[:tailStart]) >> 16)).UTC()
}
