// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/agentplatform/agentplatform/internal/httpserver"
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
	// streamTime bounds reading a stream from the store.
	streamTime = time.Minute
)

// streamed lets an endpoint stream within the budget of its project, for a while.
func (h *Handler) streamed(size int64, next endpoint) endpoint {
	return func(w http.ResponseWriter, r *http.Request, token store.Token) error {
		grant, err := wait(r.Context(), h.streams, token.ProjectID, size)
		if err != nil {
			return err
		}
		defer grant.End()
		if r.Method == http.MethodGet {
			ctx, cancel := context.WithTimeout(r.Context(), streamTime)
			defer cancel()
			r = r.WithContext(ctx)
		}
		return next(timed(w), r, token)
	}
}

func timed(w http.ResponseWriter) http.ResponseWriter { return httpserver.AnswerWithin(w, answerTime) }

// stream copies a body. Once it has begun an error can only break it off, so
// that the other side sees that it is not whole.
func stream(w http.ResponseWriter, contentType string, body io.Reader) error {
	w.Header().Set("Content-Type", contentType)
	if _, err := io.Copy(w, body); err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}
