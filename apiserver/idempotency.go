// SPDX-License-Identifier: Apache-2.0

package apiserver

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

// repeatsLookedAt is how many entries of the audit log are looked through for the
// same call before.
const repeatsLookedAt = 200

// derivedCharacters is how many characters after the noun name an object that was
// created under an Idempotency-Key: 80 bits.
const derivedCharacters = 16

// derived are 32 bytes that follow from project, API key, route, Idempotency-Key
// and noun. Only who has the API key can tell them beforehand: the id of a webhook
// without authentication is its only secret.
func (c *caller) derived(noun string) []byte {
	mac := hmac.New(sha256.New, c.proof[:])
	for _, part := range []string{c.projectID.String(), c.route.id, c.idempotencyKey, noun} {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		mac.Write(length[:])
		mac.Write([]byte(part))
	}
	return mac.Sum(nil)
}

// meta names an object to create: after the title that people gave it, or under an
// Idempotency-Key after that, so that Kubernetes itself refuses the second one.
func (c *caller) meta(ctx context.Context, noun, title string) (metav1.ObjectMeta, v1alpha1.UUID) {
	id := v1alpha1.UUID(c.idOf(noun).String())
	if c.idempotencyKey == "" {
		suffix := strings.ToLower(rand.Text())[:5]
		return metav1.ObjectMeta{Namespace: c.namespace, Name: v1alpha1.NameFor(title, noun, suffix)}, id
	}
	text := strings.ToLower(base32.StdEncoding.EncodeToString(c.derived(noun)[16:]))
	return metav1.ObjectMeta{
		Namespace: c.namespace, Name: noun + "-" + text[:derivedCharacters],
		Annotations: map[string]string{annotationRequest: trailOf(ctx).digest()},
	}, id
}

// idOf is the id of what a call creates: a random one, or under an Idempotency-Key the one
// that follows from that.
func (c *caller) idOf(noun string) uuid.UUID {
	if c.idempotencyKey == "" {
		return uuid.New()
	}
	id := uuid.UUID(c.derived(noun)[:16])
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
func (s *Server) makeOne(ctx context.Context, o client.Object) (made bool, err error) {
	digest, keyed := o.GetAnnotations()[annotationRequest]
	err = s.client.Create(ctx, o, client.FieldOwner(fieldManager))
	if !keyed {
		return !apierrors.IsAlreadyExists(err), err // its name is random
	}
	if err == nil {
		return true, nil
	}
	if s.client.Get(ctx, client.ObjectKeyFromObject(o), o) != nil {
		return false, err // that says more
	}
	if o.GetAnnotations()[annotationRequest] != digest {
		return false, keyReused
	}
	return false, nil
}

var keyReused = problem(http.StatusUnprocessableEntity, httpserver.CodeKeyReused,
	"this Idempotency-Key was sent before with another request; use a new key for every new request")

// cameThrough says whether a call about what is done may have been the one that did
// it: it succeeded, or it was cut off, or it failed on our side.
func cameThrough(outcome *store.AuditOutcome, success int) bool {
	return outcome == nil || outcome.Status == success || outcome.Status >= http.StatusInternalServerError
}

// doneBefore says whether a call that finds nothing to do any more repeats one that
// this API key has made before.
func (s *Server) doneBefore(ctx context.Context, c *caller, id ID) (bool, error) {
	earlier, err := s.earlierCalls(ctx, c)
	return slices.ContainsFunc(earlier, func(e store.AuditEntry) bool { return strings.EqualFold(e.Object.ID, id.String()) }), err
}

// earlierCalls are those of the same route that this API key has made under the same
// Idempotency-Key and that may have done what they asked for; none without such a
// key. The audit log knows, also of a call that was cut off before its outcome was
// recorded.
func (s *Server) earlierCalls(ctx context.Context, c *caller) ([]store.AuditEntry, error) {
	if c.idempotencyKey == "" {
		return nil, nil
	}
	entries, err := s.store.ListAudit(ctx, store.AuditQuery{ProjectID: c.projectID, Limit: repeatsLookedAt})
	if err != nil {
		return nil, fmt.Errorf("looking for an earlier call: %w", err)
	}
	return slices.DeleteFunc(entries, func(e store.AuditEntry) bool {
		own := e.ID != trailOf(ctx).entry.ID && e.Actor.KeyID == c.key.Spec.KeyID && e.Actor.Name == c.key.Name
		same := e.Operation == c.route.id && e.IdempotencyKey == c.idempotencyKey
		return !own || !same || !cameThrough(e.Outcome, c.route.status)
	}), nil
}
