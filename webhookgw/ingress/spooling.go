// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/quota"
	"github.com/agentplatform/agentplatform/store"
)

// bodySpooler stores a large body and the files of a request while they arrive. It needs a slot for
// large bodies, and stores nothing if the idempotency key is known.
type bodySpooler struct {
	handler   *Handler
	ctx       context.Context //nolint:containedctx // of the request, for readers without a context
	cancel    context.CancelFunc
	connector store.Key
	key       requestKey
	wanted    bool // the headers are right
	body      *bodyUpload
	begun     bool
	err       error // the error of begin
	repeat    bool  // the key is known
}

// acquireSlot takes a slot and checks the key, once. Its errors mean that there is no capacity, or are
// errors of the store.
func (s *bodySpooler) acquireSlot() error {
	if s.begun {
		return s.err
	}
	s.begun = true
	h, project := s.handler, s.connector.ProjectID
	if s.err = quota.Refusal(h.bodies.Take(project, 1), errManyBodies, errAllBodies); s.err != nil {
		return s.err
	}
	s.ctx, s.cancel = context.WithTimeout(s.ctx, spoolTimeout)
	if s.key.name != "" {
		s.repeat, s.err = h.isKnownKey(s.ctx, s.connector, s.key)
	}
	return s.err
}

// releaseSlot frees the slot.
func (s *bodySpooler) releaseSlot() {
	if s.cancel != nil {
		s.cancel()
		s.handler.bodies.Give(s.connector.ProjectID, 1)
	}
}

// isStored reports whether anything is stored: not for requests that will be rejected or are
// duplicates.
func (s *bodySpooler) isStored() bool { return s.wanted && !s.repeat && !s.body.refused() }

// spoolRest reads the rest of a body after its start, and stores both. The body itself records errors in
// its content. With an error, rest also returns the ID of a blob that may be partly written.
func (s *bodySpooler) spoolRest(begun []byte) (blob *uuid.UUID, err error) {
	if err := s.acquireSlot(); err != nil {
		return nil, err
	}
	if s.isStored() {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, fmt.Errorf("generating an ID: %w", err)
		}
		blob = &id
		if err := s.putBlob(id, io.MultiReader(bytes.NewReader(begun), unrefusedUpload{s.body})); err != nil && !s.body.refused() {
			return blob, err
		}
	}
	_, _ = io.Copy(io.Discard, s.body) // not stored; the body records how it ended
	return blob, nil
}

func (s *bodySpooler) putBlob(blob uuid.UUID, r io.Reader) error {
	if _, err := s.handler.opts.Store.PutBlob(s.ctx, store.Key{ProjectID: s.connector.ProjectID, ID: blob}, r); err != nil {
		return fmt.Errorf("storing the body: %w", err)
	}
	return nil
}

// attachments returns the storage for the files of the request.
func (s *bodySpooler) attachments() *attachments {
	return &attachments{
		put: func(blob uuid.UUID, r io.Reader) error {
			switch err := s.acquireSlot(); {
			case err != nil:
				return err
			case !s.isStored():
				return errNotStored
			}
			return s.putBlob(blob, r)
		},
		drop: func(blob uuid.UUID) {
			s.handler.dropBlob(s.ctx, store.Key{ProjectID: s.connector.ProjectID, ID: blob})
		},
	}
}

// errRefused stops storing a body that will be rejected.
var errRefused = errors.New("the body will be rejected")
