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

// annotationRequest holds the digest of the request that created an object with an Idempotency-Key.
const annotationRequest = "agentplatform.dev/request-digest"

// MaxEarlierCalls is how many audit entries EarlierCalls reads.
const MaxEarlierCalls = 200

// derivedCharacters is the number of random characters in the name of an object that was created with an
// Idempotency-Key: 80 bits.
const derivedCharacters = 16

// DeriveBytes returns 32 bytes that are derived from project, API key, route, Idempotency-Key and noun. Only the owner
// of the API key can predict them: the ID of a webhook without authentication is its only secret.
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

// NewMeta returns the metadata and the ID of an object to create. With an Idempotency-Key the name is derived from the
// key, so that Kubernetes rejects a second object. Otherwise it begins with the title.
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

// NewID returns the ID of an object to create: derived from the Idempotency-Key if there is one, else random.
func (c *Caller) NewID(noun string) uuid.UUID {
	if c.IdempotencyKey == "" {
		return uuid.New()
	}
	id := uuid.UUID(c.DeriveBytes(noun)[:16])
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80 // formatted as version 4
	return id
}

// digest identifies path, query and body of the request.
func (t *trail) digest() string {
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\n%s\n%x", t.path, t.query, t.body.Sum(nil))
	return hex.EncodeToString(sum.Sum(nil))
}

// createOnce creates an object. If the same request created it before with the same Idempotency-Key, o becomes that
// object, even if Create fails: quotas and policies run before the check of the name. made reports that no other call
// created the object.
func (s *Service) createOnce(ctx context.Context, o client.Object) (made bool, err error) {
	digest, keyed := o.GetAnnotations()[annotationRequest]
	err = s.Client.Create(ctx, o, client.FieldOwner(FieldManager))
	if !keyed {
		return !apierrors.IsAlreadyExists(err), err // the name is random
	}
	if err == nil {
		return true, nil
	}
	if s.Client.Get(ctx, client.ObjectKeyFromObject(o), o) != nil {
		return false, err // the first error is more specific
	}
	if o.GetAnnotations()[annotationRequest] != digest {
		return false, ErrKeyReused
	}
	return false, nil
}

// ErrKeyReused is the response if another request had the same Idempotency-Key.
var ErrKeyReused = NewProblem(http.StatusUnprocessableEntity, httpserver.CodeKeyReused,
	"another request was sent with this Idempotency-Key; use a new key for each new request")

// mayHaveSucceeded reports whether a recorded call may have taken effect: it succeeded, was interrupted, or failed with
// 5xx.
func mayHaveSucceeded(outcome *store.AuditOutcome, success int) bool {
	return outcome == nil || outcome.Status == success || outcome.Status >= http.StatusInternalServerError
}

// HasDone reports whether an earlier call of this API key with the same Idempotency-Key already changed the object.
func (s *Service) HasDone(ctx context.Context, c *Caller, id ID) (bool, error) {
	earlier, err := s.EarlierCalls(ctx, c)
	return slices.ContainsFunc(earlier, func(e store.AuditEntry) bool { return strings.EqualFold(e.Object.ID, id.String()) }), err
}

// CheckRepeatedCancel allows the cancellation of an ended object only if it repeats an earlier call with the same
// Idempotency-Key. Otherwise it returns 409. kind and status describe the object.
func (s *Service) CheckRepeatedCancel(ctx context.Context, c *Caller, id ID, isCancelled bool, kind, status string) error {
	if isCancelled {
		if done, err := s.HasDone(ctx, c, id); done || err != nil {
			return err
		}
	}
	return NewProblem(http.StatusConflict, httpserver.CodeConflict, "the "+kind+" has ended and cannot be cancelled: its status is "+status)
}

// EarlierCalls returns the earlier calls of this API key to the same route with the same Idempotency-Key that may have
// taken effect. The audit log also has calls that were interrupted before their outcome was recorded.
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
		return !own || !same || !mayHaveSucceeded(e.Outcome, c.Endpoint.Status)
	}), nil
}
