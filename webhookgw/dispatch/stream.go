// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// blobStream is the memory of a blob transfer, a few chunks. journalStream is the memory of a
	// journal transfer, one page. saveStream is the memory of a file that a run saves, with its entries.
	blobStream    = 4 * store.BlobChunk
	journalStream = store.MaxJournalPage
	saveStream    = blobStream + 2*dispatchapi.MaxSavedJournal
	// responseTimeout limits how long a runner can take to read a claim response or a stream, because
	// others need the memory.
	responseTimeout = 30 * time.Second
	// streamTimeout limits reading a stream from the store.
	streamTimeout = time.Minute
)

// savePace is the minimum rate of the body of a save. The largest body takes less than dispatchapi.SaveTimeout.
var savePace = httpserver.Pace{BytesPerSecond: 512 << 10, Grace: 5 * time.Second}

// withStream wraps an endpoint that streams. It reserves memory of the project's budget and limits
// the time.
func (h *Handler) withStream(size int64, next endpoint) endpoint {
	return func(w http.ResponseWriter, r *http.Request, token store.Token) error {
		grant, err := waitForMemory(r.Context(), h.streams, token.ProjectID, size)
		if err != nil {
			return err
		}
		defer grant.End()
		if r.Method == http.MethodGet {
			ctx, cancel := context.WithTimeout(r.Context(), streamTimeout)
			defer cancel()
			r = r.WithContext(ctx)
		}
		return next(withDeadline(w), r, token)
	}
}

func withDeadline(w http.ResponseWriter) http.ResponseWriter {
	return httpserver.AnswerWithin(w, responseTimeout)
}

// anyBytes is the content type of blobs of any type.
const anyBytes = "application/octet-stream"

// streamBlob opens a blob in the project's turn and streams it. The blob lasts longer than the turn, so open opens it with ctx.
func (h *Handler) streamBlob(
	w http.ResponseWriter, r *http.Request, token store.Token, open func(ctx, turn context.Context) (contentType string, blob io.ReadCloser, err error),
) error {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	var contentType string
	var blob io.ReadCloser
	if err := h.callStore(ctx, token.ProjectID, func(turn context.Context) (err error) {
		defer context.AfterFunc(turn, cancel)()
		contentType, blob, err = open(ctx, turn)
		return err
	}); err != nil {
		return err
	}
	defer blob.Close()
	return copyStream(w, contentType, h.readFairly(ctx, cancel, token.ProjectID, blob))
}

// copyStream copies a body. After its start, an error breaks the response, so that the client sees that
// it is incomplete.
func copyStream(w http.ResponseWriter, contentType string, body io.Reader) error {
	w.Header().Set("Content-Type", contentType)
	if _, err := io.Copy(w, body); err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}
