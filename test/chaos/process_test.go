// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/testenv/reap"
)

const (
	// readyTimeout is how long a process may take to start.
	readyTimeout = time.Minute
	// pollEvery is the polling interval for a condition of this process, and askEvery for a condition of the database.
	pollEvery, askEvery = time.Millisecond, 50 * time.Millisecond
	// firstPort is below the system's range of ephemeral ports, so that no outgoing connection takes the port of a stopped
	// process.
	firstPort, ports = 20000, 10000
	// saidLast is the number of log bytes of a process that a failed test shows.
	saidLast = 4000
)

// process is a command that the test can kill and restart.
type process struct {
	name, log string
	// pidFile is the name of its file of the reaper's.
	pidFile string
	args    []string
	as      *syscall.Credential // nil: as the test
	dir     string
	// more are variables of its environment beside the test's.
	more []string
	// port is the address of one of its HTTP ports.
	port string

	cmd    *exec.Cmd
	exited chan error
}

// processes counts the processes of this test binary.
var processes atomic.Int64

// newProcess returns a process that ends with the test at the latest. args start with its binary.
func newProcess(t *testing.T, name string, args ...string) *process {
	t.Helper()
	p := &process{name: name, args: args, log: filepath.Join(t.TempDir(), name+".log"), pidFile: fmt.Sprintf("%s-%d", name, processes.Add(1))}
	t.Cleanup(func() {
		p.sigkill()
		if t.Failed() {
			log, _ := os.ReadFile(p.log) // without a log there is nothing to show
			t.Logf("%s said at last:\n%s", p.name, log[max(0, len(log)-saidLast):])
		}
	})
	return p
}

// launch starts the process.
func (p *process) launch() error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening the log of %s: %w", p.name, err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(p.args[0], p.args[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.Env = log, log, p.dir, append(os.Environ(), p.more...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.as}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", p.name, err)
	}
	exited := make(chan error, 1)
	p.cmd, p.exited = cmd, exited
	go func() { exited <- cmd.Wait() }()
	return reap.Process(p.pidFile, cmd.Process, "KILL")
}

// await returns when ready reports true. It fails if the process exits before.
func (p *process) await(ctx context.Context, ready func(ctx context.Context) bool) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	err := poll(ctx, 10*pollEvery, func() (bool, error) {
		if err := p.ended(); err != nil {
			return false, err
		}
		return ready(ctx), nil
	})
	if err != nil {
		return fmt.Errorf("waiting until %s is ready: %w", p.name, err)
	}
	return nil
}

// get sends a request to the process's HTTP port on a new connection and discards the body.
func (p *process) get(ctx context.Context, path string) (status int, header http.Header, err error) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.port+path, nil)
	if err != nil {
		return 0, nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	return resp.StatusCode, resp.Header, resp.Body.Close()
}

// ended returns an error if the process has exited, or nil if it is running.
func (p *process) ended() error {
	select {
	case how := <-p.exited:
		p.exited <- how // keeps the result for other receivers
		return fmt.Errorf("%s ended: %w", p.name, cmp.Or(how, errors.New("in order")))
	default:
		return nil
	}
}

// sigkill kills the process as a crash does and returns once it is gone. It ignores a process that is not running.
func (p *process) sigkill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill() // fails when it has ended already
	slog.Debug("a process was killed", "process", p.name, "how", <-p.exited)
	p.forget()
}

// stop ends the process in order, and returns how it ended.
func (p *process) stop() error {
	if p.cmd == nil {
		return nil
	}
	err := p.cmd.Process.Signal(syscall.SIGTERM)
	if errors.Is(err, os.ErrProcessDone) {
		err = nil // the process has exited already
	}
	err = errors.Join(err, <-p.exited)
	p.forget()
	if err != nil {
		return fmt.Errorf("stopping %s: %w", p.name, err)
	}
	return nil
}

// forget clears the process, so that no later signal reaches another process with the same ID.
func (p *process) forget() {
	p.cmd = nil
	if file, err := reap.PIDFile(p.pidFile); err == nil {
		_ = os.Remove(file)
	}
}

// nextPort keeps the processes of this binary off each other's ports.
var nextPort atomic.Int64

func init() { nextPort.Store(int64(os.Getpid())) }

// freePort returns a loopback port without a listener.
func freePort(t *testing.T) int {
	t.Helper()
	for range ports {
		port := firstPort + int(nextPort.Add(1)%ports)
		if listener, err := net.Listen("tcp", loopback(port)); err == nil {
			require.NoError(t, listener.Close())
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// poll calls done at intervals until it returns true or an error, or until ctx ends.
func poll(ctx context.Context, every time.Duration, done func() (bool, error)) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		ok, err := done()
		switch {
		case err != nil && ctx.Err() != nil:
			return context.Cause(ctx) // the end of ctx may have interrupted the check
		case ok || err != nil:
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}
