// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/keyring"
	"github.com/agentplatform/agentplatform/internal/quota"
	"github.com/agentplatform/agentplatform/internal/seal"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/webhookgw/signature"
)

// Keys derive and open the secrets that providers sign with.
type Keys interface {
	// Secret derives one; an error where this process lacks the key.
	Secret(keyID string, of seal.Generated) (string, error)
	// Open opens what was sealed for a field.
	Open(field seal.Field, sealed []byte) ([]byte, error)
}

// signs says whether callers of a connector sign the body. GitLab's send a token, which is
// compared as other secrets are.
func signs(c store.Connector) bool {
	return c.RequireAuthentication && c.Signature != "" && c.Signature != string(signature.GitLab)
}

// signing are the secrets by which a request to a connector may be signed, in clear, and
// their digests.
type signing struct {
	secrets []string
	digests [][]byte
}

// signingOf are those of a connector that it accepts at present. Generated ones are
// derived, others were sealed for the gateway; which are valid their digests say.
func signingOf(c store.Connector, keys Keys) (s signing, err error) {
	if keys == nil {
		return s, keyring.ErrNoKeys
	}
	brought, err := broughtBy(c, keys)
	if err != nil {
		return s, err
	}
	for _, accepted := range c.Secrets {
		candidates := brought
		if accepted.Key != "" {
			derived, err := keys.Secret(accepted.Key, seal.Generated{
				ProjectID: c.ProjectID, ConnectorID: c.ID, Version: accepted.Version, Standard: c.Signature == string(signature.StandardWebhooks),
			})
			if err != nil {
				return s, fmt.Errorf("deriving it: %w", err)
			}
			candidates = []string{derived}
		}
		for _, candidate := range candidates {
			if bytes.Equal(seal.Digest(candidate), accepted.SHA256) {
				s.secrets, s.digests = append(s.secrets, candidate), append(s.digests, accepted.SHA256)
			}
		}
	}
	return s, nil
}

func broughtBy(c store.Connector, keys Keys) ([]string, error) {
	if len(c.Sealed) == 0 {
		return nil, nil
	}
	plain, err := keys.Open(seal.CredentialsField(c.ProjectID, c.ID), c.Sealed)
	if err != nil {
		return nil, fmt.Errorf("opening it: %w", err)
	}
	var credentials seal.Credentials
	if err := json.Unmarshal(plain, &credentials); err != nil {
		return nil, errors.New("it cannot be read") // the error would repeat it
	}
	return credentials.Secrets, nil
}

// signing are those of a connector; errKeyring where they cannot be had at present.
func (h *Handler) signing(c store.Connector) (signing, error) {
	s, err := signingOf(c, h.opts.Keys)
	if err != nil {
		h.opts.Logger.Error("reading the secret that signs for a connector", "connector", c.Key(), "error", err)
		return s, errKeyring
	}
	return s, nil
}

// signed is a body that is judged by its signature before anything is made of it: until then
// nothing of it is in the store. It lies in memory up to store.MaxInlineInput, and beyond
// that in a file which has no name, so that nothing stays of it whatever happens.
type signed struct {
	handler   *Handler
	connector store.Connector
	header    http.Header
	large     bool  // its length is not known to be small
	holds     int64 // of what may come in at once before it is judged
	memory    int64 // of what comes in at once
	secrets   signing
	verifier  *signature.Verifier
	begun     []byte   // its first store.MaxInlineInput bytes
	rest      *os.File // what comes after them; nil where nothing does
	size      int64
	place     bool // it has one among those that lie in files
	closed    bool
	proof     []byte // the signature that was right
	// free says that what was read costs nothing of what strangers may send: it is
	// right, or what went wrong is ours.
	free bool
}

// verified reads the body of a request and judges its signature; nil where callers do not
// sign. It returns the route by which it was judged. The caller closes what it returns.
func (h *Handler) verified(w http.ResponseWriter, r *http.Request, route store.Route, f *facts) (*signed, store.Route, error) {
	if !signs(route.Connector) {
		return nil, route, nil
	}
	s, err := h.signedBody(r, route.Connector)
	if err != nil {
		return nil, route, err
	}
	if err = s.take(httpserver.Paced(w, http.MaxBytesReader(w, r.Body, MaxBody), signedPace), lengthOf(r)); err == nil {
		httpserver.BodyRead(w)
		route, err = h.judged(r.Context(), route, s, f)
	}
	s.end()
	if err != nil {
		s.close()
		return nil, route, err
	}
	return s, route, nil
}

// signedBody begins a body. The caller ends and closes it.
func (h *Handler) signedBody(r *http.Request, c store.Connector) (*signed, error) {
	s := &signed{handler: h, connector: c, header: r.Header, memory: 2 * incoming(r)}
	length := lengthOf(r)
	s.large, s.holds = length < 0 || length > store.MaxInlineInput, unverified(r)
	var err error
	if s.secrets, err = h.signing(c); err != nil {
		return nil, err
	}
	if s.verifier, err = h.verifier(c, r.Header, s.secrets); err != nil {
		return nil, err
	}
	if !h.wrongs.begin(c.Key(), s.holds, s.large) {
		return nil, errManyUnverified
	}
	if err := quota.Refusal(h.incoming.Take(c.ProjectID, s.memory), errManyIncoming, errAllIncoming); err != nil {
		h.wrongs.end(c.Key(), s.holds, 0, s.large)
		return nil, err
	}
	s.begun = make([]byte, 0, min(max(length, 0), store.MaxInlineInput))
	return s, nil
}

// verifier judges by the clock of the moment. What is wrong with the headers was said when
// the request was admitted, unless they have grown old since.
func (h *Handler) verifier(c store.Connector, header http.Header, secrets signing) (*signature.Verifier, error) {
	v, err := signature.New(signature.Scheme(c.Signature), header, h.opts.Now(), secrets.secrets...)
	if err != nil {
		return nil, errUnsigned
	}
	return v, nil
}

// unverified is what a body holds of what may come in before it is judged.
func unverified(r *http.Request) int64 {
	if size := lengthOf(r); size >= 0 && size <= store.MaxInlineInput {
		return 2 * incoming(r) // as much as it takes of what comes in
	}
	return largeUnverified
}

// take reads the body to its end, if there is a place for one so long. What it returns is a
// Problem.
func (s *signed) take(in io.Reader, length int64) error {
	if length > store.MaxInlineInput {
		if err := s.file(); err != nil {
			return err
		}
	}
	if _, err := io.Copy(s, in); err != nil {
		return (&upload{err: err}).readProblem()
	}
	return nil
}

// Write takes the next piece. Errors are Problems, and ours.
func (s *signed) Write(piece []byte) (int, error) {
	_, _ = s.verifier.Write(piece) // which does not fail
	s.size += int64(len(piece))
	n := min(len(piece), store.MaxInlineInput-len(s.begun))
	s.begun = append(s.begun, piece[:n]...)
	if n == len(piece) {
		return n, nil
	}
	if err := s.file(); err != nil {
		return n, err
	}
	if more, err := s.rest.Write(piece[n:]); err != nil {
		return n + more, s.unspooled(err)
	}
	return len(piece), nil
}

// file begins the file, where there is a place for it.
func (s *signed) file() (err error) {
	if s.rest != nil {
		return nil
	}
	places := s.handler.spooled
	if err := quota.Refusal(places.Take(s.connector.ProjectID, 1), errManyUnverified, errAllBodies); err != nil {
		return err
	}
	s.place = true
	if s.rest, err = os.CreateTemp("", "webhook-body-*"); err != nil {
		return s.unspooled(err)
	}
	if err := os.Remove(s.rest.Name()); err != nil { //nolint:gosec // CreateTemp has made the name
		return s.unspooled(err)
	}
	return nil
}

// unspooled is what the caller is told of a file that failed, which is our fault.
func (s *signed) unspooled(err error) error {
	s.free = true
	s.handler.opts.Logger.Error("keeping a body until its signature is judged", "connector", s.connector.Key(), "error", err)
	return errUnspooled
}

// body reads what came in, from its beginning.
func (s *signed) body() io.Reader {
	if s.rest == nil {
		return bytes.NewReader(s.begun)
	}
	return io.MultiReader(bytes.NewReader(s.begun), io.NewSectionReader(s.rest, 0, s.size-int64(len(s.begun))))
}

// end says that the body was judged, or will not be.
func (s *signed) end() {
	read := s.size
	if s.free {
		read = 0
	}
	s.handler.wrongs.end(s.connector.Key(), s.holds, read, s.large)
}

// close forgets the body, once; a nil one is none.
func (s *signed) close() {
	if s == nil || s.closed {
		return
	}
	s.closed, s.begun = true, nil
	if s.rest != nil {
		_ = s.rest.Close() // with which it is gone
	}
	project := s.connector.ProjectID
	if s.place {
		s.handler.spooled.Give(project, 1)
	}
	s.handler.incoming.Give(project, s.memory)
}

// signer is the digest of the secret that has signed the body; nil if none has.
func (s *signed) signer(v *signature.Verifier, of signing) []byte {
	i, err := v.Verify()
	if err != nil {
		return nil
	}
	s.proof = v.Sum(i)
	return of.digests[i]
}

// judged takes a request whose body was read through the checks that come before what is
// wrong with its body: signature, state. It returns the route by which it was judged. A
// handshake is an error that answers it.
func (h *Handler) judged(ctx context.Context, route store.Route, s *signed, f *facts) (store.Route, error) {
	f.read, f.scheme = true, s.connector.Signature
	if f.signer = s.signer(s.verifier, s.secrets); f.signer == nil {
		if err := h.judgedFresh(ctx, s, f); err != nil {
			return route, err
		}
	}
	s.free = true
	asked, shakes := handshake(s.connector, s.begun)
	if f.handshake = shakes; admit(route, *f) != nil {
		var err error
		if route, err = h.admittedFresh(ctx, s.connector.Key(), *f); err != nil {
			return route, err
		}
	}
	if shakes {
		return route, asked
	}
	return route, nil
}

// judgedFresh judges a signature again by the connector as it is now: nobody is refused
// because of what was cached.
func (h *Handler) judgedFresh(ctx context.Context, s *signed, f *facts) error {
	fresh, err := h.routes.load(ctx, s.connector.Key())
	switch {
	case errors.Is(err, store.ErrNotFound):
		return notFound
	case err != nil:
		s.free = true
		return err
	case fresh.Connector.Signature != s.connector.Signature:
		return errSecretChanged
	}
	secrets, err := h.signing(fresh.Connector)
	switch {
	case err != nil:
		s.free = true
		return err
	case slices.Equal(secrets.secrets, s.secrets.secrets):
		return errUnsigned
	}
	v, err := h.verifier(fresh.Connector, s.header, secrets)
	if err != nil {
		return err
	}
	if _, err := io.Copy(v, s.body()); err != nil {
		return s.unspooled(err)
	}
	if f.signer = s.signer(v, secrets); f.signer == nil {
		return errUnsigned
	}
	return nil
}
