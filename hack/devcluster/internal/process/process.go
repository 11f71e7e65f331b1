// SPDX-License-Identifier: Apache-2.0

// Package process starts processes that outlive their starter, finds them
// again and ends them.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	killTimeout = 20 * time.Second // for the kernel to end a killed process
	pollEvery   = 50 * time.Millisecond
)

// Spec is a process to start.
type Spec struct {
	Path string   // of the executable; also its argv[0]
	Args []string // after argv[0]
	Env  []string // all of its environment
	Log  string   // file that takes its output, appended to
	PID  string   // file that remembers it
}

// Handle is a process that was started here or found by its record.
type Handle struct {
	PID   int
	start string // start time in the kernel, which distinguishes the process from a later one with the same ID
}

// Start starts the process in a new session, so that the process survives the end of the terminal and of this process.
func Start(spec Spec) (*Handle, error) {
	for _, file := range []string{spec.Log, spec.PID} {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return nil, fmt.Errorf("making the folder of %s: %w", file, err)
		}
	}
	log, err := os.OpenFile(spec.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("opening the log: %w", err)
	}
	defer log.Close()
	cmd := exec.Command(spec.Path, spec.Args...)
	cmd.Env, cmd.Dir = spec.Env, "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", spec.Path, err)
	}
	go func() { _ = cmd.Wait() }() // reaps the process if it exits while this process lives; its log contains the reason
	handle := &Handle{PID: cmd.Process.Pid}
	if handle.start, err = startTime(handle.PID); err != nil {
		return nil, fmt.Errorf("%s ended at once; see %s", spec.Path, spec.Log)
	}
	record := fmt.Sprintf("%d %s\n", handle.PID, handle.start)
	if err := os.WriteFile(spec.PID, []byte(record), 0o644); err != nil {
		return nil, fmt.Errorf("remembering process %d: %w", handle.PID, err)
	}
	return handle, nil
}

// Find returns the process that record remembers, nil if it does not live.
func Find(record string) (*Handle, error) {
	content, err := os.ReadFile(record)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the record of a process: %w", err)
	}
	id, start, _ := strings.Cut(strings.TrimSpace(string(content)), " ")
	pid, err := strconv.Atoi(id)
	if err != nil {
		return nil, fmt.Errorf("reading the record %s: %w", record, err)
	}
	handle := &Handle{PID: pid, start: start}
	if !handle.Alive() {
		return nil, nil
	}
	return handle, nil
}

// Alive reports whether the process is running. A zombie is not alive.
func (h *Handle) Alive() bool {
	start, err := startTime(h.PID)
	return err == nil && start == h.start
}

// Stop asks the process to end and kills it if it has not after grace.
func (h *Handle) Stop(ctx context.Context, grace time.Duration) error {
	asked, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if err := h.sendSignal(syscall.SIGTERM); err != nil {
		return err
	}
	if h.waitGone(asked) == nil {
		return nil
	}
	if err := h.sendSignal(syscall.SIGKILL); err != nil {
		return err
	}
	after, cancelAfter := context.WithTimeout(context.WithoutCancel(ctx), killTimeout)
	defer cancelAfter()
	return h.waitGone(after)
}

func (h *Handle) sendSignal(sig syscall.Signal) error {
	if !h.Alive() {
		return nil
	}
	if err := syscall.Kill(h.PID, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("sending %s to process %d: %w", sig, h.PID, err)
	}
	return nil
}

func (h *Handle) waitGone(ctx context.Context) error {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for h.Alive() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for process %d to end: %w", h.PID, ctx.Err())
		case <-ticker.C:
		}
	}
	return nil
}

// startTime returns field 22 of /proc/<pid>/stat. It fails for a dead process.
func startTime(pid int) (string, error) {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	_, rest, found := bytes.Cut(content, []byte(") ")) // the name before it may contain any characters except these
	fields := strings.Fields(string(rest))
	if !found || len(fields) < 20 {
		return "", fmt.Errorf("reading /proc/%d/stat: %q", pid, content)
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return "", fmt.Errorf("process %d is dead", pid)
	}
	return fields[19], nil
}
