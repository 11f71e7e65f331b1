// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// annotationRequest holds, in an object that was created under an Idempotency-Key,
// the digest of the request that created it.
const annotationRequest = "agentplatform.dev/request-digest"

// MaxEarlierCalls is how many entries of the audit log are looked through for the
// same call before.
const MaxEarlierCalls = 200

// derivedCharacters is how many characters after the noun name an object that was
// created under an Idempotency-Key: 80 bits.
const derivedCharacters = 16

// DeriveBytes are 32 bytes that follow from project, API key, route, Idempotency-Key
// and noun. Only who has the API key can tell them beforehand: the id of a webhook
// without authentication is its only secret.
func (c *Caller) DeriveBytes(noun string) []byte {
	mac := hmac.New(sha256.New, c.proof[:])
	for _, part := range []string{c.ProjectID.String(), c.Endpoint.ID, c.IdempotencyKey, noun} {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		mac.Write(length[:])
		mac.Write([]byte(part))
	}
	return mac.Sum(nil)
}

// NewMeta names an object to create: after the title that people gave it, or under an
// Idempotency-Key after that, so that Kubernetes itself refuses the second one.
func (c *Caller) NewMeta(ctx context.Context, noun, title string) (metav1.ObjectMeta, v1alpha1.UUID) {
	id := v1alpha1.UUID(c.NewID(noun).String())
	if c.IdempotencyKey == "" {
		suffix := strings.ToLower(rand.Text())[:5]
		return metav1.ObjectMeta{Namespace: c.Namespace, Name: v1alpha1.NameFor(title, noun, suffix)}, id
	}
	text := strings.ToLower(base32.StdEncoding.EncodeToString(c.DeriveBytes(noun)[16:]))
	return metav1.ObjectMeta{
		Namespace: c.Namespace, Name: noun + "-" + text[:derivedCharacters],
		Annotations: map[string]string{annotationRequest: trailOf(ctx).digest()},
	}, id
}

// NewID is the id of what a call creates: a random one, or under an Idempotency-Key the one
// that follows from that.
func (c *Caller) NewID(noun string) uuid.UUID {
	if c.IdempotencyKey == "" {
		return uuid.New()
	}
	id := uuid.UUID(c.DeriveBytes(noun)[:16])
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80 // formed as version 4
	return id
}

// digest is of the request: its path, its query and its body.
func (t *trail) digest() string {
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\n%s\n%x", t.path, t.query, t.body.Sum(nil))
	return hex.EncodeToString(sum.Sum(nil))
}

// makeOne creates an object. Where one was created under the same Idempotency-Key
// before, by the same request, o becomes that one: whatever the answer to another
// attempt is, for quotas and policies are asked before the name is. made says that
// what is there now, if anything, is of this call alone.
func (s *Service) makeOne(ctx context.Context, o client.Object) (made bool, err error) {
	digest, keyed := o.GetAnnotations()[annotationRequest]
	err = s.Client.Create(ctx, o, client.FieldOwner(FieldManager))
	if !keyed {
		return !apierrors.IsAlreadyExists(err), err // its name is random
	}
	if err == nil {
		return true, nil
	}
	if s.Client.Get(ctx, client.ObjectKeyFromObject(o), o) != nil {
		return false, err // that says more
	}
	if o.GetAnnotations()[annotationRequest] != digest {
		return false, ErrKeyReused
	}
	return false, nil
}

// ErrKeyReused is the response if another request had the same Idempotency-Key.
var ErrKeyReused = NewProblem(http.StatusUnprocessableEntity, httpserver.CodeKeyReused,
	"another request was sent with this Idempotency-Key; use a new key for each new request")

// cameThrough says whether a call about what is done may have been the one that did
// it: it succeeded, or it was cut off, or it failed on our side.
func cameThrough(outcome *store.AuditOutcome, success int) bool {
	return outcome == nil || outcome.Status == success || outcome.Status >= http.StatusInternalServerError
}

// HasDone says whether a call that finds nothing to do any more repeats one that
// this API key has made before.
func (s *Service) HasDone(ctx context.Context, c *Caller, id ID) (bool, error) {
	earlier, err := s.EarlierCalls(ctx, c)
	return slices.ContainsFunc(earlier, func(e store.AuditEntry) bool { return strings.EqualFold(e.Object.ID, id.String()) }), err
}

// EarlierCalls are the calls of the same route that this API key has made under the same
// Idempotency-Key and that may have done what they asked for; none without such a
// key. The audit log knows, also of a call that was cut off before its outcome was
// recorded.
func (s *Service) EarlierCalls(ctx context.Context, c *Caller) ([]store.AuditEntry, error) {
	if c.IdempotencyKey == "" {
		return nil, nil
	}
	entries, err := s.Store.ListAudit(ctx, store.AuditQuery{ProjectID: c.ProjectID, Limit: MaxEarlierCalls})
	if err != nil {
		return nil, fmt.Errorf("looking for an earlier call: %w", err)
	}
	return slices.DeleteFunc(entries, func(e store.AuditEntry) bool {
		own := e.ID != trailOf(ctx).entry.ID && e.Actor.KeyID == c.Key.Spec.KeyID && e.Actor.Name == c.Key.Name
		same := e.Operation == c.Endpoint.ID && e.IdempotencyKey == c.IdempotencyKey
		return !own || !same || !cameThrough(e.Outcome, c.Endpoint.Status)
	}), nil
}
