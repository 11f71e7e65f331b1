// SPDX-License-Identifier: Apache-2.0

package script

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/runerror"
)

// TestMain makes the test program its own child, as `runner script` is.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "script" {
		memory, err := strconv.ParseUint(strings.TrimPrefix(os.Args[2], "--memory="), 10, 64)
		if err == nil {
			err = Main(memory)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) == 3 && strings.HasPrefix(os.Args[1], "probe") {
		parent, err := strconv.Atoi(os.Args[2])
		if err != nil {
			panic(err)
		}
		probeSandbox(parent, os.Args[1] == "probe-thread")
		return
	}
	if len(os.Args) == 3 && os.Args[1] == "unconfined" {
		_ = reportUnconfined(errors.New("setting limit 2: operation not permitted"))
		return
	}
	if len(os.Args) == 4 && os.Args[1] == "hijacked" {
		sendHijacked(os.Args[2])
		return
	}
	if len(os.Args) == 2 && os.Args[1] == "orphan" {
		leaveOrphan()
	}
	goleak.VerifyTestMain(m)
}

// leaveOrphan starts an endless script, prints the process ID of its child, and kills its own process.
func leaveOrphan() {
	pool, err := NewPool(Options{})
	if err != nil {
		panic(err)
	}
	child, err := startProcess(pool.options.Command)
	if err != nil {
		panic(err)
	}
	call := unlimited(time.Hour, 0)
	call.Function = "forever"
	run := &execution{pool: pool, child: child, call: &call}
	run.own = &stopwatch{clock: realClock, expire: child.killChild, left: time.Hour}
	message, err := run.message()
	if err == nil {
		err = child.loadSources(&call)
	}
	if err == nil {
		err = writeMessage(child.in, message)
	}
	if err == nil {
		_, err = child.receive() // The line that the script logs.
	}
	if err != nil {
		panic(err)
	}
	_, _ = fmt.Println(child.cmd.Process.Pid)
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

func newPool(tb testing.TB, options Options) *Pool {
	tb.Helper()
	pool, err := NewPool(options)
	require.NoError(tb, err)
	tb.Cleanup(pool.Close)
	return pool
}

// callOn returns a call of the function run of tools/a.star with one source.
func callOn(source, args string) Call {
	return Call{
		Digest: source, Sources: func() map[string]string { return map[string]string{"tools/a.star": source} },
		File: "tools/a.star", Function: "run", Args: json.RawMessage(args), Owner: bundle.OwnerTool, Logs: MaxLogs,
		Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Offers: func(string) bool { return true },
	}
}

// body returns the source of a function run with a body.
func body(lines ...string) string { return "def run():\n  " + strings.Join(lines, "\n  ") + "\n" }

// hostFunc is a Host.
type hostFunc func(ctx context.Context, request Request) (json.RawMessage, error)

func (f hostFunc) Handle(ctx context.Context, request Request) (json.RawMessage, error) {
	return f(ctx, request)
}

// requireError checks the code, the message and the position of an error.
func requireError(tb testing.TB, err error, code runerror.Code, message, position string) {
	tb.Helper()
	var failed *Error
	require.ErrorAs(tb, err, &failed)
	require.Equal(tb, code, failed.Code, failed.Detail())
	require.Equal(tb, message, failed.Message)
	require.Equal(tb, position, failed.Position().String())
}
