// SPDX-License-Identifier: Apache-2.0

// Package reap makes sure that nothing a test binary starts outlives it, however
// it ends: by itself, by a timeout or by SIGKILL. A shell of its own session
// holds the reading end of a pipe; when the binary is gone the pipe closes, and
// the shell ends the processes that were registered and removes the folder.
//
// The folder holds, for each process, a file in pids/ with its pid.
package reap

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// script waits for the end of its standard input, then ends the processes
// and waits for them (at most 10 s; a zombie that nobody collects must not hold
// it up), and removes the folder, $1. A line of a pid file is "<signal> <pid>".
const script = `
while read -r _; do :; done
for file in "$1"/pids/*; do
  [ -f "$file" ] || continue
  read -r signal pid <"$file"
  kill -"$signal" "$pid" 2>/dev/null
  n=0
  while [ "$n" -lt 200 ] && kill -0 "$pid" 2>/dev/null; do
    case "$(cut -d' ' -f3 "/proc/$pid/stat" 2>/dev/null)" in Z) break ;; esac
    sleep 0.05
    n=$((n + 1))
  done
done
rm -rf "$1"
`

// shared is the state of the test binary. Keeping the pipe reachable keeps it
// open.
var shared = struct {
	once sync.Once
	dir  string
	pipe *os.File
	err  error
}{}

// Dir is a folder that is removed after the test binary has ended. Other users
// may enter it.
func Dir() (string, error) {
	shared.once.Do(func() { shared.dir, shared.err = start() })
	return shared.dir, shared.err
}

// longestBase is how long a path may be of which paths of sockets are made, which have
// 107 bytes at most.
const longestBase = 32

// base is the folder for temporary files, or /tmp where that one is too deep for sockets
// or lets no other user in.
func base(temporary string) string {
	if len(temporary) > longestBase {
		return "/tmp"
	}
	for dir := filepath.Clean(temporary); ; dir = filepath.Dir(dir) {
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm()&0o001 == 0 {
			return "/tmp"
		}
		if dir == filepath.Dir(dir) {
			return temporary
		}
	}
}

func start() (dir string, err error) {
	dir, err = os.MkdirTemp(base(os.TempDir()), "agentplatform-test-")
	if err != nil {
		return "", fmt.Errorf("making the folder of the test binary: %w", err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", fmt.Errorf("opening the folder of the test binary: %w", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "pids"), 0o755); err != nil {
		return "", fmt.Errorf("making the folder of pids: %w", err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		return "", fmt.Errorf("making the pipe to the reaper: %w", err)
	}
	defer func() { _ = read.Close() }()
	cmd := exec.Command("/bin/sh", "-c", script, "agentplatform-test-reaper", dir)
	cmd.Stdin = read
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin"} // a test may have changed its own
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("starting the reaper: %w", err)
	}
	shared.pipe = write
	return dir, nil
}

// PIDFile is the file in which a process that is to be ended with the test
// binary has to stand, as "<signal> <pid>\n". A process that writes its own file
// (before exec) cannot slip through.
func PIDFile(name string) (string, error) {
	dir, err := Dir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "pids", name), nil
}

// Process registers a process that has just been started. The signal is a name
// that kill(1) knows, such as KILL.
func Process(name string, process *os.Process, signal string) error {
	file, err := PIDFile(name)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte(signal+" "+strconv.Itoa(process.Pid)+"\n"), 0o644); err != nil {
		return fmt.Errorf("registering process %q: %w", name, err)
	}
	return nil
}
