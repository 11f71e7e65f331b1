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

// Pace is the minimum speed at which a body must arrive or a response must be read. Only the time
// of waiting for the client counts.
type Pace struct {
	// BytesPerSecond is the minimum average speed since the beginning.
	BytesPerSecond int64
	// Grace is the tolerated delay.
	Grace time.Duration
	// Most limits the total wait; 0 for no limit.
	Most time.Duration
}

// allowedTime returns the total wait for the byte after received bytes.
func (p Pace) allowedTime(received int64) time.Duration {
	most := p.Grace + time.Duration(float64(received)/float64(p.BytesPerSecond)*float64(time.Second))
	if p.Most > 0 {
		return min(most, p.Most)
	}
	return most
}

// Paced reads a request's body as long as it keeps the pace. Then reading fails, and TooSlow
// reports the error. The pace replaces other limits of a body's time. The caller calls BodyRead at
// the end.
func Paced(w http.ResponseWriter, body io.Reader, pace Pace) io.Reader {
	return &paced{body: body, pace: pace, now: time.Now, until: func(deadline time.Time) { readUntil(w, deadline) }}
}

// ErrCutOff is the error of WholeBody for a body whose client closed the connection.
var ErrCutOff = errors.New("the body was cut off")

// WholeBody reads a request's body. It reports a body that was cut off as ErrCutOff in place of io.ErrUnexpectedEOF, which readers of
// whole buffers also return at the end of a complete body.
func WholeBody(body io.Reader) io.Reader { return wholeBody{body} }

type wholeBody struct{ io.Reader }

// Read implements io.Reader.
func (b wholeBody) Read(piece []byte) (int, error) {
	n, err := b.Reader.Read(piece)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = ErrCutOff
	}
	return n, err
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
	p.until(begin.Add(p.pace.allowedTime(p.received) - p.waited))
	n, err := p.body.Read(piece)
	p.received += int64(n)
	p.waited += p.now().Sub(begin)
	return n, err
}

// PacedAnswer writes a response as long as its client keeps the pace. Then writing fails, and
// TooSlow reports the error.
type PacedAnswer struct {
	w      io.Writer
	pace   Pace
	now    func() time.Time
	until  func(deadline time.Time)
	sent   int64
	waited time.Duration
}

// NewPacedAnswer starts the timer. The caller calls Done at the end.
func NewPacedAnswer(w http.ResponseWriter, pace Pace) *PacedAnswer {
	return &PacedAnswer{w: w, pace: pace, now: time.Now, until: func(deadline time.Time) { writeUntil(w, deadline) }}
}

// Write implements io.Writer.
func (p *PacedAnswer) Write(piece []byte) (int, error) {
	begin := p.now()
	p.until(begin.Add(p.pace.allowedTime(p.sent+int64(len(piece))) - p.waited))
	n, err := p.w.Write(piece)
	p.sent += int64(n)
	p.waited += p.now().Sub(begin)
	return n, err
}

// Done removes the deadline, so that the connection's next response has its own time.
func (p *PacedAnswer) Done() { p.until(time.Time{}) }

func writeUntil(w http.ResponseWriter, deadline time.Time) {
	if err := http.NewResponseController(w).SetWriteDeadline(deadline); err != nil {
		slog.Debug("bounding an answer", "error", err) // the recorder of a test has no connection
	}
}

// TooSlow reports whether an error is a timeout of reading a body or writing a response.
func TooSlow(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
