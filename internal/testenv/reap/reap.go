// SPDX-License-Identifier: Apache-2.0

// Package reap ends all processes that a test binary starts, even if the binary is killed by a
// timeout or SIGKILL. A shell with its own session reads from a pipe. When the binary ends, the
// pipe closes, and the shell ends the registered processes and removes the folder.
//
// The folder contains a file in pids/ with the PID of each process.
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

// script waits for the end of its standard input, ends the processes, waits for them (at most 10 s,
// because of zombies), and removes the folder, $1. A line of a PID file is "<signal> <pid>".
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

// shared is the state of the test binary. It keeps the pipe reachable and so open.
var shared = struct {
	once sync.Once
	dir  string
	pipe *os.File
	err  error
}{}

// Dir returns a folder that is removed after the test binary has ended. Other users can enter it.
func Dir() (string, error) {
	shared.once.Do(func() { shared.dir, shared.err = startReaper() })
	return shared.dir, shared.err
}

// longestBase limits the folder's path, because paths of sockets have at most 107 bytes.
const longestBase = 32

// baseFolder returns the folder for temporary files, or /tmp if its path is too long for sockets or other
// users cannot enter it.
func baseFolder(temporary string) string {
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

func startReaper() (dir string, err error) {
	dir, err = os.MkdirTemp(baseFolder(os.TempDir()), "agentplatform-test-")
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
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin"} // a test may have changed its PATH
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("starting the reaper: %w", err)
	}
	shared.pipe = write
	return dir, nil
}

// PIDFile returns the file for a process that must end with the test binary, as "<signal> <pid>\n".
// A process that writes its own file before exec cannot be missed.
func PIDFile(name string) (string, error) {
	dir, err := Dir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "pids", name), nil
}

// Process registers a started process. signal is a name for kill(1), such as KILL.
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
