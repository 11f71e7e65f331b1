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

// logBudget is what a run may still log in an attempt. Parallel calls share it.
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
		size += len(line.Text) + len(line.Fields) + len(line.Position)
		if size > maxCallLog || b.lines+i+1 > maxLogLines || b.bytes+size > maxLogBytes {
			lines = lines[:i]
			break
		}
	}
	b.lines += len(lines)
	b.bytes += min(size, maxCallLog)
	return lines
}

// LogBudget returns how many lines and bytes the run may still log.
func (s *Scope) LogBudget() (lines, bytes int) {
	s.logs.mu.Lock()
	defer s.logs.mu.Unlock()
	return max(0, maxLogLines-s.logs.lines), max(0, maxLogBytes-s.logs.bytes)
}
