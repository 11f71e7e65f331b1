// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package script

import (
	"fmt"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// allowedCalls are the system calls that Go's runtime needs after its start, and pipes. All others fail with EPERM: a script
// that took over its process could open no file and no socket, start no program, and look into no other process.
var allowedCalls = []uint32{
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_CLOSE, unix.SYS_FSTAT, unix.SYS_LSEEK, unix.SYS_PREAD64,
	unix.SYS_MUNMAP, unix.SYS_MADVISE, unix.SYS_MINCORE, unix.SYS_BRK, unix.SYS_MEMBARRIER,
	unix.SYS_FUTEX, unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_RSEQ, unix.SYS_SET_ROBUST_LIST, unix.SYS_SET_TID_ADDRESS,
	unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_GETTIMEOFDAY, unix.SYS_SETITIMER,
	unix.SYS_TIMER_CREATE, unix.SYS_TIMER_SETTIME, unix.SYS_TIMER_DELETE,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_RESTART_SYSCALL,
	unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_GETRANDOM, unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
	unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2, unix.SYS_PIPE2,
}

// Offsets in struct seccomp_data. An argument has 8 bytes, and its lower half comes first.
const (
	offsetNumber   = 0
	offsetArch     = 4
	offsetArgument = 16
)

const (
	denied = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	// unknown makes libc fall back to clone, whose flags a filter can read.
	unknown = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
)

// load reads a word of the system call.
func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

// jump skips a number of instructions if a comparison holds, and another number if not.
func jump(comparison uint16, value uint32, ifTrue, ifFalse uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | comparison, Jt: ifTrue, Jf: ifFalse, K: value}
}

func decide(action uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
}

// ruleFor decides about a system call by one of its arguments.
func ruleFor(call, argument uint32, comparison uint16, value, ifTrue, ifFalse uint32) []unix.SockFilter {
	return []unix.SockFilter{
		jump(unix.BPF_JEQ, call, 0, 4), load(offsetArgument + 8*argument), jump(comparison, value, 0, 1), decide(ifTrue), decide(ifFalse),
	}
}

// fcntlCommands are the commands of fcntl that Go's runtime needs.
var fcntlCommands = []uint32{unix.F_GETFD, unix.F_GETFL, unix.F_SETFL}

// rulesForFcntl allows some commands of fcntl. The command is the second argument, and the kernel reads its lower half.
func rulesForFcntl() []unix.SockFilter {
	length := uint8(2 * len(fcntlCommands)) //nolint:gosec // Some commands.
	rules := []unix.SockFilter{jump(unix.BPF_JEQ, unix.SYS_FCNTL, 0, length+2), load(offsetArgument + 8)}
	for _, command := range fcntlCommands {
		rules = append(rules, jump(unix.BPF_JEQ, command, 0, 1), decide(unix.SECCOMP_RET_ALLOW))
	}
	return append(rules, decide(denied))
}

// filterProgram returns the filter for the process with an ID.
func filterProgram(pid uint32) []unix.SockFilter {
	program := []unix.SockFilter{load(offsetArch), jump(unix.BPF_JEQ, auditArch, 1, 0), decide(denied), load(offsetNumber)}
	for _, call := range slices.Concat(allowedCalls, archCalls) {
		program = append(program, jump(unix.BPF_JEQ, call, 0, 1), decide(unix.SECCOMP_RET_ALLOW))
	}
	program = append(program, jump(unix.BPF_JEQ, unix.SYS_CLONE3, 0, 1), decide(unknown))
	return slices.Concat(program,
		// Threads, but no processes.
		ruleFor(unix.SYS_CLONE, 0, unix.BPF_JSET, unix.CLONE_THREAD, unix.SECCOMP_RET_ALLOW, denied),
		// No new code.
		ruleFor(unix.SYS_MMAP, 2, unix.BPF_JSET, unix.PROT_EXEC, denied, unix.SECCOMP_RET_ALLOW),
		ruleFor(unix.SYS_MPROTECT, 2, unix.BPF_JSET, unix.PROT_EXEC, denied, unix.SECCOMP_RET_ALLOW),
		// The runtime interrupts its own threads by signals.
		ruleFor(unix.SYS_TGKILL, 0, unix.BPF_JEQ, pid, unix.SECCOMP_RET_ALLOW, denied),
		// The runtime reads and sets the mode of pipes. Other commands could make the kernel send signals to the parent
		// (F_SETOWN with F_SETSIG).
		rulesForFcntl(),
		[]unix.SockFilter{decide(denied)},
	)
}

// filterCalls restricts all threads of the process to the system calls that it needs. The calling thread has set no_new_privs,
// and the kernel sets it for the other threads too.
func filterCalls() error {
	program := filterProgram(uint32(os.Getpid()))                          //nolint:gosec // A process ID is positive.
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]} //nolint:gosec // The program has some hundred instructions.
	//nolint:gosec // The kernel reads the program during the call.
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return fmt.Errorf("filtering system calls: %w", errno)
	}
	return nil
}

// canFilterCalls reports whether the system lets a process filter its system calls.
func canFilterCalls() bool {
	action := uint32(unix.SECCOMP_RET_ERRNO)
	//nolint:gosec // The kernel reads the action during the call.
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	return errno == 0
}
