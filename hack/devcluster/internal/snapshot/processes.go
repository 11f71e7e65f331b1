// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/agentplatform/agentplatform/hack/devcluster/internal/layout"
)

// Process is a process of the cluster.
type Process struct {
	PID  int
	Args []string // as it was called; at least one
}

// Processes returns the processes of the cluster in dir: processes with an executable in the state folder, and processes in the
// containers of its pods.
func Processes(dir layout.Dir) []Process {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []Process
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		place := filepath.Join("/proc", entry.Name())
		cmdline, _ := os.ReadFile(filepath.Join(place, "cmdline")) // empty if the process has exited
		cgroup, _ := os.ReadFile(filepath.Join(place, "cgroup"))
		exe, _ := os.Readlink(filepath.Join(place, "exe"))
		args := strings.Split(strings.TrimRight(string(cmdline), "\x00"), "\x00")
		if args[0] == "" { // a zombie, or a thread of the kernel
			continue
		}
		if belongs(dir, args, exe, string(cgroup)) {
			found = append(found, Process{PID: pid, Args: args})
		}
	}
	return found
}

func belongs(dir layout.Dir, args []string, exe, cgroup string) bool {
	return isBelow(args[0], string(dir)) || isBelow(exe, string(dir)) || strings.Contains(cgroup, "/kubepods")
}
