// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package script

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// probeSandbox confines this process as a child, tries forbidden system calls, and prints the errors. With oneThread it sets
// no_new_privs as a program with C code.
func probeSandbox(parent int, oneThread bool) {
	set := setNoNewPrivileges
	if oneThread {
		set = func() syscall.Errno { return syscall.ENOTSUP }
	}
	statuses := openStatuses()
	if err := confineThreads(DefaultMemory, set); err != nil {
		panic(err)
	}
	for _, file := range statuses {
		text := make([]byte, 8<<10)
		if n, err := file.ReadAt(text, 0); !strings.Contains(string(text[:n]), "NoNewPrivs:\t1\n") {
			panic(fmt.Sprintf("a thread can gain privileges: %v %s", err, text[:n]))
		}
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
		"owner of pipe":  errno(unix.SYS_FCNTL, 1, unix.F_SETOWN, uintptr(parent)),
		"signal of pipe": errno(unix.SYS_FCNTL, 1, unix.F_SETSIG, uintptr(unix.SIGKILL)),
		"size of pipe":   errno(unix.SYS_FCNTL, 1, unix.F_SETPIPE_SZ, 4096),
	}
	// The runtime still reads and sets the mode of pipes.
	if _, _, problem := unix.RawSyscall(unix.SYS_FCNTL, 1, unix.F_GETFL, 0); problem != 0 {
		found["mode of pipe"] = problem.Error()
	}
	// The runtime still starts threads, allocates memory and collects it, and finds time zones.
	var threads sync.WaitGroup
	for range 8 { // With C code, each thread reserves 8 MiB of the limit for its stack.
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

// openStatuses opens the statuses of some threads. They can be read later, also by a process that can open no files.
func openStatuses() (files []*os.File) {
	opened := make(chan *os.File)
	for range 3 {
		go func() {
			runtime.LockOSThread()
			file, err := os.Open(fmt.Sprintf("/proc/self/task/%d/status", unix.Gettid()))
			if err != nil {
				panic(err)
			}
			opened <- file
			select {} // The thread stays.
		}()
	}
	for range 3 {
		files = append(files, <-opened)
	}
	return files
}

// A child can do nothing to its machine and to its parent, although it has the same user.
func TestSandbox_DeniesSystemCalls(t *testing.T) {
	t.Parallel()
	if !canFilterCalls() {
		t.Skip("this system cannot filter system calls")
	}
	for _, mode := range []string{"probe", "probe-thread"} {
		out, err := exec.CommandContext(t.Context(), os.Args[0], mode, strconv.Itoa(os.Getpid())).Output()
		require.NoError(t, err)
		var found map[string]string
		require.NoError(t, json.Unmarshal(out, &found), string(out))
		require.NotContains(t, found, "time zone")
		require.Len(t, found, 16)
		for name, problem := range found {
			t.Run(mode+" "+name, func(t *testing.T) { require.Equal(t, syscall.EPERM.Error(), problem) })
		}
	}
}

// The error of a child that cannot be confined tells why, and is no error of the script.
func TestPool_ReportsUnconfinedChild(t *testing.T) {
	t.Parallel()
	pool := newPool(t, Options{Command: []string{os.Args[0], "unconfined"}})
	_, err := pool.Run(t.Context(), callOn(body("return 1"), ""), nil)
	require.EqualError(t, err, "the process of a script could not be confined: setting limit 2: operation not permitted")
	require.Empty(t, pool.pids())
}

// A process with a pool cannot be traced by other processes of its user.
func TestNewPool_HidesProcess(t *testing.T) {
	t.Parallel()
	newPool(t, Options{})
	dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	require.NoError(t, err)
	require.Zero(t, dumpable)
}
