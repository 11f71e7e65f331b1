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
	"github.com/agentplatform/agentplatform/internal/quota"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/webhookgw/signature"
)

// Keys derives and opens the secrets that providers sign with.
type Keys interface {
	// Secret derives a secret. It fails if this process lacks the key.
	Secret(keyID string, of secrets.Generated) (string, error)
	// Open opens a value that was sealed for a field.
	Open(field secrets.Field, sealed []byte) ([]byte, error)
}

// signing has the plaintext secrets that can sign requests to a connector, and their digests.
type signing struct {
	secrets []string
	digests [][]byte
}

// signingOf returns the secrets that a connector currently accepts. Generated secrets are derived,
// others are unsealed. The digests in the connector decide which are valid.
func signingOf(c *webhook, keys Keys) (s signing, err error) {
	if keys == nil {
		return s, secrets.ErrNoKeys
	}
	brought, err := broughtBy(&c.Connector, keys)
	if err != nil {
		return s, err
	}
	for _, accepted := range c.Connector.Secrets {
		candidates := brought
		if accepted.Key != "" {
			derived, err := keys.Secret(accepted.Key, secrets.Generated{
				ProjectID: c.Connector.ProjectID, ConnectorID: c.Connector.ID, Version: accepted.Version, Standard: c.scheme == signature.StandardWebhooks,
			})
			if err != nil {
				return s, fmt.Errorf("deriving the secret: %w", err)
			}
			candidates = []string{derived}
		}
		for _, candidate := range candidates {
			if bytes.Equal(secrets.Digest(candidate), accepted.SHA256) {
				s.secrets, s.digests = append(s.secrets, candidate), append(s.digests, accepted.SHA256)
			}
		}
	}
	return s, nil
}

func broughtBy(c *store.Connector, keys Keys) ([]string, error) {
	if len(c.Sealed) == 0 {
		return nil, nil
	}
	plain, err := keys.Open(secrets.CredentialsField(c.ProjectID, c.ID), c.Sealed)
	if err != nil {
		return nil, fmt.Errorf("opening the secret: %w", err)
	}
	var credentials secrets.Credentials
	if err := json.Unmarshal(plain, &credentials); err != nil {
		return nil, errors.New("it cannot be read") // the JSON error would contain the secret
	}
	return credentials.Secrets, nil
}

// signing returns the secrets of a connector, or errKeyring if they are not available.
func (h *Handler) signing(c *webhook) (signing, error) {
	s, err := signingOf(c, h.opts.Keys)
	if err != nil {
		h.opts.Logger.Error("reading the signing secret of a connector", "connector", c.Connector.Key(), "error", err)
		return s, errKeyring
	}
	return s, nil
}

// signedBody is a body whose signature is verified before the body is used. Until then nothing of it is
// in the store. The first store.MaxInlineInput bytes are in memory and the rest in an unnamed file,
// which the system deletes in any case.
type signedBody struct {
	handler  *Handler
	webhook  *webhook
	header   http.Header
	large    bool  // its length is unknown or large
	holds    int64 // reserved capacity before verification
	memory   int64 // reserved memory for incoming bodies
	secrets  signing
	verifier *signature.Verifier
	begun    []byte   // the first store.MaxInlineInput bytes
	rest     *os.File // the bytes after them, or nil
	size     int64
	hasSlot  bool // of the spooled files
	closed   bool
	proof    []byte // the right signature
	// free means that the body does not count as wrong bytes: its signature is right, or the error
	// is ours.
	free bool
}

// verified reads the body of a request and verifies its signature. It returns nil if callers do not
// sign. It also returns the route of the verification. The caller closes the body.
func (h *Handler) verified(w http.ResponseWriter, r *http.Request, route *webhook, f *requestFacts) (*signedBody, *webhook, error) {
	if !route.signsBody() {
		return nil, route, nil
	}
	s, err := h.signedBody(r, route)
	if err != nil {
		return nil, route, err
	}
	if err = s.readBody(httpserver.Paced(w, http.MaxBytesReader(w, r.Body, MaxBody), signedPace), lengthOf(r)); err == nil {
		httpserver.BodyRead(w)
		route, err = h.verifySigned(r.Context(), route, s, f)
	}
	s.releaseBytes()
	if err != nil {
		s.closeFile()
		return nil, route, err
	}
	return s, route, nil
}

// signedBody starts a body. The caller ends and closes it.
func (h *Handler) signedBody(r *http.Request, c *webhook) (*signedBody, error) {
	s := &signedBody{handler: h, webhook: c, header: r.Header, memory: 2 * incomingBytes(r)}
	length := lengthOf(r)
	s.large, s.holds = length < 0 || length > store.MaxInlineInput, unverified(r)
	var err error
	if s.secrets, err = h.signing(c); err != nil {
		return nil, err
	}
	if s.verifier, err = h.verifier(c, r.Header, s.secrets); err != nil {
		return nil, err
	}
	if !h.wrongs.reserveBody(c.Connector.Key(), s.holds, s.large) {
		return nil, errManyUnverified
	}
	if err := quota.Refusal(h.incoming.Take(c.Connector.ProjectID, s.memory), errManyIncoming, errAllIncoming); err != nil {
		h.wrongs.settleBody(c.Connector.Key(), s.holds, 0, s.large)
		return nil, err
	}
	s.begun = make([]byte, 0, min(max(length, 0), store.MaxInlineInput))
	return s, nil
}

// verifier returns a verifier for the current time. Errors in the headers were reported at the
// admission, unless the signature expired since.
func (h *Handler) verifier(c *webhook, header http.Header, secrets signing) (*signature.Verifier, error) {
	v, err := signature.New(c.scheme, header, h.opts.Now(), secrets.secrets...)
	if err != nil {
		return nil, errUnsigned
	}
	return v, nil
}

// unverified returns the capacity that a body needs before verification.
func unverified(r *http.Request) int64 {
	if size := lengthOf(r); size >= 0 && size <= store.MaxInlineInput {
		return 2 * incomingBytes(r) // the capacity of incoming bodies and of unverified ones
	}
	return largeUnverified
}

// readBody reads the body to its end, if a slot is free for its length. It returns Problems.
func (s *signedBody) readBody(in io.Reader, length int64) error {
	if length > store.MaxInlineInput {
		if err := s.openFile(); err != nil {
			return err
		}
	}
	if _, err := io.Copy(s, in); err != nil {
		return (&bodyUpload{err: err}).readProblem()
	}
	return nil
}

// Write stores the next part. Its errors are internal Problems.
func (s *signedBody) Write(piece []byte) (int, error) {
	_, _ = s.verifier.Write(piece) // never fails
	s.size += int64(len(piece))
	n := min(len(piece), store.MaxInlineInput-len(s.begun))
	s.begun = append(s.begun, piece[:n]...)
	if n == len(piece) {
		return n, nil
	}
	if err := s.openFile(); err != nil {
		return n, err
	}
	if more, err := s.rest.Write(piece[n:]); err != nil {
		return n + more, s.unspooled(err)
	}
	return len(piece), nil
}

// openFile creates the file, if a slot is free.
func (s *signedBody) openFile() (err error) {
	if s.rest != nil {
		return nil
	}
	slots := s.handler.spooled
	if err := quota.Refusal(slots.Take(s.webhook.Connector.ProjectID, 1), errManyUnverified, errAllBodies); err != nil {
		return err
	}
	s.hasSlot = true
	if s.rest, err = os.CreateTemp("", "webhook-body-*"); err != nil {
		return s.unspooled(err)
	}
	if err := os.Remove(s.rest.Name()); err != nil { //nolint:gosec // the name is from CreateTemp
		return s.unspooled(err)
	}
	return nil
}

// unspooled returns the response for a failed file, which is an internal error.
func (s *signedBody) unspooled(err error) error {
	s.free = true
	s.handler.opts.Logger.Error("buffering a body to verify its signature", "connector", s.webhook.Connector.Key(), "error", err)
	return errUnspooled
}

// bodyReader returns a reader of the whole body.
func (s *signedBody) bodyReader() io.Reader {
	if s.rest == nil {
		return bytes.NewReader(s.begun)
	}
	return io.MultiReader(bytes.NewReader(s.begun), io.NewSectionReader(s.rest, 0, s.size-int64(len(s.begun))))
}

// releaseBytes ends the unverified phase: the body was verified or never will be.
func (s *signedBody) releaseBytes() {
	read := s.size
	if s.free {
		read = 0
	}
	s.handler.wrongs.settleBody(s.webhook.Connector.Key(), s.holds, read, s.large)
}

// closeFile frees the body, once. It does nothing for nil.
func (s *signedBody) closeFile() {
	if s == nil || s.closed {
		return
	}
	s.closed, s.begun = true, nil
	if s.rest != nil {
		_ = s.rest.Close() // this also deletes the file
	}
	project := s.webhook.Connector.ProjectID
	if s.hasSlot {
		s.handler.spooled.Give(project, 1)
	}
	s.handler.incoming.Give(project, s.memory)
}

// signerDigest returns the digest of the secret that signed the body, or nil.
func (s *signedBody) signerDigest(v *signature.Verifier, of signing) []byte {
	i, err := v.Verify()
	if err != nil {
		return nil
	}
	s.proof = v.Sum(i)
	return of.digests[i]
}

// verifySigned runs the checks of a request with a read body that come before the content of the body:
// signature and state. It returns the route of the checks. It returns a handshake as an error.
func (h *Handler) verifySigned(ctx context.Context, route *webhook, s *signedBody, f *requestFacts) (*webhook, error) {
	f.read, f.scheme = true, s.webhook.scheme
	if f.signer = s.signerDigest(s.verifier, s.secrets); f.signer == nil {
		if err := h.judgedFresh(ctx, s, f); err != nil {
			return route, err
		}
	}
	s.free = true
	asked, shakes := handshake(s.webhook, s.begun)
	if f.handshake = shakes; admitRequest(route, *f) != nil {
		var err error
		if route, err = h.admittedFreshRoute(ctx, s.webhook.Connector.Key(), *f); err != nil {
			return route, err
		}
	}
	if shakes {
		return route, asked
	}
	return route, nil
}

// judgedFresh verifies a signature again with the current connector, so that no request is rejected
// because of an outdated cache.
func (h *Handler) judgedFresh(ctx context.Context, s *signedBody, f *requestFacts) error {
	fresh, err := h.routes.loadRoute(ctx, s.webhook.Connector.Key())
	switch {
	case errors.Is(err, store.ErrNotFound):
		return notFound
	case err != nil:
		s.free = true
		return err
	case fresh.scheme != s.webhook.scheme:
		return errSecretChanged
	}
	secrets, err := h.signing(fresh)
	switch {
	case err != nil:
		s.free = true
		return err
	case slices.Equal(secrets.secrets, s.secrets.secrets):
		return errUnsigned
	}
	v, err := h.verifier(fresh, s.header, secrets)
	if err != nil {
		return err
	}
	if _, err := io.Copy(v, s.bodyReader()); err != nil {
		return s.unspooled(err)
	}
	if f.signer = s.signerDigest(v, secrets); f.signer == nil {
		return errUnsigned
	}
	return nil
}
