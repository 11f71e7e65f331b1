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
	"slices"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/keyring"
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

// signed is a body that comes in, and is judged by its signature at its end.
type signed struct {
	in        io.Reader
	connector store.Connector
	header    http.Header
	wrongs    *wrongs
	holds     int64 // of what may come in at once
	secrets   signing
	verifier  *signature.Verifier
	read      int64
	begun     []byte // the whole body, as long as it is no larger than store.MaxInlineInput
	err       error  // with which reading ended
	// free says that what was read costs nothing of what strangers may send: it is
	// right, or what went wrong is ours.
	free bool
}

// signedBody begins a body; nil where callers do not sign. The caller ends it.
func (h *Handler) signedBody(r *http.Request, route store.Route) (*signed, error) {
	c := route.Connector
	if !signs(c) {
		return nil, nil
	}
	s := &signed{connector: c, header: r.Header, wrongs: h.wrongs, holds: unverified(r)}
	s.begun = make([]byte, 0, min(max(lengthOf(r), 0), store.MaxInlineInput))
	var err error
	if s.secrets, err = h.signing(c); err != nil {
		return nil, err
	}
	if s.verifier, err = h.verifier(c, r.Header, s.secrets); err != nil {
		return nil, err
	}
	if !h.wrongs.begin(c.Key(), s.holds) {
		return nil, errManyUnverified
	}
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
		return 2 * incoming(r) // as much as readInput takes
	}
	return largeUnverified
}

// end gives back what the body holds; a nil one holds nothing.
func (s *signed) end() {
	if s == nil {
		return
	}
	read := s.read
	if s.free {
		read = 0
	}
	s.wrongs.end(s.connector.Key(), s.holds, read)
}

// from reads a body through its judge, if it has one.
func (s *signed) from(in io.Reader) io.Reader {
	if s == nil {
		return in
	}
	s.in = in
	return s
}

// Read implements io.Reader.
func (s *signed) Read(piece []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.in.Read(piece)
	s.err = err
	_, _ = s.verifier.Write(piece[:n]) // which does not fail
	if s.read += int64(n); s.read <= store.MaxInlineInput {
		s.begun = append(s.begun, piece[:n]...)
	} else {
		s.begun = nil
	}
	return n, err
}

// rest reads what of the body nobody wanted: it was signed too.
func (s *signed) rest() error {
	if _, err := io.Copy(io.Discard, s); err != nil {
		return (&upload{err: err}).readProblem()
	}
	return nil
}

// signer is the digest of the secret that has signed the body; nil if none has.
func (s *signed) signer(v *signature.Verifier, of signing) []byte {
	i, err := v.Verify()
	if err != nil {
		return nil
	}
	return of.digests[i]
}

// judged takes a request whose body was read, as well as bodyErr allows, through the checks
// that come before what is wrong with its body: signature, state. It returns the route by
// which it was judged.
func (h *Handler) judged(ctx context.Context, route store.Route, s *signed, f *facts, bodyErr error) (store.Route, error) {
	var problem httpserver.Problem
	if bodyErr != nil && (!errors.As(bodyErr, &problem) || problem.RetryAfter > 0) {
		s.free = true
		return route, bodyErr // there is no room, or no store
	}
	if err := s.rest(); err != nil {
		return route, err
	}
	f.scheme = s.connector.Signature
	if f.signer = s.signer(s.verifier, s.secrets); f.signer == nil {
		if err := h.judgedFresh(ctx, s, f); err != nil {
			return route, err
		}
	}
	s.free = true
	if admit(route, *f) == nil {
		return route, nil
	}
	return h.admittedFresh(ctx, s.connector.Key(), *f)
}

// judgedFresh judges a signature again by the connector as it is now: nobody is refused
// because of what was cached.
func (h *Handler) judgedFresh(ctx context.Context, s *signed, f *facts) error {
	fresh, err := h.routes.load(ctx, s.connector.Key())
	switch {
	case errors.Is(err, store.ErrNotFound):
		return notFound
	case err != nil:
		return err
	case fresh.Connector.Signature != s.connector.Signature:
		return errSecretChanged
	}
	secrets, err := h.signing(fresh.Connector)
	switch {
	case err != nil:
		return err
	case slices.Equal(secrets.secrets, s.secrets.secrets):
		return errUnsigned
	case s.begun == nil && s.read > 0:
		return errSecretChanged // the body is not there to be judged again
	}
	v, err := h.verifier(fresh.Connector, s.header, secrets)
	if err != nil {
		return err
	}
	_, _ = v.Write(s.begun) // which does not fail
	if f.signer = s.signer(v, secrets); f.signer == nil {
		return errUnsigned
	}
	return nil
}
