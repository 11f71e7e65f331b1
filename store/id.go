// SPDX-License-Identifier: Apache-2.0

package store

import (
	"encoding/binary"
	"time"

	"github.com/google/uuid"
)

const (
	// tailStart is where the part of an id begins that Stamp leaves alone.
	tailStart = 8
	// versionBits are the version 7 in the first half of an id.
	versionBits = 7 << 12
	// stampsPerMicrosecond and stampsPerMillisecond are how many moments ids tell
	// apart.
	stampsPerMicrosecond = 4
	stampsPerMillisecond = 1000 * stampsPerMicrosecond
)

// Tail is what Stamp leaves of an id: who makes an id that the store will stamp
// knows the stored one by it.
type Tail [16 - tailStart]byte

// TailOf returns the tail of an id.
func TailOf(id uuid.UUID) Tail { return Tail(id[tailStart:]) }

// Stamp makes an id of version 7 of a moment, in microseconds, with the random part of
// another id. The store stamps the ids of what it is given by the database's clock,
// for history is kept, and claimed, by the time in ids. n orders those of one moment:
// each is a quarter of a microsecond after the one before.
func Stamp(id uuid.UUID, us int64, n int) uuid.UUID {
	at := us*stampsPerMicrosecond + int64(n)
	first := at/stampsPerMillisecond<<16 | versionBits | at%stampsPerMillisecond
	binary.BigEndian.PutUint64(id[:tailStart], uint64(first)) //nolint:gosec // no moment before 1970
	return id
}

// TimeOf is the moment in an id of version 7, in milliseconds.
func TimeOf(id uuid.UUID) time.Time {
	return time.UnixMilli(int64(binary.BigEndian.Uint64(id[:tailStart]) >> 16)).UTC()
}
