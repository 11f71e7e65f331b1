// SPDX-License-Identifier: Apache-2.0

// Package progress reports each step to the user and how long it took.
package progress

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// Log writes lines for a person. Its zero value is of no use; call New.
type Log struct {
	mu  sync.Mutex
	out io.Writer
	now func() time.Time
}

// New returns a Log that writes to out.
func New(out io.Writer) *Log {
	return &Log{out: out, now: time.Now}
}

// Say writes one line.
func (l *Log) Say(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// A terminal that is gone must not stop a cluster from coming up.
	_, _ = fmt.Fprintf(l.out, format+"\n", args...)
}

// Step logs the name of the step, runs do and logs how long it took. It returns the error of do.
func (l *Log) Step(name string, do func() error) error {
	begin := l.now()
	l.Say("==> %s", name)
	if err := do(); err != nil {
		l.Say("    failed after %s", Round(l.now().Sub(begin)))
		return err
	}
	l.Say("    done in %s", Round(l.now().Sub(begin)))
	return nil
}

// Round rounds a duration to a readable precision.
func Round(d time.Duration) time.Duration {
	if d < time.Minute {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Second)
}
