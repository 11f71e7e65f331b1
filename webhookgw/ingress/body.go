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
	repeat      bool
	idempotency *store.Idempotency
}

// readInput reads and checks the body of a request that was admitted, and stores a
// large one while it comes in. Problems are errors of the caller's, or say that
// there is no room.
func (h *Handler) readInput(w http.ResponseWriter, r *http.Request, connector store.Key) (in input, err error) {
	media, err := mediaOf(r)
	if err != nil {
		return in, err
	}
	size := incoming(r)
	if err := quota.Refusal(h.incoming.Take(connector.ProjectID, size), errManyIncoming, errAllIncoming); err != nil {
		return in, err
	}
	defer h.incoming.Give(connector.ProjectID, size)
	key, keyProblem := keyOfRequest(r)
	body := media.upload(w, r, key.compares)
	var begun bytes.Buffer
	begun.Grow(int(min(max(lengthOf(r), 0), store.MaxInlineInput+1)) + bytes.MinRead)
	if _, err := io.CopyN(&begun, body, store.MaxInlineInput+1); err == nil { // there is more
		if in, err = h.readLarge(r, large{connector, key, begun.Bytes(), body, keyProblem == nil}); err != nil {
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
	in.idempotency = key.idempotency(body)
	return in, media.form(&in)
}

// incoming is what the beginning of a body takes of what may come in at once.
func incoming(r *http.Request) int64 {
	size := lengthOf(r)
	if size < 0 {
		return store.MaxInlineInput
	}
	return min(max(size, minIncoming), store.MaxInlineInput)
}

// large is a body of which more than a row holds has come.
type large struct {
	connector store.Key
	key       requestKey
	begun     []byte
	rest      *upload
	wanted    bool // the headers are right
}

// readLarge reads the rest of a body. It is stored, unless it will be refused or
// its key is known. Errors say that there is no room, or are the store's; what is
// wrong with the body it knows itself.
func (h *Handler) readLarge(r *http.Request, l large) (in input, err error) {
	project := l.connector.ProjectID
	if err := quota.Refusal(h.bodies.Take(project, 1), errManyBodies, errAllBodies); err != nil {
		return in, err
	}
	defer h.bodies.Give(project, 1)
	ctx, cancel := context.WithTimeout(r.Context(), spoolTimeout)
	defer cancel()
	if l.key.name != "" {
		if in.repeat, err = h.known(ctx, l.connector, l.key); err != nil {
			return in, err
		}
	}
	if l.wanted && !in.repeat && !l.rest.refused() {
		in.blob, err = h.spool(ctx, project, io.MultiReader(bytes.NewReader(l.begun), unrefused{l.rest}))
		if err != nil && !l.rest.refused() {
			return in, err
		}
	}
	_, _ = io.Copy(io.Discard, l.rest) // of one that is not stored; how it ended it knows
	return in, nil
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

// spool writes what is too large for a row into a blob. It returns its id also with an
// error: some of it may be there.
func (h *Handler) spool(ctx context.Context, project uuid.UUID, body io.Reader) (*uuid.UUID, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, fmt.Errorf("making an id: %w", err)
	}
	if _, err := h.opts.Store.PutBlob(ctx, store.Key{ProjectID: project, ID: id}, body); err != nil {
		return &id, fmt.Errorf("storing the body: %w", err)
	}
	return &id, nil
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
	var problem httpserver.Problem
	switch {
	case errors.Is(u.err, io.EOF):
		return nil
	case errors.As(u.err, &problem):
		return problem
	case errors.As(u.err, new(*http.MaxBytesError)):
		return httpserver.NewProblem(http.StatusRequestEntityTooLarge, httpserver.CodeRequestTooLarge, tooLarge)
	case httpserver.TooSlow(u.err):
		return httpserver.NewProblem(http.StatusRequestTimeout, httpserver.CodeTimeout, tooSlow)
	}
	return httpserver.NewProblem(http.StatusBadRequest, httpserver.CodeBodyUnreadable, "The body could not be read whole; send the request again.")
}

var tooSlow = fmt.Sprintf("The body did not come in time. Send it faster: with at least %d KiB a second.", pace.BytesPerSecond>>10)
