// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"net/http"
	"os"
	"time"
)

// answerPiece is the most bytes of a bounded answer between two looks at the clock.
const answerPiece = 64 << 10

// AnswerWithin writes an answer for so long at most, and then fails: its client may take
// a piece now and then, so that no single write is late.
func AnswerWithin(w http.ResponseWriter, most time.Duration) http.ResponseWriter {
	return &within{ResponseWriter: w, until: time.Now().Add(most)}
}

type within struct {
	http.ResponseWriter
	until time.Time
}

// Unwrap is for http.ResponseController.
func (w *within) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write implements http.ResponseWriter.
func (w *within) Write(p []byte) (written int, err error) {
	for {
		if time.Now().After(w.until) {
			return written, os.ErrDeadlineExceeded
		}
		n, err := w.ResponseWriter.Write(p[written:min(len(p), written+answerPiece)])
		if written += n; err != nil || written >= len(p) {
			return written, err
		}
	}
}
