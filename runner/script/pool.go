// SPDX-License-Identifier: Apache-2.0

package script

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	// minIdle is the least number of idle children that a pool keeps. It keeps more if more scripts can compute at the same time:
	// runs that wait for the same append continue together. An idle child ends after warmTime.
	minIdle  = 4
	warmTime = time.Minute
	// defaultMaxChildren limits children of a pool.
	defaultMaxChildren = 32
)

// Options are the settings of a pool.
type Options struct {
	// Memory limits the memory of each script in bytes. The default is DefaultMemory.
	Memory uint64
	// MaxChildren limits scripts that have begun and not ended. More calls wait. The default is 32. The memory limit of the
	// container limits how many scripts compute at the same time, and the memory of scripts that wait for the host.
	MaxChildren int
	// Command starts a child: a program that calls Main. The default is this program with the argument script.
	Command []string
	// Log gets a warning if the system cannot filter the system calls of children; optional.
	Log *slog.Logger
}

// Pool executes scripts in child processes. It starts a child when a call needs one, because a start takes as long as hundreds of
// short scripts. It keeps idle children while scripts leave memory for them.
type Pool struct {
	options Options
	clock   clock
	// measure returns the memory of a process in bytes.
	measure func(pid int) uint64
	// open counts calls, and children that are ended.
	open sync.WaitGroup

	mu     sync.Mutex // guards the fields below
	slots  *slotQueue
	idle   []*idleProcess
	closed bool
}

// idleProcess is a child that waits for a call, with its memory in bytes. stop ends its timer.
type idleProcess struct {
	*process
	memory uint64
	stop   func() bool
}

// clock is the time of a pool.
type clock struct {
	now func() time.Time
	// after calls f once after d, unless stop is called before.
	after func(d time.Duration, f func()) (stop func() bool)
}

var realClock = clock{time.Now, func(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }}

// NewPool returns a pool. Close ends its children.
func NewPool(options Options) (*Pool, error) {
	if options.Memory == 0 {
		options.Memory = DefaultMemory
	}
	if options.MaxChildren == 0 {
		options.MaxChildren = defaultMaxChildren
	}
	if options.Command == nil {
		program, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("finding this program: %w", err)
		}
		options.Command = []string{program, "script"}
	}
	if err := hideProcess(); err != nil {
		return nil, err
	}
	if options.Log != nil && !canFilterCalls() {
		options.Log.Warn("system calls of scripts are not filtered, because this system does not support seccomp filters")
	}
	options.Command = append(options.Command, fmt.Sprintf("--memory=%d", options.Memory))
	limits := limitsFor(memoryLimit(), options.Memory, options.MaxChildren)
	return &Pool{options: options, clock: realClock, measure: privateMemory, slots: newSlotQueue(limits)}, nil
}

// ErrClosed is the error of calls of a closed pool.
var ErrClosed = errors.New("the pool of scripts is closed")

// Close ends idle children, and waits for open calls and for the end of all children.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, one := range idle {
		one.stop()
		p.discard(one.process)
	}
	p.open.Wait()
}

// Run executes a call. The error is an *Error if the script failed, the error of the host if the host ended the script, or
// the context's. The result has the logs of the script in any case.
func (p *Pool) Run(ctx context.Context, call Call, host Host) (Result, error) {
	place, err := p.takeSlot(ctx, call.Run)
	if err != nil {
		return Result{}, err
	}
	defer p.releaseSlot(place)
	if call.Limits == (Limits{}) {
		call.Limits = LimitsOf(call.Owner)
	}
	if !p.beginCall() {
		return Result{}, ErrClosed
	}
	defer p.open.Done()
	child, wasIdle, err := p.takeChild(place, call.Digest)
	if err != nil {
		return Result{}, err
	}
	run := &execution{pool: p, child: child, slot: place, call: &call, host: host}
	result, err := run.execute(ctx)
	if err != nil && wasIdle && run.wasDead {
		p.discard(child)
		if child, err = startProcess(p.options.Command); err != nil {
			return Result{}, err
		}
		run = &execution{pool: p, child: child, slot: place, call: &call, host: host}
		result, err = run.execute(ctx)
	}
	if run.reusable {
		p.keepChild(place, child)
	} else {
		p.discard(child)
	}
	return result, err
}

// takeSlot waits for a slot for a new script.
func (p *Pool) takeSlot(ctx context.Context, run string) (*slot, error) {
	p.mu.Lock()
	s := p.slots.requestSlot(run)
	p.mu.Unlock()
	if err := s.waitForGrant(ctx); err != nil {
		p.releaseSlot(s)
		return nil, err
	}
	return s, nil
}

// pauseSlot gives the slot of a script to other scripts while the script waits for its host.
func (p *Pool) pauseSlot(s *slot, child *process) {
	memory := p.measure(child.cmd.Process.Pid)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slots.pauseScript(s, memory)
}

// resumeSlot waits for a slot for a script that has waited for its host. Its error is the context's.
func (p *Pool) resumeSlot(ctx context.Context, s *slot) error {
	p.mu.Lock()
	p.slots.resumeScript(s)
	p.mu.Unlock()
	if err := s.waitForGrant(ctx); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trimIdle()
	return nil
}

func (p *Pool) releaseSlot(s *slot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slots.releaseSlot(s)
}

// trimIdle ends the idle children for which the scripts leave no memory. Scripts without a child have memory for one and take idle
// children next. The caller holds the lock.
func (p *Pool) trimIdle() {
	spare, childless := p.slots.spareMemory(), p.slots.childless
	for i := len(p.idle) - 1; i >= 0; i-- { // The newest first: it is the next to be used.
		if childless > 0 && p.idle[i].memory <= p.slots.limits.each {
			childless--
			continue
		}
		if p.idle[i].memory <= spare {
			spare -= p.idle[i].memory
			continue
		}
		p.idle[i].stop()
		p.discard(p.idle[i].process)
		p.idle = slices.Delete(p.idle, i, i+1)
	}
}

// beginCall counts a call, unless the pool is closed.
func (p *Pool) beginCall() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.open.Add(1)
	return true
}

// takeChild returns an idle child, if possible one that has the sources, or starts a child.
func (p *Pool) takeChild(s *slot, digest string) (child *process, wasIdle bool, err error) {
	p.mu.Lock()
	p.slots.recordChild(s)
	best := len(p.idle) - 1
	for i, one := range p.idle {
		if one.digest == digest {
			best = i
		}
	}
	if best < 0 {
		p.trimIdle()
		p.mu.Unlock()
		child, err = startProcess(p.options.Command)
		return child, false, err
	}
	one := p.idle[best]
	p.idle = append(p.idle[:best], p.idle[best+1:]...)
	p.trimIdle()
	p.mu.Unlock()
	one.stop()
	return one.process, true, nil
}

// keepChild keeps a child for the next call, or ends it if there are enough. It releases the slot at the same time, so that the
// next script finds the child.
func (p *Pool) keepChild(s *slot, child *process) {
	memory := p.measure(child.cmd.Process.Pid)
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.slots.releaseSlot(s)
	if p.closed || len(p.idle) >= max(p.slots.limits.computing, minIdle) {
		p.discard(child)
		return
	}
	one := &idleProcess{process: child, memory: memory}
	one.stop = p.clock.after(warmTime, func() { p.expireChild(one) })
	p.idle = append(p.idle, one)
}

// expireChild ends a child that was idle for too long.
func (p *Pool) expireChild(one *idleProcess) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, other := range p.idle {
		if other == one {
			p.idle = append(p.idle[:i], p.idle[i+1:]...)
			p.discard(one.process)
			return
		}
	}
}

// discard ends a child in the background.
func (p *Pool) discard(child *process) { p.open.Go(child.release) }
