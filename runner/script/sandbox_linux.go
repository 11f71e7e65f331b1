// SPDX-License-Identifier: Apache-2.0

package script

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// confine limits the memory that the process can add to what it has, and takes from it the ability to gain privileges, to
// write files and core dumps, and to use system calls that it does not need. It has no error if the system cannot filter
// system calls: NewPool logs that.
func confine(memory uint64) error { return confineThreads(memory, setNoNewPrivileges) }

// setNoNewPrivileges sets no_new_privs for all threads. A program with C code gets ENOTSUP.
func setNoNewPrivileges() syscall.Errno {
	_, _, errno := syscall.AllThreadsSyscall(syscall.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0)
	return errno
}

func confineThreads(memory uint64, setNoNewPrivileges func() syscall.Errno) error {
	// filterCalls needs the thread that has set no_new_privs.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := rejectPrivileges(setNoNewPrivileges()); err != nil {
		return err
	}
	base, err := dataSize()
	if err != nil {
		return err
	}
	for _, limit := range []struct {
		resource int
		value    uint64
	}{
		{syscall.RLIMIT_DATA, base + memory}, {syscall.RLIMIT_CORE, 0}, {syscall.RLIMIT_FSIZE, 0}, {syscall.RLIMIT_NOFILE, maxDescriptors},
	} {
		rlimit := syscall.Rlimit{Cur: limit.value, Max: limit.value}
		if err = syscall.Setrlimit(limit.resource, &rlimit); err != nil {
			return fmt.Errorf("setting limit %d: %w", limit.resource, err)
		}
	}
	if !canFilterCalls() {
		return nil
	}
	return filterCalls()
}

// rejectPrivileges continues after setNoNewPrivileges. If no_new_privs could not be set for all threads, it sets it for the calling
// thread, and filterCalls extends it to the others.
func rejectPrivileges(problem syscall.Errno) error {
	switch {
	case problem == 0:
		return nil
	case problem != syscall.ENOTSUP:
		return fmt.Errorf("setting no_new_privs: %w", problem)
	case !canFilterCalls():
		return errors.New("setting no_new_privs: a program that is built with CGO_ENABLED=1 needs a kernel with seccomp filters")
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("setting no_new_privs: %w", err)
	}
	return nil
}

// hideProcess keeps other processes of the same user, such as a child, from tracing this process and reading its memory.
func hideProcess() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("hiding the process from its children: %w", err)
	}
	return nil
}

// dataSize returns the writable memory of the process in bytes, as RLIMIT_DATA counts it. Most of it is address space that
// Go's runtime has reserved and does not use.
func dataSize() (uint64, error) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, fmt.Errorf("reading the size of the process: %w", err)
	}
	fields := strings.Fields(string(text))
	if len(fields) < 6 {
		return 0, errors.New("reading the size of the process: /proc/self/statm has too few fields")
	}
	pages, err := strconv.ParseUint(fields[5], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading the size of the process: %w", err)
	}
	return pages * uint64(os.Getpagesize()), nil //nolint:gosec // A page size is positive.
}

// maxDescriptors leaves room for the descriptors that Go's runtime opens later, such as the descriptors of its poller.
const maxDescriptors = 16

// isolate puts a child into a process group of its own, so that it gets no signals of a terminal. The kernel kills it when
// its parent dies.
func isolate(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
