// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"time"
)

// Pace is how slowly a body may come in, or an answer be read. Only the time counts
// in which the client is waited for: what is done between does not.
type Pace struct {
	// BytesPerSecond is the least, on the average since the beginning.
	BytesPerSecond int64
	// Grace is how far it may be behind.
	Grace time.Duration
	// Most is how long may be waited for all of it; 0 is as long as it keeps the pace.
	Most time.Duration
}

// allows is how long may be waited, all in all, for the byte after so many.
func (p Pace) allows(received int64) time.Duration {
	most := p.Grace + time.Duration(float64(received)/float64(p.BytesPerSecond)*float64(time.Second))
	if p.Most > 0 {
		return min(most, p.Most)
	}
	return most
}

// Paced reads a request's body for as long as it keeps the pace from now on, and no
// longer, whatever else bounds the time of a body: then reading it fails as TooSlow
// says. Call BodyRead at its end.
func Paced(w http.ResponseWriter, body io.Reader, pace Pace) io.Reader {
	return &paced{body: body, pace: pace, now: time.Now, until: func(deadline time.Time) { readUntil(w, deadline) }}
}

// paced gives each read a deadline.
type paced struct {
	body     io.Reader
	pace     Pace
	now      func() time.Time
	until    func(deadline time.Time)
	received int64
	waited   time.Duration
}

// Read implements io.Reader.
func (p *paced) Read(piece []byte) (int, error) {
	begin := p.now()
	p.until(begin.Add(p.pace.allows(p.received) - p.waited))
	n, err := p.body.Read(piece)
	p.received += int64(n)
	p.waited += p.now().Sub(begin)
	return n, err
}

// PacedAnswer writes an answer for as long as its client reads it with the pace, and
// no longer: then writing fails as TooSlow says.
type PacedAnswer struct {
	w      io.Writer
	pace   Pace
	now    func() time.Time
	until  func(deadline time.Time)
	sent   int64
	waited time.Duration
}

// NewPacedAnswer begins to count. Call Done at the end.
func NewPacedAnswer(w http.ResponseWriter, pace Pace) *PacedAnswer {
	return &PacedAnswer{w: w, pace: pace, now: time.Now, until: func(deadline time.Time) { writeUntil(w, deadline) }}
}

// Write implements io.Writer.
func (p *PacedAnswer) Write(piece []byte) (int, error) {
	begin := p.now()
	p.until(begin.Add(p.pace.allows(p.sent+int64(len(piece))) - p.waited))
	n, err := p.w.Write(piece)
	p.sent += int64(n)
	p.waited += p.now().Sub(begin)
	return n, err
}

// Done lifts the deadline: the connection's next answer has its own time.
func (p *PacedAnswer) Done() { p.until(time.Time{}) }

func writeUntil(w http.ResponseWriter, deadline time.Time) {
	if err := http.NewResponseController(w).SetWriteDeadline(deadline); err != nil {
		slog.Debug("bounding an answer", "error", err) // a recorder of a test has no connection
	}
}

// TooSlow says whether reading a body failed because it did not come in time, or
// writing an answer because nobody read it.
func TooSlow(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
