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
)

// keyCacheTime is how long a key that was found is not looked up again.
const keyCacheTime = 5 * time.Second

// cacheSize is the most entries of a cache.
const cacheSize = 10_000

// credential is a key that was found, with its project.
type credential struct {
	key       *v1alpha1.APIKey
	projectID uuid.UUID
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
		c, err := s.authenticate(ctx.Context(), ctx.Header("Authorization"), ctx.Param("project_id"))
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
	if p.Status == http.StatusUnauthorized {
		ctx.SetHeader("WWW-Authenticate", "Bearer")
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

// authenticate answers 401 without a valid key, 403 for another project's.
func (s *Server) authenticate(ctx context.Context, header, project string) (*caller, error) {
	unauthorized := problem(http.StatusUnauthorized, "a valid API key is needed: Authorization: Bearer ap_…")
	scheme, text, _ := strings.Cut(header, " ")
	key, err := keys.Parse(strings.TrimSpace(text))
	if err != nil || !strings.EqualFold(scheme, "Bearer") {
		return nil, unauthorized
	}
	found, ok := s.keys.get(key.Hash())
	if !ok {
		if found, err = s.findKey(ctx, key); err != nil {
			return nil, err
		}
		if found.key == nil {
			return nil, unauthorized
		}
		s.keys.put(key.Hash(), found)
	}
	if expired(found.key.Spec.ExpiresAt, s.now()) {
		return nil, unauthorized
	}
	if project != found.projectID.String() {
		return nil, problem(http.StatusForbidden, "the key belongs to another project")
	}
	return &caller{key: found.key, projectID: found.projectID, namespace: found.key.Namespace}, nil
}

// findKey looks for the key in all namespaces; the zero credential when there
// is none that is in force.
func (s *Server) findKey(ctx context.Context, key keys.Key) (credential, error) {
	var list v1alpha1.APIKeyList
	if err := s.client.List(ctx, &list, client.MatchingFields{"spec.keyID": key.ID()}); err != nil {
		return credential{}, fmt.Errorf("looking for API key %s: %w", key.ID(), err)
	}
	var found *v1alpha1.APIKey
	for i := range list.Items {
		k := &list.Items[i]
		// Every candidate's hash is compared, whatever the one before said.
		if key.Matches(k.Spec.Hash) && !k.Spec.Revoked && k.DeletionTimestamp == nil && found == nil {
			found = k
		}
	}
	if found == nil {
		return credential{}, nil
	}
	project, err := s.project(ctx, found.Namespace)
	if apierrors.IsNotFound(err) {
		return credential{}, nil
	}
	if err != nil {
		return credential{}, err
	}
	id, err := project.ParsedID()
	if err != nil {
		return credential{}, err
	}
	if taken := project.Status.Condition(v1alpha1.ConditionReady); taken != nil && taken.Reason == v1alpha1.ReasonIDTaken {
		return credential{}, nil
	}
	return credential{key: found, projectID: id}, nil
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
