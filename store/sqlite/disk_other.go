// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package sqlite

import "math"

// freeBytes returns the largest number: it does not know the disks of this system.
func freeBytes(string) (int64, error) { return math.MaxInt64, nil }
