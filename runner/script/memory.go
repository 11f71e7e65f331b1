// SPDX-License-Identifier: Apache-2.0

package script

import (
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

// childrenFor returns how many children with a memory limit can run in a container, at least one. Kubernetes ends all
// processes of a container that exceeds its limit, so the children together must not.
func childrenFor(container, memory uint64) int {
	if container <= parentMemory {
		return 1
	}
	return int(min(max((container-parentMemory)/(memory+childMemory), 1), defaultMaxChildren))
}

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
