// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"net/http"
	"os"
	"time"
)

// answerPiece is the number of bytes between two checks of the time.
const answerPiece = 64 << 10

// AnswerWithin limits the total time of writing a response. A client that reads slowly could
// otherwise keep each single write in time.
func AnswerWithin(w http.ResponseWriter, most time.Duration) http.ResponseWriter {
	return &within{ResponseWriter: w, until: time.Now().Add(most)}
}

type within struct {
	http.ResponseWriter
	until time.Time
}

// Unwrap implements the method of http.ResponseController.
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
