// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"math"
	"syscall"
)

// freeBytes returns the free bytes of the disk that has a folder, or the largest number if the file system has no limit.
func freeBytes(dir string) (int64, error) {
	var disk syscall.Statfs_t
	if err := syscall.Statfs(dir, &disk); err != nil {
		return 0, err
	}
	if disk.Blocks == 0 {
		return math.MaxInt64, nil
	}
	return int64(disk.Bavail) * int64(disk.Bsize), nil //nolint:gosec,unconvert // no disk has 2^63 bytes; 32 bits on some machines
}
