// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"bytes"
	"crypto/rand"
	"strings"
	"sync"
	"time"

	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/excerpt"
	"github.com/agentplatform/agentplatform/internal/redact"
	"github.com/agentplatform/agentplatform/internal/runtrace"
)

const methodProgress = "notifications/progress"

// maxReportText limits the text of a report that is kept until the call ends, in bytes. It is more than the record of the call
// has, so that a secret at the end is redacted as a whole.
const maxReportText = 32 << 10

// progress collects the progress that a server reports during a call. A report prolongs no timeout. The SDK reads an answer in a
// goroutine of its own. A nil progress ignores reports.
type progress struct {
	// token names the call for the server.
	token string
	now   func() time.Time

	mu sync.Mutex
	// latest are the latest reports, at most runtrace.MaxProgress.
	latest []runtrace.MCPProgress
}

func newProgress(now func() time.Time) *progress { return &progress{token: rand.Text(), now: now} }

// addReport keeps the report in an event. It returns false for an event that is no report of this call.
func (p *progress) addReport(event []byte) bool {
	if p == nil || !bytes.Contains(event, []byte(p.token)) { // Most events are not decoded. Servers can escape the method.
		return false
	}
	var report struct {
		Method string `json:"method"`
		Params struct {
			Token string `json:"progressToken"`
			runtrace.MCPProgress
		} `json:"params"`
	}
	if err := exactjson.Decode(event, &report); err != nil || report.Method != methodProgress || report.Params.Token != p.token {
		return false
	}
	if text := report.Params.Message; len(text) > maxReportText {
		report.Params.Message = strings.Clone(excerpt.Of(text, maxReportText, "")) // A part of the text would keep all of it in memory.
	}
	report.Params.At = p.now().UTC().Truncate(time.Millisecond)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.latest) == runtrace.MaxProgress {
		p.latest = p.latest[1:]
	}
	p.latest = append(p.latest, report.Params.MCPProgress)
	return true
}

// copyReports adds the reports to the record of a call, without secrets.
func (p *progress) copyReports(call *runtrace.MCPCall, hidden *redact.Secrets) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, report := range p.latest {
		report.Message = hidden.RedactText(report.Message)
		call.AddProgress(report)
	}
}
