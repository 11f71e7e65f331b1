// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	expiry "github.com/agentplatform/agentplatform/internal/cache"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/keys"
	"github.com/agentplatform/agentplatform/internal/namespaces"
)

const (
	// indexKeyID indexes APIKeys by spec.keyID. fieldKeyID is the field selector of kube-apiserver for it.
	indexKeyID = "keyID"
	fieldKeyID = "spec.keyID"
	// lookupsPerSecond limits the lookups of keys in Kubernetes that the informers do not have, for all callers
	// together.
	lookupsPerSecond = 10
	// lookupPatience limits the wait of a request for a lookup, and lookupTime the lookup.
	lookupPatience, lookupTime = time.Second, 10 * time.Second
	// absentTime is how long the index remembers that no object has a key, or that a namespace has no project.
	absentTime = 5 * time.Second
)

// Index finds API keys and projects. Informers have most of them. The index looks up other keys and projects in
// Kubernetes, with a rate limit for all of them together, because a caller can invent keys.
type Index struct {
	client   client.WithWatch
	keys     *informedObjects
	projects *informedObjects
	budget   *rate.Limiter
	lookups  singleflight.Group
	absent   *expiry.Cache[string, struct{}]
}

// NewIndex returns an empty index of the keys and projects in some namespaces; an empty set stands for all namespaces.
func NewIndex(c client.WithWatch, within namespaces.Set, logger *slog.Logger) *Index {
	return &Index{
		client: c,
		keys: newInformedObjects(c, within, logger, kind{
			name: "API keys", object: &v1alpha1.APIKey{}, list: func() client.ObjectList { return &v1alpha1.APIKeyList{} },
			indexers: cache.Indexers{indexKeyID: func(o any) ([]string, error) {
				key, ok := o.(*v1alpha1.APIKey)
				if !ok {
					return nil, nil
				}
				return []string{key.Spec.KeyID}, nil
			}},
		}),
		projects: newInformedObjects(c, within, logger, kind{
			name: "projects", object: &v1alpha1.Project{}, list: func() client.ObjectList { return &v1alpha1.ProjectList{} },
			indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
		}),
		budget: rate.NewLimiter(lookupsPerSecond, lookupsPerSecond),
		absent: expiry.New[string, struct{}](cacheSize, absentTime, nil),
	}
}

// LimitLookups sets the lookups of unknown keys per second.
func (x *Index) LimitLookups(perSecond rate.Limit) { x.budget.SetLimit(perSecond) }

// Run updates the index until ctx ends.
func (x *Index) Run(ctx context.Context) error {
	var group errgroup.Group
	group.Go(func() error { return x.keys.run(ctx) })
	group.Go(func() error { return x.projects.run(ctx) })
	return group.Wait()
}

// Ready returns an error until all informers have synced. Before that, each key and each project needs a lookup.
func (x *Index) Ready(context.Context) error {
	return errors.Join(x.keys.synced(), x.projects.synced())
}

// find returns the objects with the hash of a key. The caller must not modify them.
func (x *Index) find(ctx context.Context, key keys.Key) ([]*v1alpha1.APIKey, error) {
	if known := x.known(key); len(known) > 0 {
		return known, nil
	}
	if _, absent := x.absent.Get(key.Hash()); absent {
		return nil, nil
	}
	return together(ctx, &x.lookups, key.Hash(), func(ctx context.Context) ([]*v1alpha1.APIKey, error) { return x.lookUp(ctx, key) })
}

// together runs one lookup for all concurrent requests with the same key. The lookup continues if the first request
// ends.
func together[T any](ctx context.Context, group *singleflight.Group, key string, lookUp func(context.Context) (T, error)) (found T, err error) {
	ch := group.DoChan(key, func() (any, error) { return lookUp(context.WithoutCancel(ctx)) })
	select {
	case answer := <-ch:
		if answer.Err != nil {
			return found, answer.Err
		}
		return answer.Val.(T), nil
	case <-ctx.Done():
		return found, context.Cause(ctx)
	}
}

// known returns the objects of the informers.
func (x *Index) known(key keys.Key) (found []*v1alpha1.APIKey) {
	for _, o := range x.keys.byIndex(indexKeyID, key.ID()) {
		// Compare every hash, so that the time does not depend on a match.
		if k, ok := o.(*v1alpha1.APIKey); ok && key.Matches(k.Spec.Hash) {
			found = append(found, k)
		}
	}
	return found
}

// Current returns the current object of a key, which the caller must not modify, or nil if it was deleted.
func (x *Index) Current(ctx context.Context, key *v1alpha1.APIKey) (*v1alpha1.APIKey, error) {
	for _, o := range x.keys.byIndex(indexKeyID, key.Spec.KeyID) {
		if k, ok := o.(*v1alpha1.APIKey); ok && k.UID == key.UID {
			return k, nil
		}
	}
	now := &v1alpha1.APIKey{} // the informers can be stale
	err := x.client.Get(ctx, client.ObjectKeyFromObject(key), now)
	if err != nil || now.UID != key.UID {
		return nil, client.IgnoreNotFound(err)
	}
	return now, nil
}

// lookUp reads a key from Kubernetes, within the rate limit.
func (x *Index) lookUp(ctx context.Context, key keys.Key) (found []*v1alpha1.APIKey, err error) {
	turn, cancel := context.WithTimeout(ctx, lookupPatience)
	defer cancel()
	if err := x.budget.Wait(turn); err != nil {
		return nil, NewProblem(http.StatusServiceUnavailable, httpserver.CodeBusy, "too many unknown API keys are being looked up; try again")
	}
	ctx, cancel = context.WithTimeout(ctx, lookupTime)
	defer cancel()
	for _, namespace := range x.keys.namespaces {
		var list v1alpha1.APIKeyList
		err := x.client.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{fieldKeyID: key.ID()})
		if apierrors.IsForbidden(err) && namespace != metav1.NamespaceAll {
			continue // its RoleBinding is missing, so its keys do not work
		}
		if err != nil {
			return nil, fmt.Errorf("looking for API key %s: %w", key.ID(), err)
		}
		for i := range list.Items {
			if k := &list.Items[i]; key.Matches(k.Spec.Hash) {
				found = append(found, k)
			}
		}
	}
	if len(found) == 0 {
		x.absent.Put(key.Hash(), struct{}{})
	}
	return found, nil
}

// Project returns the project of a namespace, which the caller must not modify, from the informers or else from
// Kubernetes. It is called only for namespaces with a key.
func (x *Index) Project(ctx context.Context, namespace string) (*v1alpha1.Project, error) {
	if known := x.knownProject(namespace); known != nil {
		return known, nil
	}
	missing := apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("projects").GroupResource(), v1alpha1.ProjectName)
	remembered := "project of " + namespace
	if _, absent := x.absent.Get(remembered); absent {
		return nil, missing
	}
	project, err := together(ctx, &x.lookups, remembered, func(ctx context.Context) (*v1alpha1.Project, error) {
		ctx, cancel := context.WithTimeout(ctx, lookupTime)
		defer cancel()
		// List needs only the permission that the informers have too.
		var list v1alpha1.ProjectList
		if err := x.client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return nil, err
		}
		if len(list.Items) == 0 {
			x.absent.Put(remembered, struct{}{})
			return nil, missing
		}
		return &list.Items[0], nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the project of namespace %q: %w", namespace, err)
	}
	return project, nil
}

// knownProject returns the project of a namespace from the informers, which the caller must not modify, or nil.
func (x *Index) knownProject(namespace string) *v1alpha1.Project {
	for _, o := range x.projects.byIndex(cache.NamespaceIndex, namespace) {
		if project, ok := o.(*v1alpha1.Project); ok { // a namespace has one Project, with a fixed name
			return project
		}
	}
	return nil
}
