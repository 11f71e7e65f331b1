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

// spooling stores what of one request is too large for a row, and its files, while they
// come in: with a place among large bodies, and not where its key is known.
type spooling struct {
	handler   *Handler
	ctx       context.Context //nolint:containedctx // the request's, for readers that take none
	cancel    context.CancelFunc
	connector store.Key
	key       requestKey
	wanted    bool // the headers are right
	body      *upload
	begun     bool
	err       error // with which it began
	repeat    bool  // the key is known
}

// begin takes a place and asks for the key, once. Errors say that there is no room, or are
// the store's.
func (s *spooling) begin() error {
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
		s.repeat, s.err = h.known(s.ctx, s.connector, s.key)
	}
	return s.err
}

// end gives the place back.
func (s *spooling) end() {
	if s.cancel != nil {
		s.cancel()
		s.handler.bodies.Give(s.connector.ProjectID, 1)
	}
}

// stores says whether anything is stored: not of what will be refused, or is known.
func (s *spooling) stores() bool { return s.wanted && !s.repeat && !s.body.refused() }

// rest reads the rest of a body after its beginning, and stores both. What is wrong with
// the body it knows itself. It returns the id of a blob also with an error: some of it may
// be there.
func (s *spooling) rest(begun []byte) (blob *uuid.UUID, err error) {
	if err := s.begin(); err != nil {
		return nil, err
	}
	if s.stores() {
		id, err := uuid.NewV7()
		if err != nil {
			return nil, fmt.Errorf("making an id: %w", err)
		}
		blob = &id
		if err := s.put(id, io.MultiReader(bytes.NewReader(begun), unrefused{s.body})); err != nil && !s.body.refused() {
			return blob, err
		}
	}
	_, _ = io.Copy(io.Discard, s.body) // of one that is not stored; how it ended it knows
	return blob, nil
}

func (s *spooling) put(blob uuid.UUID, r io.Reader) error {
	if _, err := s.handler.opts.Store.PutBlob(s.ctx, store.Key{ProjectID: s.connector.ProjectID, ID: blob}, r); err != nil {
		return fmt.Errorf("storing the body: %w", err)
	}
	return nil
}

// attachments takes the files of the request.
func (s *spooling) attachments() *attachments {
	return &attachments{
		put: func(blob uuid.UUID, r io.Reader) error {
			switch err := s.begin(); {
			case err != nil:
				return err
			case !s.stores():
				return errNotStored
			}
			return s.put(blob, r)
		},
		drop: func(blob uuid.UUID) {
			s.handler.drop(s.ctx, store.Key{ProjectID: s.connector.ProjectID, ID: blob})
		},
	}
}

// errRefused ends the storing of a body that will be refused.
var errRefused = errors.New("the body will be refused")
