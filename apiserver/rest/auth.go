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

// Caller is who sent a request.
type Caller struct {
	Key       *v1alpha1.APIKey
	ProjectID uuid.UUID
	Namespace string
	// proof follows from the text of the key, which only its owner has.
	proof [sha256.Size]byte

	// Endpoint is the called one. The headers are set if it changes something.
	Endpoint                *Endpoint
	IdempotencyKey, ifMatch string
}

type callerKey struct{}

// callerOf is the caller that admit put into the context.
func callerOf(ctx context.Context) *Caller { return ctx.Value(callerKey{}).(*Caller) }

// Require returns 403 without the permission.
func (s *Service) Require(ctx context.Context, c *Caller, permission v1alpha1.Permission) error {
	ok, err := s.HasPermission(ctx, c, permission)
	if err != nil {
		return s.ownRights(ctx, err)
	}
	if !ok {
		return NewProblem(http.StatusForbidden, httpserver.CodeForbidden, "the key, or its owner, lacks the permission "+string(permission))
	}
	return nil
}

// ownRights is the error, or 503 where the facade itself was refused what it asks
// about a caller, who is not at fault.
func (s *Service) ownRights(ctx context.Context, err error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	s.Logger.ErrorContext(ctx, "the facade lacks rights at the Kubernetes API", "error", err)
	return NewProblem(http.StatusServiceUnavailable, httpserver.CodeClusterUnavailable,
		"the service lacks permissions at the Kubernetes API; tell the platform operator")
}

// authenticate answers 401 without a valid key, and 403 for another project's,
// then with the caller: somebody known was refused.
func (s *Service) authenticate(ctx context.Context, header, project string) (*Caller, error) {
	unauthorized := NewProblem(http.StatusUnauthorized, httpserver.CodeUnauthorized, "a valid API key is needed: Authorization: Bearer ap_…")
	scheme, text, _ := strings.Cut(header, " ")
	key, err := keys.Parse(strings.TrimSpace(text))
	if err != nil || !strings.EqualFold(scheme, "Bearer") {
		return nil, unauthorized
	}
	projectID, _ := uuid.Parse(project) // no UUID is nobody's project
	asked := askedKey{key.Hash(), projectID}
	found, ok := s.keys.Get(asked)
	if !ok {
		if found, err = s.findKey(ctx, key, projectID); err != nil {
			return nil, s.ownRights(ctx, err)
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

// findKey looks for the key among the objects of all namespaces. A key's project
// follows from its namespace alone: a copy of its object in another namespace is
// another namespace's key, and disturbs nobody. Of several objects with the same
// hash in a namespace the oldest is the key, in force or not, so that a copy
// neither takes its place nor outlives its end. It counts once it holds its id,
// as all that the controllers see to begins with that.
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
	if found.key, err = s.first(ctx, projectID, oldest(here)); err != nil {
		return credential{}, err
	}
	if elsewhere = oldest(elsewhere); len(elsewhere) > 0 {
		found.elsewhere = elsewhere[0]
	}
	switch {
	case found.key != nil && s.IsValidKey(found.key):
		return s.held(ctx, projectID, found)
	case found.key == nil && found.elsewhere != nil && s.IsValidKey(found.elsewhere):
		return found, nil
	default:
		return credential{}, nil
	}
}

// oldest are the keys that were created first: several where that was in the same
// second, by their uids, which nobody chooses.
func oldest(keys []*v1alpha1.APIKey) []*v1alpha1.APIKey {
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

// first is the one of several keys of the same age that holds its id in the store,
// so that a copy which comes in the same second does not take the place of a key
// that is in use; where that decides nothing, the first of them. nil for none.
func (s *Service) first(ctx context.Context, projectID uuid.UUID, equals []*v1alpha1.APIKey) (*v1alpha1.APIKey, error) {
	if len(equals) == 0 {
		return nil, nil
	}
	if len(equals) > 1 {
		for _, k := range equals {
			id, err := v1alpha1.ObjectID(projectID, k)
			if err != nil {
				continue // it holds none
			}
			holder, err := s.Store.Holder(ctx, store.Key{ProjectID: projectID, ID: id})
			if err != nil && !errors.Is(err, store.ErrNotFound) {
				return nil, fmt.Errorf("looking who holds the id of API key %q: %w", k.Name, err)
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

// held is the credential if its key is in force at this moment, whatever the index
// has not heard yet, and its namespace has a project in which the key holds its id;
// else none.
func (s *Service) held(ctx context.Context, projectID uuid.UUID, found credential) (credential, error) {
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

// IsNotFound says whether Kubernetes has no such object.
func IsNotFound(err error) bool {
	var p Problem
	return apierrors.IsNotFound(err) || errors.As(err, &p) && p.Status == http.StatusNotFound
}
