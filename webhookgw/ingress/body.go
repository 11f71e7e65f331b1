// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/quota"
	"github.com/agentplatform/agentplatform/store"
)

// input is a body or query as it is committed: inline, as a blob, or not at all if its idempotency
// key is already known.
type input struct {
	contentType string
	inline      []byte
	blob        *uuid.UUID
	files       []store.File
	repeat      bool
	idempotency *store.Idempotency
}

// writtenBlobs returns the blobs that were written for an input, complete or not.
func (in input) writtenBlobs() (ids []uuid.UUID) {
	if in.blob != nil {
		ids = append(ids, *in.blob)
	}
	for _, f := range in.files {
		if f.Blob != nil {
			ids = append(ids, *f.Blob)
		}
	}
	return ids
}

// readInput reads and checks the body of an admitted request. It stores a large body and its files
// while they arrive, or from the buffer of a signed body. Problems are errors of the caller, or
// mean that there is no capacity. With an error it also returns the blobs that were written.
func (h *Handler) readInput(w http.ResponseWriter, r *http.Request, c *webhook, judged *signedBody) (in input, err error) {
	connector := c.Connector.Key()
	media, err := mediaOf(r)
	if err != nil {
		return in, err
	}
	raw, done, err := h.openBody(w, r, c, judged)
	if err != nil {
		return in, err
	}
	defer done()
	key, keyProblem := requestKeyOf(c, r, judged)
	s := &bodySpooler{handler: h, ctx: r.Context(), connector: connector, key: key, wanted: keyProblem == nil}
	defer s.releaseSlot()
	body := media.newUpload(r, raw, key.compares, s.attachments())
	defer body.closeBody()
	s.body = body
	defer func() {
		in.files = body.files.files
		store.ReviewFiles(in.files, h.opts.ReviewBudget)
	}()
	var begun bytes.Buffer
	begun.Grow(int(min(max(lengthOf(r), 0), store.MaxInlineInput+1)) + bytes.MinRead)
	if _, err := io.CopyN(&begun, body, store.MaxInlineInput+1); err == nil { // the body is large
		if in.blob, err = s.spoolRest(begun.Bytes()); err != nil {
			return in, err
		}
	} else {
		in.inline = begun.Bytes()
	}
	if err := body.readProblem(); err != nil {
		return in, err
	}
	httpserver.BodyRead(w)
	if err := body.content.problem(); err != nil {
		return in, err
	}
	if keyProblem != nil {
		return in, keyProblem
	}
	in.idempotency, in.repeat = key.idempotency(body), s.repeat
	return in, media.formInput(&in)
}

// openBody returns the body, arriving or buffered. done frees its capacity.
func (h *Handler) openBody(w http.ResponseWriter, r *http.Request, c *webhook, judged *signedBody) (body io.Reader, done func(), err error) {
	if judged != nil { // it has its capacity already
		return judged.bodyReader(), func() {}, nil
	}
	size := incomingBytes(r)
	if err := quota.Refusal(h.incoming.Take(c.Connector.ProjectID, size), errManyIncoming, errAllIncoming); err != nil {
		return nil, nil, err
	}
	return httpserver.Paced(w, http.MaxBytesReader(w, r.Body, MaxBody), pace), func() { h.incoming.Give(c.Connector.ProjectID, size) }, nil
}

// incomingBytes returns the capacity that the start of a body needs.
func incomingBytes(r *http.Request) int64 {
	size := lengthOf(r)
	if size < 0 {
		return store.MaxInlineInput
	}
	return min(max(size, minIncoming), store.MaxInlineInput)
}

// isKnownKey reports whether an idempotency key exists.
func (h *Handler) isKnownKey(ctx context.Context, connector store.Key, key requestKey) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	known, err := h.opts.Store.KnownKey(ctx, connector, key.name)
	if err != nil {
		return false, fmt.Errorf("reading an idempotency key: %w", err)
	}
	return known, nil
}

// dropBlob deletes the blob of a body without an event. The store keeps a blob that an event uses. If the
// deletion fails, a sweep deletes the blob after a day.
func (h *Handler) dropBlob(ctx context.Context, blob store.Key) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	if err := h.opts.Store.DropBlob(ctx, blob); err != nil && !errors.Is(err, store.ErrConflict) {
		h.opts.Logger.Warn("deleting an unused body", "blob", blob, "error", err)
	}
}

// readProblem returns why a body could not be read completely.
func (u *bodyUpload) readProblem() error {
	var (
		problem httpserver.Problem
		stored  storeError
	)
	switch {
	case errors.Is(u.err, io.EOF):
		return nil
	case errors.As(u.err, &problem):
		return problem
	case errors.As(u.err, &stored):
		return stored.error
	case errors.As(u.err, new(*http.MaxBytesError)):
		return httpserver.NewProblem(http.StatusRequestEntityTooLarge, httpserver.CodeRequestTooLarge, tooLargeText)
	case httpserver.TooSlow(u.err):
		return httpserver.NewProblem(http.StatusRequestTimeout, httpserver.CodeTimeout, tooSlowText)
	}
	return httpserver.NewProblem(http.StatusBadRequest, httpserver.CodeBodyUnreadable, "The body is incomplete. Send the request again.")
}

var tooSlowText = fmt.Sprintf("The body did not arrive in time. Send at least %d KiB a second.", pace.BytesPerSecond>>10)
