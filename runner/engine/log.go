// SPDX-License-Identifier: Apache-2.0

package engine

import "sync"

// Limits of the log of a run.
const (
	maxLogLines = 500
	maxLogBytes = 1 << 20
	// maxCallLog limits the lines of one call, so that its result fits into the journal.
	maxCallLog = 64 << 10
)

// logBudget counts the lines that a run has logged in all attempts. Parallel calls share it.
type logBudget struct {
	mu           sync.Mutex
	lines, bytes int
}

// takeLines returns the first lines that the budget allows, and counts them.
func (b *logBudget) takeLines(lines []LogLine) []LogLine {
	b.mu.Lock()
	defer b.mu.Unlock()
	size := 0
	for i, line := range lines {
		with := size + line.size()
		if with > maxCallLog || b.lines+i+1 > maxLogLines || b.bytes+with > maxLogBytes {
			lines = lines[:i]
			break
		}
		size = with
	}
	b.lines += len(lines)
	b.bytes += size
	return lines
}

// countLines counts the lines that the journal has from earlier attempts.
func (b *logBudget) countLines(lines []LogLine) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines += len(lines)
	for _, line := range lines {
		b.bytes += line.size()
	}
}

// size returns the bytes that a line counts.
func (l LogLine) size() int { return len(l.Text) + len(l.Fields) + len(l.Position) }

// LogBudget returns how many lines and bytes the run may still log.
func (s *Scope) LogBudget() (lines, bytes int) {
	s.journal.logs.mu.Lock()
	defer s.journal.logs.mu.Unlock()
	return max(0, maxLogLines-s.journal.logs.lines), max(0, maxLogBytes-s.journal.logs.bytes)
}
