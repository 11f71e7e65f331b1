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

// input is a body, or a query, as it is committed: inline, as a blob or, where its key
// is known already, not at all.
type input struct {
	contentType string
	inline      []byte
	blob        *uuid.UUID
	files       []store.File
	repeat      bool
	idempotency *store.Idempotency
}

// blobs are those that were written for an input, whole or not.
func (in input) blobs() (ids []uuid.UUID) {
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

// readInput reads and checks the body of a request that was admitted, and stores a
// large one, and its files, while they come in, or are read from where they were judged.
// Problems are errors of the caller's, or say that there is no room. It returns what was
// written also with an error.
func (h *Handler) readInput(w http.ResponseWriter, r *http.Request, c store.Connector, judged *signed) (in input, err error) {
	connector := c.Key()
	media, err := mediaOf(r)
	if err != nil {
		return in, err
	}
	raw, done, err := h.raw(w, r, c, judged)
	if err != nil {
		return in, err
	}
	defer done()
	key, keyProblem := keyFor(c, r, judged)
	s := &spooling{handler: h, ctx: r.Context(), connector: connector, key: key, wanted: keyProblem == nil}
	defer s.end()
	body := media.upload(r, raw, key.compares, s.attachments())
	defer body.close()
	s.body = body
	defer func() {
		in.files = body.files.files
		store.ReviewFiles(in.files, h.opts.ReviewBudget)
	}()
	var begun bytes.Buffer
	begun.Grow(int(min(max(lengthOf(r), 0), store.MaxInlineInput+1)) + bytes.MinRead)
	if _, err := io.CopyN(&begun, body, store.MaxInlineInput+1); err == nil { // there is more
		if in.blob, err = s.rest(begun.Bytes()); err != nil {
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
	return in, media.form(&in)
}

// raw is a body as it came, or comes in; done gives back what it holds.
func (h *Handler) raw(w http.ResponseWriter, r *http.Request, c store.Connector, judged *signed) (body io.Reader, done func(), err error) {
	if judged != nil { // it has taken what it holds
		return judged.body(), func() {}, nil
	}
	size := incoming(r)
	if err := quota.Refusal(h.incoming.Take(c.ProjectID, size), errManyIncoming, errAllIncoming); err != nil {
		return nil, nil, err
	}
	return httpserver.Paced(w, http.MaxBytesReader(w, r.Body, MaxBody), pace), func() { h.incoming.Give(c.ProjectID, size) }, nil
}

// incoming is what the beginning of a body takes of what may come in at once.
func incoming(r *http.Request) int64 {
	size := lengthOf(r)
	if size < 0 {
		return store.MaxInlineInput
	}
	return min(max(size, minIncoming), store.MaxInlineInput)
}

// known says whether a key stands for a request.
func (h *Handler) known(ctx context.Context, connector store.Key, key requestKey) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	known, err := h.opts.Store.KnownKey(ctx, connector, key.name)
	if err != nil {
		return false, fmt.Errorf("looking for an idempotency key: %w", err)
	}
	return known, nil
}

// drop deletes the blob of a body that became no event. One of which that is not known
// is kept where it did; what cannot be deleted now is swept after a day.
func (h *Handler) drop(ctx context.Context, blob store.Key) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	if err := h.opts.Store.DropBlob(ctx, blob); err != nil && !errors.Is(err, store.ErrConflict) {
		h.opts.Logger.Warn("deleting a body that became no event", "blob", blob, "error", err)
	}
}

// readProblem says why a body was not read to its end.
func (u *upload) readProblem() error {
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
		return httpserver.NewProblem(http.StatusRequestEntityTooLarge, httpserver.CodeRequestTooLarge, tooLarge)
	case httpserver.TooSlow(u.err):
		return httpserver.NewProblem(http.StatusRequestTimeout, httpserver.CodeTimeout, tooSlow)
	}
	return httpserver.NewProblem(http.StatusBadRequest, httpserver.CodeBodyUnreadable, "The body could not be read whole; send the request again.")
}

var tooSlow = fmt.Sprintf("The body did not come in time. Send it faster: with at least %d KiB a second.", pace.BytesPerSecond>>10)
