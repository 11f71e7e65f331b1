// SPDX-License-Identifier: Apache-2.0

package runtrace

import "github.com/agentplatform/agentplatform/internal/excerpt"

// maxLineText limits the text of a line in bytes. An error of a script has its call stack in one line.
const maxLineText = 16 << 10

// levels are the levels of lines, by their names in the journal. Others are info.
var levels = map[string]string{"debug": "debug", "info": "info", "warn": "warning", "warning": "warning", "error": "error"}

// addLines adds the lines of an entry. It returns them and the number of lines that did not fit.
func (b *Builder) addLines(e *Entry, s *Span, from logged) (lines []Line, more int) {
	more = from.MoreLog
	for _, l := range from.Log {
		if len(b.lines)+len(lines) >= MaxLines {
			more++
			continue
		}
		level := levels[l.Level]
		if level == "" {
			level = "info"
		}
		lines = append(lines, Line{
			At: s.End, Level: level, Text: excerpt.Of(l.Text, maxLineText, excerpt.Ellipsis), Fields: b.keepContent(l.Fields),
			Position: cutName(l.Position), SpanID: s.ID, Sequence: e.Sequence,
		})
	}
	b.lines = append(b.lines, lines...)
	b.moreLine += more
	return lines, more
}
