// SPDX-License-Identifier: Apache-2.0

package script

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/runerror"
)

// manualClock is a clock whose time tests set.
type manualClock struct {
	mu     sync.Mutex
	at     time.Time
	timers map[int]manualTimer
	next   int
}

type manualTimer struct {
	at time.Time
	f  func()
}

func (c *manualClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *manualClock) after(d time.Duration, f func()) func() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timers == nil {
		c.timers = map[int]manualTimer{}
	}
	c.next++
	id := c.next
	c.timers[id] = manualTimer{c.at.Add(d), f}
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		_, open := c.timers[id]
		delete(c.timers, id)
		return open
	}
}

// advance moves the clock and calls the functions that are due.
func (c *manualClock) advance(d time.Duration) {
	c.mu.Lock()
	c.at = c.at.Add(d)
	var due []func()
	for id, timer := range c.timers {
		if !timer.at.After(c.at) {
			due = append(due, timer.f)
			delete(c.timers, id)
		}
	}
	c.mu.Unlock()
	for _, f := range due {
		f()
	}
}

func manualPool(t *testing.T) (*Pool, *manualClock) {
	pool, c := newPool(t, Options{}), new(manualClock)
	pool.clock = clock{c.now, c.after}
	return pool, c
}

// pids returns the process IDs of idle children.
func (p *Pool) pids() (pids []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.idle {
		pids = append(pids, one.cmd.Process.Pid)
	}
	return pids
}

func TestPool_KeepsWarmChildren(t *testing.T) {
	t.Parallel()
	pool, clock := manualPool(t)
	call := callOn(body("return 1"), "")
	loads := 0
	sources := call.Sources
	call.Sources = func() map[string]string { loads++; return sources() }
	for range 3 {
		_, err := pool.Run(t.Context(), call, nil)
		require.NoError(t, err)
	}
	first := pool.pids()
	require.Len(t, first, 1)
	require.Equal(t, 1, loads, "the child kept the sources")

	clock.advance(warmTime - 1)
	require.Equal(t, first, pool.pids())
	_, err := pool.Run(t.Context(), call, nil)
	require.NoError(t, err)
	clock.advance(warmTime - 1)
	require.Equal(t, first, pool.pids(), "a call restarts the time")
	clock.advance(1)
	require.Empty(t, pool.pids())
	_, err = pool.Run(t.Context(), call, nil)
	require.NoError(t, err)
	require.NotEqual(t, first, pool.pids())
}

// A child takes new sources, and a pool prefers a child that has them.
func TestPool_ReloadsSources(t *testing.T) {
	t.Parallel()
	pool, _ := manualPool(t)
	var both sync.WaitGroup // Both calls are open at the same time.
	both.Add(2)
	waiting := hostFunc(func(context.Context, Request) (json.RawMessage, error) {
		both.Done()
		both.Wait()
		return json.RawMessage(`true`), nil
	})
	first, second := callOn(body("sleep(1)", "return 1"), ""), callOn(body("sleep(1)", "return 2"), "")
	var group sync.WaitGroup
	for _, call := range []Call{first, second} {
		group.Go(func() {
			_, err := pool.Run(t.Context(), call, waiting)
			require.NoError(t, err)
		})
	}
	group.Wait()
	require.Len(t, pool.pids(), 2)
	for _, call := range []Call{first, second, first} {
		call.Sources = func() map[string]string { t.Error("the sources were sent again"); return nil }
		_, err := pool.Run(t.Context(), call, hostFunc(func(context.Context, Request) (json.RawMessage, error) { return json.RawMessage(`1`), nil }))
		require.NoError(t, err)
	}
	third := callOn(body("return 3"), "")
	result, err := pool.Run(t.Context(), third, nil)
	require.NoError(t, err)
	require.Equal(t, "3", string(result.Value))
	require.Len(t, pool.pids(), 2)
}

func TestPool_KeepsAsManyChildrenAsCompute(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ computing, kept int }{
		"memory for 32 that compute": {computing: 32, kept: 16},
		"memory for 8 that compute":  {computing: 8, kept: 8},
		"memory for one":             {computing: 1, kept: minIdle},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool := newPool(t, Options{})
			pool.slots.limits.computing = row.computing
			callAtOnce(t, pool, 16)
			require.Len(t, pool.pids(), row.kept)
		})
	}
}

// callAtOnce executes scripts that all have begun before the first one ends.
func callAtOnce(t *testing.T, pool *Pool, calls int) {
	t.Helper()
	arrived := make(chan struct{}, calls)
	start := make(chan struct{})
	host := hostFunc(func(context.Context, Request) (json.RawMessage, error) {
		arrived <- struct{}{}
		<-start
		return json.RawMessage(`1`), nil
	})
	var group sync.WaitGroup
	for range calls {
		group.Go(func() {
			_, err := pool.Run(t.Context(), callOn(body("sleep(1)"), ""), host)
			require.NoError(t, err)
		})
	}
	for range calls {
		<-arrived
	}
	close(start)
	group.Wait()
}

// Scripts that may compute at the same time find the children of scripts that have ended, also if they use all memory.
func TestPool_LeavesChildrenToNextScripts(t *testing.T) {
	t.Parallel()
	pool := newPool(t, Options{})
	pool.slots.limits.computing, pool.slots.limits.memory = 3, 3*pool.slots.limits.each
	callAtOnce(t, pool, 3)
	require.Len(t, pool.pids(), 3)
	next, children := make([]*slot, 3), make([]*process, 3)
	for i := range next {
		var err error
		next[i], err = pool.takeSlot(t.Context(), fmt.Sprint("run ", i))
		require.NoError(t, err)
	}
	for i, s := range next {
		var wasIdle bool
		var err error
		children[i], wasIdle, err = pool.takeChild(s, "")
		require.NoError(t, err)
		require.True(t, wasIdle)
	}
	for i, s := range next {
		pool.keepChild(s, children[i])
		pool.releaseSlot(s) // again: it does nothing
	}
	require.Len(t, pool.pids(), 3)
	require.Zero(t, pool.slots.computing)
	require.Zero(t, pool.slots.childless)
}

func TestPool_LimitsChildren(t *testing.T) {
	t.Parallel()
	pool := newPool(t, Options{MaxChildren: 1})
	ctx, cancel := context.WithCancel(t.Context())
	_, err := pool.Run(t.Context(), callOn(body("sleep(1)"), ""), hostFunc(func(context.Context, Request) (json.RawMessage, error) {
		cancel()
		_, err := pool.Run(ctx, callOn(body("return 1"), ""), nil)
		require.ErrorIs(t, err, context.Canceled)
		return json.RawMessage(`1`), nil
	}))
	require.NoError(t, err)
}

// The script's own time does not include the host's time.
func TestPool_DoesNotCountHostTime(t *testing.T) {
	t.Parallel()
	pool, clock := manualPool(t)
	call := callOn(body("sleep(1)", "sleep(1)", "return 1"), "")
	host := hostFunc(func(context.Context, Request) (json.RawMessage, error) {
		clock.advance(time.Hour)
		return json.RawMessage(`1`), nil
	})
	result, err := pool.Run(t.Context(), call, host)
	require.NoError(t, err)
	require.Equal(t, "1", string(result.Value))
}

// unlimited returns a call of endless with a limit of time.
func unlimited(own, total time.Duration) Call {
	call := callOn("def run():\n  sleep(0)\n  for i in range(1000000000): pass\n\ndef forever():\n  print(\"started\")\n  for i in range(1000000000): pass\n", "")
	call.Limits = LimitsOf(bundle.OwnerTool)
	call.Limits.Steps, call.Limits.OwnTime, call.Limits.TotalTime = 1<<62, own, total
	return call
}

// A child dies with its parent, also if the parent is killed while the script computes.
func TestChild_DiesWithItsParent(t *testing.T) {
	t.Parallel()
	out, _ := exec.Command(os.Args[0], "orphan").Output() // It is killed.
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	require.NoError(t, err, string(out))
	require.Eventually(t, func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(stat), ") Z ") // Its new parent may not have waited for it.
	}, time.Minute, time.Millisecond)
}

func TestPool_KillsSlowScripts(t *testing.T) {
	t.Parallel()
	pool, clock := manualPool(t)
	go func() {
		for t.Context().Err() == nil {
			clock.advance(time.Millisecond)
		}
	}()
	_, err := pool.Run(t.Context(), unlimited(time.Second, 0), hostFunc(func(context.Context, Request) (json.RawMessage, error) { return json.RawMessage(`1`), nil }))
	requireError(t, err, runerror.ScriptLimit, "the script needs more than 1s of computing time", "")
	require.Empty(t, pool.pids())
}

func TestPool_EndsScriptsWithTheirContext(t *testing.T) {
	t.Parallel()
	pool := newPool(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancelling := hostFunc(func(context.Context, Request) (json.RawMessage, error) { cancel(); return json.RawMessage(`1`), nil })
	_, err := pool.Run(ctx, unlimited(time.Hour, 0), cancelling)
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, pool.pids())

	waiting := hostFunc(func(ctx context.Context, _ Request) (json.RawMessage, error) { <-ctx.Done(); return nil, ctx.Err() })
	_, err = pool.Run(t.Context(), unlimited(time.Hour, time.Millisecond), waiting)
	requireError(t, err, runerror.ScriptLimit, "the script needs more than 1ms", "")
}

// A child that is killed fails its own call only.
func TestPool_SurvivesKilledChild(t *testing.T) {
	t.Parallel()
	pool := newPool(t, Options{})
	_, err := pool.Run(t.Context(), callOn(body("return 1"), ""), nil)
	require.NoError(t, err)
	pid := pool.pids()[0]
	_, err = pool.Run(t.Context(), callOn(body("sleep(1)"), ""), hostFunc(func(context.Context, Request) (json.RawMessage, error) {
		return json.RawMessage(`1`), syscall.Kill(pid, syscall.SIGKILL)
	}))
	requireError(t, err, runerror.ScriptLimit, "the process of the script ended; the script probably needs more than 128 MiB of memory", "")
	result, err := pool.Run(t.Context(), callOn(body("return 2"), ""), nil)
	require.NoError(t, err)
	require.Equal(t, "2", string(result.Value))
}

func TestPool_RejectsCallsAfterClose(t *testing.T) {
	t.Parallel()
	pool := newPool(t, Options{})
	_, err := pool.Run(t.Context(), callOn(body("return 1"), ""), nil)
	require.NoError(t, err)
	pid := pool.pids()[0]
	pool.Close()
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH)
	_, err = pool.Run(t.Context(), callOn(body("return 1"), ""), nil)
	require.ErrorIs(t, err, ErrClosed)
}

// A child has no environment, no file but its pipes and what Go's runtime reads, and a process group of its own.
func TestPool_IsolatesChild(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self/fd"); err != nil {
		t.Skip("needs /proc")
	}
	pool := newPool(t, Options{})
	_, err := pool.Run(t.Context(), callOn(body("return 1"), ""), nil)
	require.NoError(t, err)
	proc := fmt.Sprintf("/proc/%d/", pool.pids()[0])
	environment, err := os.ReadFile(proc + "environ")
	require.NoError(t, err)
	require.Empty(t, environment)
	entries, err := os.ReadDir(proc + "fd")
	require.NoError(t, err)
	for _, entry := range entries {
		target, err := os.Readlink(filepath.Join(proc, "fd", entry.Name()))
		require.NoError(t, err)
		require.Regexp(t, `^(pipe:|/dev/null$|anon_inode:|/sys/fs/cgroup/)`, target)
	}
	threads, err := os.ReadDir(proc + "task")
	require.NoError(t, err)
	require.NotEmpty(t, threads)
	for _, thread := range threads {
		status, err := os.ReadFile(filepath.Join(proc, "task", thread.Name(), "status"))
		require.NoError(t, err)
		require.Contains(t, string(status), "NoNewPrivs:\t1\n")
	}
	limits, err := os.ReadFile(proc + "limits")
	require.NoError(t, err)
	var limit uint64
	_, err = fmt.Sscanf(regexp.MustCompile(`Max data size +\d+`).FindString(string(limits)), "Max data size %d", &limit)
	require.NoError(t, err)
	require.Greater(t, limit, uint64(DefaultMemory))
	require.Less(t, limit, uint64(2*DefaultMemory))
	group, err := syscall.Getpgid(pool.pids()[0])
	require.NoError(t, err)
	require.Equal(t, pool.pids()[0], group)
}
