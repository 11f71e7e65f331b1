// SPDX-License-Identifier: Apache-2.0

package runtrace

import "github.com/agentplatform/agentplatform/internal/excerpt"

// maxLineText limits the text of a line in bytes. An error of a script has its call stack in one line.
const maxLineText = 16 << 10

// maxLinesSize limits the texts, fields and positions of all lines of a run in bytes.
const maxLinesSize = 1 << 20

// levels are the levels of lines, by their names in the journal. Others are info.
var levels = map[string]string{"debug": "debug", "info": "info", "warn": "warning", "warning": "warning", "error": "error"}

// maxMoreLog is the largest number of omitted lines that an entry can report.
const maxMoreLog = 1_000_000

// addLines adds the lines of an entry, and counts the lines that do not fit.
func (b *Builder) addLines(e *Entry, s *Span, from logged) {
	b.moreLine += min(max(0, from.MoreLog), maxMoreLog)
	for _, l := range from.Log {
		size := min(len(l.Text), maxLineText) + len(l.Fields) + min(len(l.Position), maxName)
		if b.logged >= MaxLines || b.lineSize+size > maxLinesSize {
			b.moreLine++
			continue
		}
		b.logged++
		b.lineSize += size
		level := levels[l.Level]
		if level == "" {
			level = "info"
		}
		b.lines = append(b.lines, Line{
			At: s.End, Level: level, Text: excerpt.Of(l.Text, maxLineText, excerpt.Ellipsis), Fields: b.keepContent(l.Fields),
			Position: cutName(l.Position), SpanID: s.ID, Sequence: e.Sequence,
		})
	}
}
