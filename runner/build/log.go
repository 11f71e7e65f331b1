// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
)

const (
	// logCutMark ends a log that was cut.
	logCutMark = "\n… the log is cut off here\n"
	// maxLog is the most bytes of a build's log before that, so that the store has
	// nothing to cut.
	maxLog = dispatchapi.MaxBuildLog - 2*len(logCutMark)
	// logPause is how long lines are gathered into one chunk.
	logPause = 300 * time.Millisecond
)

// logSink takes chunks of a log.
type logSink interface {
	AppendLog(ctx context.Context, req dispatchapi.BuildLog) error
}

// buildLog streams lines to dispatch. Sending must not hold the build up: it
// happens beside it, in order, until close.
type buildLog struct {
	sink logSink
	now  func() time.Time

	mu      sync.Mutex
	text    strings.Builder
	written int
	closed  bool
	wake    chan struct{}
	closing chan struct{}
	done    chan struct{}
}

func newBuildLog(ctx context.Context, sink logSink, now func() time.Time) *buildLog {
	l := &buildLog{sink: sink, now: now, wake: make(chan struct{}, 1), closing: make(chan struct{}), done: make(chan struct{})}
	go l.run(ctx)
	return l
}

// say adds a line.
func (l *buildLog) say(format string, args ...any) { l.add(line(l.now(), format, args...)) }

func (l *buildLog) add(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch left := maxLog - l.written; {
	case left <= 0:
		return
	case len(text) > left:
		text = strings.ToValidUTF8(text[:left], "") + logCutMark
	}
	l.written += len(text)
	l.text.WriteString(text)
	l.signal()
}

func (l *buildLog) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// close sends what is left and waits for it.
func (l *buildLog) close() {
	l.mu.Lock()
	l.closed = true
	l.signal()
	l.mu.Unlock()
	close(l.closing)
	<-l.done
}

func (l *buildLog) run(ctx context.Context) {
	defer close(l.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for number := int64(0); ; {
		<-l.wake // closed for sure by close
		text, closed := l.take()
		if text != "" {
			if err := l.sink.AppendLog(ctx, dispatchapi.BuildLog{Number: number, Chunk: text}); err != nil {
				slog.WarnContext(ctx, "a part of the build's log was lost", "error", err)
			}
			number++
		}
		if closed {
			return
		}
		timer.Reset(logPause)
		select {
		case <-timer.C:
		case <-l.closing:
		}
	}
}

func (l *buildLog) take() (text string, closed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	text = l.text.String()
	l.text.Reset()
	return text, l.closed
}
