// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"io"
	"net/http"
	"os"
	"time"

	"github.com/agentplatform/agentplatform/store"
)

const (
	// blobStream is the memory of a blob that comes or goes: a few of its chunks.
	// journalStream is that of a journal: a page.
	blobStream    = 4 * store.BlobChunk
	journalStream = store.MaxJournalPage
	// answerTime is how long the answer to a claim, or a stream, may take: no longer
	// does a runner read it. What it holds is wanted by others.
	answerTime = 30 * time.Second
	// answerPiece is the most bytes that are written between two looks at the clock.
	answerPiece = 64 << 10
)

// streamed lets an endpoint stream within the budget of its project, for a while.
func (h *Handler) streamed(size int64, next endpoint) endpoint {
	return func(w http.ResponseWriter, r *http.Request, token store.Token) error {
		grant, err := wait(r.Context(), h.streams, token.ProjectID, size)
		if err != nil {
			return err
		}
		defer grant.End()
		return next(timed(w), r, token)
	}
}

// timedWriter ends an answer that takes too long: its reader may take a piece now and
// then, so that no single write is late.
type timedWriter struct {
	http.ResponseWriter
	until time.Time
}

func timed(w http.ResponseWriter) http.ResponseWriter {
	return &timedWriter{ResponseWriter: w, until: time.Now().Add(answerTime)}
}

// Unwrap is for http.ResponseController.
func (t *timedWriter) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// Write implements http.ResponseWriter.
func (t *timedWriter) Write(p []byte) (written int, err error) {
	for {
		if time.Now().After(t.until) {
			return written, os.ErrDeadlineExceeded
		}
		n, err := t.ResponseWriter.Write(p[written:min(len(p), written+answerPiece)])
		if written += n; err != nil || written >= len(p) {
			return written, err
		}
	}
}

// stream copies a body. Once it has begun an error can only break it off, so
// that the other side sees that it is not whole.
func stream(w http.ResponseWriter, contentType string, body io.Reader) error {
	w.Header().Set("Content-Type", contentType)
	if _, err := io.Copy(w, body); err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}
