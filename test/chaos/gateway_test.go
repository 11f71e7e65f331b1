// SPDX-License-Identifier: Apache-2.0

package chaos

import (
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
	// readyTimeout is how long a gateway may take to start.
	readyTimeout = time.Minute
	// pollEvery is how often a condition of this process is looked at, askEvery how
	// often one of the database.
	pollEvery, askEvery = time.Millisecond, 50 * time.Millisecond
	// firstPort lies below the ports that systems give to outgoing connections:
	// none of these takes a gateway's port while it is down.
	firstPort, ports = 20000, 10000
)

// gateway is a gateway process that dies and comes back at the same address.
type gateway struct {
	name, binary, dsnFile, log, pidFile string
	// addr is of the webhooks' port, internal of the runners'.
	addr, internal string

	process *exec.Cmd
	exited  chan error

	// life is nil from before the process is killed until it is ready again.
	life atomic.Pointer[life]
	// inFlight are the requests that clients have open.
	inFlight atomic.Int64
}

// life is what clients saw of a gateway between two starts.
type life struct {
	// accepted are its 2xx, cut the requests that were sent whole before the kill
	// and broke off.
	accepted, cut atomic.Int64
}

// buildGateway builds the command as it is shipped.
func buildGateway(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "webhookgw")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w",
		"-o", binary, "./cmd/webhookgw")
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "building the gateway: %s", out)
	return binary
}

func newGateway(t *testing.T, number int, binary, dsnFile string) *gateway {
	t.Helper()
	g := &gateway{name: fmt.Sprintf("webhookgw-%d", number), binary: binary, dsnFile: dsnFile}
	g.addr, g.internal = freeAddr(t), freeAddr(t)
	g.log = filepath.Join(t.TempDir(), g.name+".log")
	var err error
	g.pidFile, err = reap.PIDFile(g.name)
	require.NoError(t, err)
	t.Cleanup(func() {
		if g.process == nil {
			return
		}
		g.sigkill()
		if t.Failed() {
			log, _ := os.ReadFile(g.log) // there is nothing to show then
			t.Logf("%s said at last:\n%s", g.name, log[max(0, len(log)-4000):])
		}
	})
	return g
}

// nextPort keeps the gateways of this binary off each other's ports.
var nextPort = firstPort + os.Getpid()%ports

// freeAddr is a loopback address that nobody listens at.
func freeAddr(t *testing.T) string {
	t.Helper()
	for range ports {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(nextPort))
		nextPort = firstPort + (nextPort+1-firstPort)%ports
		if listener, err := net.Listen("tcp", addr); err == nil {
			require.NoError(t, listener.Close())
			return addr
		}
	}
	t.Fatal("no port is free")
	return ""
}

// start begins a life of the process and returns once it is ready.
func (g *gateway) start(ctx context.Context) error {
	log, err := os.OpenFile(g.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening the gateway's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(g.binary, "--store-dsn-file", g.dsnFile, "--public-addr", g.addr, "--internal-addr", g.internal)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", g.name, err)
	}
	exited := make(chan error, 1)
	g.process, g.exited = cmd, exited
	go func() { exited <- cmd.Wait() }()
	if err := reap.Process(g.name, cmd.Process, "KILL"); err != nil {
		return err
	}
	if err := g.awaitReady(ctx); err != nil {
		return err
	}
	g.life.Store(&life{})
	return nil
}

func (g *gateway) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	err := poll(ctx, pollEvery, func() (bool, error) {
		select {
		case err := <-g.exited:
			g.exited <- err // sigkill waits for it
			return false, fmt.Errorf("it ended: %w", err)
		default:
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.addr+"/readyz", nil)
		if err != nil {
			return false, err
		}
		resp, err := client.Do(req)
		if err != nil {
			return false, nil // not yet; poll ends with ctx
		}
		return resp.StatusCode == http.StatusOK, resp.Body.Close()
	})
	if err != nil {
		return fmt.Errorf("waiting until %s is ready: %w", g.name, err)
	}
	return nil
}

// sigkill ends the process as a crash does and returns once it is gone.
func (g *gateway) sigkill() {
	_ = g.process.Process.Kill() // fails when it has ended already
	slog.Debug("the gateway was killed", "how", <-g.exited)
	g.forget()
}

// stop ends the process in order, and returns how it ended.
func (g *gateway) stop() error {
	g.life.Store(nil)
	err := g.process.Process.Signal(syscall.SIGTERM)
	err = errors.Join(err, <-g.exited)
	g.forget()
	if err != nil {
		return fmt.Errorf("stopping %s: %w", g.name, err)
	}
	return nil
}

// forget keeps others from ending a later process of the same number.
func (g *gateway) forget() {
	g.process = nil
	_ = os.Remove(g.pidFile)
}

// poll asks until the answer is yes, an error or the end of ctx.
func poll(ctx context.Context, every time.Duration, done func() (bool, error)) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}
