// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package script

import (
	"encoding/json"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// probeSandbox confines this process as a child, tries what a script must not do, and prints the errors.
func probeSandbox(parent int) {
	if err := confine(DefaultMemory); err != nil {
		panic(err)
	}
	errno := func(call uintptr, args ...uintptr) string {
		args = append(args, 0, 0, 0, 0, 0, 0)
		_, _, errno := unix.RawSyscall6(call, args[0], args[1], args[2], args[3], args[4], args[5])
		return errno.Error()
	}
	path := []byte("/proc/self/status\x00")
	name := uintptr(unsafe.Pointer(&path[0]))
	here := unix.AT_FDCWD
	found := map[string]string{
		"socket":         errno(unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM),
		"connect":        errno(unix.SYS_CONNECT, 0),
		"execve":         errno(unix.SYS_EXECVE, name),
		"open to read":   errno(unix.SYS_OPENAT, uintptr(here), name, unix.O_RDONLY),
		"open to write":  errno(unix.SYS_OPENAT, uintptr(here), name, unix.O_WRONLY),
		"ptrace":         errno(unix.SYS_PTRACE, unix.PTRACE_ATTACH, uintptr(parent)),
		"read memory":    errno(unix.SYS_PROCESS_VM_READV, uintptr(parent)),
		"write memory":   errno(unix.SYS_PROCESS_VM_WRITEV, uintptr(parent)),
		"kill":           errno(unix.SYS_KILL, uintptr(parent), 0),
		"signal threads": errno(unix.SYS_TGKILL, uintptr(parent), uintptr(parent), 0),
		"fork":           errno(unix.SYS_CLONE, uintptr(unix.SIGCHLD)),
		"new code":       errno(unix.SYS_MMAP, 0, 4096, unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON),
		"limits":         errno(unix.SYS_PRLIMIT64, uintptr(parent)),
	}
	// The runtime still starts threads, allocates memory and collects it, and finds time zones.
	var threads sync.WaitGroup
	for range 20 {
		threads.Go(func() {
			runtime.LockOSThread()
			_ = make([]byte, 1<<20)
		})
	}
	threads.Wait()
	runtime.GC()
	if _, err := time.LoadLocation("Europe/Berlin"); err != nil {
		found["time zone"] = err.Error()
	}
	_ = json.NewEncoder(os.Stdout).Encode(found)
}

// A child can do nothing to its machine and to its parent, although it has the same user.
func TestSandbox_DeniesSystemCalls(t *testing.T) {
	t.Parallel()
	if !canFilterCalls() {
		t.Skip("this system cannot filter system calls")
	}
	out, err := exec.CommandContext(t.Context(), os.Args[0], "probe", strconv.Itoa(os.Getpid())).Output()
	require.NoError(t, err)
	var found map[string]string
	require.NoError(t, json.Unmarshal(out, &found), string(out))
	require.NotContains(t, found, "time zone")
	require.Len(t, found, 13)
	for name, problem := range found {
		t.Run(name, func(t *testing.T) { require.Equal(t, syscall.EPERM.Error(), problem) })
	}
}

// A process with a pool cannot be traced by other processes of its user.
func TestNewPool_HidesProcess(t *testing.T) {
	t.Parallel()
	newPool(t, Options{})
	dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	require.NoError(t, err)
	require.Zero(t, dumpable)
}
