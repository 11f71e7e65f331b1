// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/keys"
	"github.com/agentplatform/agentplatform/store"
)

// keyCacheTime is how long a key that was found is not looked up again.
const keyCacheTime = 5 * time.Second

// cacheSize is the most entries of a cache.
const cacheSize = 10_000

// askedKey is a key's hash and the project that a request asks for.
type askedKey struct {
	hash    string
	project uuid.UUID
}

// credential is what was found of a key for a project.
type credential struct {
	// key is nil when no object in the project's namespace has the hash.
	key *v1alpha1.APIKey
	// elsewhere is the oldest object in another namespace that has it, or nil.
	elsewhere *v1alpha1.APIKey
}

// caller is who sent a request.
type caller struct {
	key       *v1alpha1.APIKey
	projectID uuid.UUID
	namespace string
}

type callerKey struct{}

// callerOf is the caller that authorize put into the context.
func callerOf(ctx context.Context) *caller { return ctx.Value(callerKey{}).(*caller) }

// authorize lets pass who has a key of the path's project and the permission.
func (s *Server) authorize(permission string) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		c, err := s.identify(ctx.Context(), ctx.Header("Authorization"), ctx.Param("project_id"), act(ctx))
		if err == nil {
			err = s.require(ctx.Context(), c, permission)
		}
		if err != nil {
			s.refuse(ctx, s.asProblem(ctx.Context(), err))
			return
		}
		next(huma.WithValue(ctx, callerKey{}, c))
	}
}

func (s *Server) refuse(ctx huma.Context, p *Problem) {
	switch p.Status {
	case http.StatusUnauthorized:
		ctx.SetHeader("WWW-Authenticate", "Bearer")
	case http.StatusServiceUnavailable:
		ctx.SetHeader("Retry-After", retryAfter)
	}
	if err := huma.WriteErr(s.api, ctx, p.Status, p.Detail); err != nil {
		s.logger.DebugContext(ctx.Context(), "the client went before its answer", "error", err)
	}
}

// require answers 403 without the permission.
func (s *Server) require(ctx context.Context, c *caller, permission string) error {
	ok, err := s.may(ctx, c, permission)
	if err != nil {
		return err
	}
	if !ok {
		return problem(http.StatusForbidden, "the key, or its owner, lacks the permission "+permission)
	}
	return nil
}

// authenticate answers 401 without a valid key, and 403 for another project's,
// then with the caller: somebody known was refused.
func (s *Server) authenticate(ctx context.Context, header, project string) (*caller, error) {
	unauthorized := problem(http.StatusUnauthorized, "a valid API key is needed: Authorization: Bearer ap_…")
	scheme, text, _ := strings.Cut(header, " ")
	key, err := keys.Parse(strings.TrimSpace(text))
	if err != nil || !strings.EqualFold(scheme, "Bearer") {
		return nil, unauthorized
	}
	projectID, _ := uuid.Parse(project) // no UUID is nobody's project
	asked := askedKey{key.Hash(), projectID}
	found, ok := s.keys.get(asked)
	if !ok {
		if found, err = s.findKey(ctx, key, projectID); err != nil {
			return nil, err
		}
		if found.key != nil {
			s.keys.put(asked, found)
		}
	}
	switch {
	case found.key == nil && found.elsewhere != nil:
		owner := found.elsewhere.Namespace
		return &caller{key: found.elsewhere, projectID: v1alpha1.ProjectID(s.platformID, owner), namespace: owner},
			problem(http.StatusForbidden, "the key belongs to another project")
	case found.key == nil, found.key.Ended(s.now()):
		return nil, unauthorized
	}
	return &caller{key: found.key, projectID: projectID, namespace: found.key.Namespace}, nil
}

// findKey looks for the key among the objects of all namespaces. A key's project
// follows from its namespace alone: a copy of its object in another namespace is
// another namespace's key, and disturbs nobody. Of several objects with the same
// hash in a namespace the oldest is the key, in force or not, so that a copy
// neither takes its place nor outlives its end. It counts once it holds its id,
// as all that the controllers see to begins with that.
func (s *Server) findKey(ctx context.Context, key keys.Key, projectID uuid.UUID) (credential, error) {
	objects, err := s.index.find(ctx, key)
	if err != nil {
		return credential{}, err
	}
	var found credential
	for _, k := range objects {
		if v1alpha1.ProjectID(s.platformID, k.Namespace) == projectID {
			found.key = older(found.key, k)
		} else {
			found.elsewhere = older(found.elsewhere, k)
		}
	}
	switch {
	case found.key != nil && s.inForce(found.key):
		return s.held(ctx, projectID, found)
	case found.key == nil && found.elsewhere != nil && s.inForce(found.elsewhere):
		return found, nil
	default:
		return credential{}, nil
	}
}

// older is the key that was created first; of two of the same second the one
// whose name comes first.
func older(a, b *v1alpha1.APIKey) *v1alpha1.APIKey {
	switch {
	case a == nil, b.CreationTimestamp.Before(&a.CreationTimestamp):
		return b
	case a.CreationTimestamp.Before(&b.CreationTimestamp), a.Name < b.Name:
		return a
	default:
		return b
	}
}

func (s *Server) inForce(k *v1alpha1.APIKey) bool {
	return !k.Spec.Revoked && k.DeletionTimestamp == nil && !k.Ended(s.now())
}

// held is the credential if its key is in force at this moment, whatever the index
// has not heard yet, and its namespace has a project in which the key holds its id;
// else none.
func (s *Server) held(ctx context.Context, projectID uuid.UUID, found credential) (credential, error) {
	now := &v1alpha1.APIKey{}
	err := s.client.Get(ctx, client.ObjectKeyFromObject(found.key), now)
	switch {
	case apierrors.IsNotFound(err):
		return credential{}, nil
	case err != nil:
		return credential{}, fmt.Errorf("reading API key %q: %w", found.key.Name, err)
	case now.UID != found.key.UID, !s.inForce(now):
		return credential{}, nil
	}
	found.key = now
	if _, err := s.project(ctx, found.key.Namespace); apierrors.IsNotFound(err) {
		return credential{}, nil
	} else if err != nil {
		return credential{}, err
	}
	err = s.claim(ctx, projectID, found.key)
	var taken *store.IDTakenError
	if errors.As(err, &taken) {
		return credential{}, nil
	}
	return found, err
}

// project reads the project of a namespace.
func (s *Server) project(ctx context.Context, namespace string) (*v1alpha1.Project, error) {
	project := &v1alpha1.Project{}
	err := s.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1alpha1.ProjectName}, project)
	if err != nil {
		return nil, fmt.Errorf("reading the project of namespace %q: %w", namespace, err)
	}
	return project, nil
}

// isNotFound says whether Kubernetes has no such object.
func isNotFound(err error) bool {
	var p *Problem
	return apierrors.IsNotFound(err) || errors.As(err, &p) && p.Status == http.StatusNotFound
}

// expiring is a map whose entries hold for a while.
type expiring[K comparable, V any] struct {
	mu      sync.Mutex
	ttl     time.Duration
	now     func() time.Time
	entries map[K]expiringEntry[V]
}

type expiringEntry[V any] struct {
	value V
	until time.Time
}

func newExpiring[K comparable, V any](ttl time.Duration, now func() time.Time) *expiring[K, V] {
	return &expiring[K, V]{ttl: ttl, now: now, entries: map[K]expiringEntry[V]{}}
}

func (e *expiring[K, V]) get(k K) (V, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	entry, ok := e.entries[k]
	if !ok || !e.now().Before(entry.until) {
		var none V
		return none, false
	}
	return entry.value, true
}

func (e *expiring[K, V]) put(k K, v V) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.entries) >= cacheSize {
		clear(e.entries) // simple, and rare: the truth is asked again
	}
	e.entries[k] = expiringEntry[V]{value: v, until: e.now().Add(e.ttl)}
}
