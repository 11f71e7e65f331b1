// SPDX-License-Identifier: Apache-2.0

package script

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
)

const (
	// parentMemory is the part of a container's memory for the process with the pool, childMemory what a child needs beyond
	// the limit of its script, in bytes.
	parentMemory = 192 << 20
	childMemory  = 32 << 20
)

// memoryLimit returns the memory limit of this process's container in bytes, the maximum without one.
func memoryLimit() uint64 {
	text, err := os.ReadFile("/sys/fs/cgroup/memory.max")
	if err != nil {
		return math.MaxUint64
	}
	limit, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return math.MaxUint64 // "max"
	}
	return limit
}

// privateMemory returns the memory in bytes that a process shares with no other process, the maximum if it is unknown.
func privateMemory(pid int) uint64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return math.MaxUint64
	}
	var size, resident, shared uint64
	if _, err := fmt.Sscan(string(text), &size, &resident, &shared); err != nil || shared > resident {
		return math.MaxUint64
	}
	return (resident - shared) * uint64(os.Getpagesize()) //nolint:gosec // A page size is positive.
}
