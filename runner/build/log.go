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
	// logCutMark ends a truncated log.
	logCutMark = "\n… the log is cut off here\n"
	// maxLog limits a build's log without the mark, in bytes, so that the store does not truncate
	// it.
	maxLog = dispatchapi.MaxBuildLog - 2*len(logCutMark)
	// logPause is how long lines are collected into one chunk.
	logPause = 300 * time.Millisecond
)

// logSink receives chunks of a log.
type logSink interface {
	AppendLog(ctx context.Context, req dispatchapi.BuildLog) error
}

// buildLog streams lines to dispatch in order, in the background, until close. It does not delay
// the build.
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
	go l.sendLoop(ctx)
	return l
}

// addLine adds a line.
func (l *buildLog) addLine(format string, args ...any) { l.addText(logLine(l.now(), format, args...)) }

func (l *buildLog) addText(text string) {
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
	l.notifySender()
}

func (l *buildLog) notifySender() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// close sends the remaining lines and waits for them.
func (l *buildLog) close() {
	l.mu.Lock()
	l.closed = true
	l.notifySender()
	l.mu.Unlock()
	close(l.closing)
	<-l.done
}

func (l *buildLog) sendLoop(ctx context.Context) {
	defer close(l.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for number := int64(0); ; {
		<-l.wake // close is guaranteed to close it
		text, closed := l.takeText()
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

func (l *buildLog) takeText() (text string, closed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	text = l.text.String()
	l.text.Reset()
	return text, l.closed
}
