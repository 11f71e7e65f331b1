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
	// pollEvery is how often a condition of this process is looked at, askEvery how
	// often one of the database.
	pollEvery, askEvery = time.Millisecond, 50 * time.Millisecond
	// firstPort lies below the ports that systems give to outgoing connections:
	// none of these takes a process's port while it is down.
	firstPort, ports = 20000, 10000
	// saidLast is how many bytes of a process's log a failed test shows.
	saidLast = 4000
)

// process is a command that dies and comes back.
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

// processes are all of this binary.
var processes atomic.Int64

// newProcess describes one that ends with the test at the latest; args begin with its
// binary.
func newProcess(t *testing.T, name string, args ...string) *process {
	t.Helper()
	p := &process{name: name, args: args, log: filepath.Join(t.TempDir(), name+".log"), pidFile: fmt.Sprintf("%s-%d", name, processes.Add(1))}
	t.Cleanup(func() {
		p.sigkill()
		if t.Failed() {
			log, _ := os.ReadFile(p.log) // there is nothing to show then
			t.Logf("%s said at last:\n%s", p.name, log[max(0, len(log)-saidLast):])
		}
	})
	return p
}

// launch begins a life of the process.
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

// await returns once the process is what it is started for; it must not end before.
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

// get asks the process's HTTP port for what has no body to speak of, by a connection of
// its own.
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

// ended says how the process ended that should go on, or nil.
func (p *process) ended() error {
	select {
	case how := <-p.exited:
		p.exited <- how // others wait for it
		return fmt.Errorf("%s ended: %w", p.name, cmp.Or(how, errors.New("in order")))
	default:
		return nil
	}
}

// sigkill ends the process as a crash does and returns once it is gone; one that does
// not run is left alone.
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
		err = nil // it was told before
	}
	err = errors.Join(err, <-p.exited)
	p.forget()
	if err != nil {
		return fmt.Errorf("stopping %s: %w", p.name, err)
	}
	return nil
}

// forget keeps others from ending a later process of the same number.
func (p *process) forget() {
	p.cmd = nil
	if file, err := reap.PIDFile(p.pidFile); err == nil {
		_ = os.Remove(file)
	}
}

// nextPort keeps the processes of this binary off each other's ports.
var nextPort atomic.Int64

func init() { nextPort.Store(int64(os.Getpid())) }

// freePort is a loopback port that nobody listens at.
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

// poll asks until the answer is yes, an error or the end of ctx.
func poll(ctx context.Context, every time.Duration, done func() (bool, error)) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		ok, err := done()
		switch {
		case err != nil && ctx.Err() != nil:
			return context.Cause(ctx) // which may have broken off the asking
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
