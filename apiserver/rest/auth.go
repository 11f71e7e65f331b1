// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/keys"
	"github.com/agentplatform/agentplatform/store"
)

// askedKey is the hash of a key and the project of the request.
type askedKey struct {
	hash    string
	project uuid.UUID
}

// credential is the result of a key lookup for a project.
type credential struct {
	// key is nil if no object in the project's namespace has the hash.
	key *v1alpha1.APIKey
	// elsewhere is the oldest object with the hash in another namespace, or nil.
	elsewhere *v1alpha1.APIKey
}

// Caller is the sender of a request.
type Caller struct {
	Key       *v1alpha1.APIKey
	ProjectID uuid.UUID
	Namespace string
	// proof is derived from the text of the key, which the platform does not store.
	proof [sha256.Size]byte

	// Endpoint is the endpoint of the call. The headers are set if the call can change something.
	Endpoint                *Endpoint
	IdempotencyKey, ifMatch string
}

type callerKey struct{}

// callerOf returns the caller that admit put into the context.
func callerOf(ctx context.Context) *Caller { return ctx.Value(callerKey{}).(*Caller) }

// Require returns 403 if the caller lacks the permission.
func (s *Service) Require(ctx context.Context, c *Caller, permission v1alpha1.Permission) error {
	ok, err := s.HasPermission(ctx, c, permission)
	if err != nil {
		return s.permissionError(ctx, err)
	}
	if !ok {
		return NewProblem(http.StatusForbidden, httpserver.CodeForbidden, "the key, or its owner, lacks the permission "+string(permission))
	}
	return nil
}

// permissionError returns err, or 503 if the facade itself lacks a permission to check a caller.
func (s *Service) permissionError(ctx context.Context, err error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	s.Logger.ErrorContext(ctx, "the facade lacks permissions at the Kubernetes API", "error", err)
	return NewProblem(http.StatusServiceUnavailable, httpserver.CodeClusterUnavailable,
		"the service lacks permissions at the Kubernetes API; tell the platform operator")
}

// authenticate returns 401 without a valid key. For a key of another project it returns 403 and the caller, so that the
// request counts toward the limits of that project.
func (s *Service) authenticate(ctx context.Context, header, project string) (*Caller, error) {
	unauthorized := NewProblem(http.StatusUnauthorized, httpserver.CodeUnauthorized, "a valid API key is needed: Authorization: Bearer ap_…")
	scheme, text, _ := strings.Cut(header, " ")
	key, err := keys.Parse(strings.TrimSpace(text))
	if err != nil || !strings.EqualFold(scheme, "Bearer") {
		return nil, unauthorized
	}
	projectID, _ := uuid.Parse(project) // no project has the nil UUID
	asked := askedKey{key.Hash(), projectID}
	found, ok := s.keys.Get(asked)
	if !ok {
		if found, err = s.findKey(ctx, key, projectID); err != nil {
			return nil, s.permissionError(ctx, err)
		}
		if found.key != nil {
			s.keys.Put(asked, found)
		}
	}
	switch {
	case found.key == nil && found.elsewhere != nil:
		owner := found.elsewhere.Namespace
		return &Caller{Key: found.elsewhere, ProjectID: v1alpha1.ProjectID(s.PlatformID, owner), Namespace: owner},
			NewProblem(http.StatusForbidden, httpserver.CodeForbidden, "the key belongs to another project")
	case found.key == nil, found.key.Ended(s.Now()):
		return nil, unauthorized
	}
	return &Caller{
		Key: found.key, ProjectID: projectID, Namespace: found.key.Namespace,
		proof: sha256.Sum256([]byte("names under an Idempotency-Key\n" + key.String())),
	}, nil
}

// findKey finds the object of a key. The namespace of an object determines its project, so a copy of an APIKey in
// another namespace is a key of another project. Of several objects with the hash in one namespace only the oldest
// counts, even if it is revoked: a copy neither replaces a key nor outlives it. A key is valid once its object holds its
// ID.
func (s *Service) findKey(ctx context.Context, key keys.Key, projectID uuid.UUID) (credential, error) {
	objects, err := s.Index.find(ctx, key)
	if err != nil {
		return credential{}, err
	}
	var here, elsewhere []*v1alpha1.APIKey
	for _, k := range objects {
		if v1alpha1.ProjectID(s.PlatformID, k.Namespace) == projectID {
			here = append(here, k)
		} else {
			elsewhere = append(elsewhere, k)
		}
	}
	var found credential
	if found.key, err = s.chooseKey(ctx, projectID, oldestKeys(here)); err != nil {
		return credential{}, err
	}
	if elsewhere = oldestKeys(elsewhere); len(elsewhere) > 0 {
		found.elsewhere = elsewhere[0]
	}
	switch {
	case found.key != nil && s.IsValidKey(found.key):
		return s.verify(ctx, projectID, found)
	case found.key == nil && found.elsewhere != nil && s.IsValidKey(found.elsewhere):
		return found, nil
	default:
		return credential{}, nil
	}
}

// oldestKeys returns the keys with the earliest creation time, which has a precision of one second, ordered by UID.
func oldestKeys(keys []*v1alpha1.APIKey) []*v1alpha1.APIKey {
	slices.SortFunc(keys, func(a, b *v1alpha1.APIKey) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
	})
	for i, k := range keys {
		if !k.CreationTimestamp.Equal(&keys[0].CreationTimestamp) {
			return keys[:i]
		}
	}
	return keys
}

// chooseKey returns the key that holds its ID in the store, or else the first one, or nil. So a copy that was created in
// the same second does not replace a key in use.
func (s *Service) chooseKey(ctx context.Context, projectID uuid.UUID, equals []*v1alpha1.APIKey) (*v1alpha1.APIKey, error) {
	if len(equals) == 0 {
		return nil, nil
	}
	if len(equals) > 1 {
		for _, k := range equals {
			id, err := v1alpha1.ObjectID(projectID, k)
			if err != nil {
				continue // the key has no ID
			}
			holder, err := s.Store.Holder(ctx, store.Key{ProjectID: projectID, ID: id})
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				return nil, fmt.Errorf("finding the holder of the ID of API key %q: %w", k.Name, err)
			}
			if err == nil && holder.ObjectUID == string(k.UID) {
				return k, nil
			}
		}
	}
	return equals[0], nil
}

// IsValidKey reports whether a key is neither revoked nor deleted nor expired.
func (s *Service) IsValidKey(k *v1alpha1.APIKey) bool {
	return !k.Spec.Revoked && k.DeletionTimestamp == nil && !k.Ended(s.Now())
}

// verify reads the current object of a key, because the index can be stale. It returns an empty credential if the key is
// no longer valid, its namespace has no project, or another object holds its ID.
func (s *Service) verify(ctx context.Context, projectID uuid.UUID, found credential) (credential, error) {
	now := &v1alpha1.APIKey{}
	err := s.Client.Get(ctx, client.ObjectKeyFromObject(found.key), now)
	switch {
	case apierrors.IsNotFound(err):
		return credential{}, nil
	case err != nil:
		return credential{}, fmt.Errorf("reading API key %q: %w", found.key.Name, err)
	case now.UID != found.key.UID, !s.IsValidKey(now):
		return credential{}, nil
	}
	found.key = now
	if _, err := s.Index.Project(ctx, found.key.Namespace); apierrors.IsNotFound(err) {
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

// IsNotFound reports whether Kubernetes or this API has no such object.
func IsNotFound(err error) bool {
	var p Problem
	return apierrors.IsNotFound(err) || errors.As(err, &p) && p.Status == http.StatusNotFound
}
