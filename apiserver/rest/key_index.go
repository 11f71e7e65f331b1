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
	// indexKeyID is the index of APIKeys by spec.keyID, and fieldKeyID the same in
	// kube-apiserver.
	indexKeyID = "keyID"
	fieldKeyID = "spec.keyID"
	// lookupsPerSecond is how many keys that the informers do not know are looked
	// for in Kubernetes, whoever asks.
	lookupsPerSecond = 10
	// lookupPatience is how long a request waits for its turn, and lookupTime how
	// long the lookup may take.
	lookupPatience, lookupTime = time.Second, 10 * time.Second
	// absentTime is how long it is remembered that nobody has a key, or that a
	// namespace has no project.
	absentTime = 5 * time.Second
)

// Index finds API keys and projects. What informers know costs nothing; a key that
// they do not know, because it is new or invented, is looked for in Kubernetes, a
// few times a second in all, and so is a project.
type Index struct {
	client   client.WithWatch
	keys     *watched
	projects *watched
	budget   *rate.Limiter
	lookups  singleflight.Group
	absent   *expiry.Cache[string, struct{}]
}

// NewIndex makes an index of the keys and projects in some namespaces, the empty set
// for all. It knows none before Run.
func NewIndex(c client.WithWatch, within namespaces.Set, logger *slog.Logger) *Index {
	return &Index{
		client: c,
		keys: newWatched(c, within, logger, kind{
			name: "API keys", object: &v1alpha1.APIKey{}, list: func() client.ObjectList { return &v1alpha1.APIKeyList{} },
			indexers: cache.Indexers{indexKeyID: func(o any) ([]string, error) {
				key, ok := o.(*v1alpha1.APIKey)
				if !ok {
					return nil, nil
				}
				return []string{key.Spec.KeyID}, nil
			}},
		}),
		projects: newWatched(c, within, logger, kind{
			name: "projects", object: &v1alpha1.Project{}, list: func() client.ObjectList { return &v1alpha1.ProjectList{} },
			indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
		}),
		budget: rate.NewLimiter(lookupsPerSecond, lookupsPerSecond),
		absent: expiry.New[string, struct{}](cacheSize, absentTime, nil),
	}
}

// LimitLookups changes the number of lookups of unknown keys in a second.
func (x *Index) LimitLookups(perSecond rate.Limit) { x.budget.SetLimit(perSecond) }

// Run keeps the index up to date until ctx ends.
func (x *Index) Run(ctx context.Context) error {
	var group errgroup.Group
	group.Go(func() error { return x.keys.run(ctx) })
	group.Go(func() error { return x.projects.run(ctx) })
	return group.Wait()
}

// Ready is an error until all is known that may be read: before, each key and each
// project costs a lookup.
func (x *Index) Ready(context.Context) error {
	return errors.Join(x.keys.synced(), x.projects.synced())
}

// find returns the objects with the hash of a key; they must not be changed.
func (x *Index) find(ctx context.Context, key keys.Key) ([]*v1alpha1.APIKey, error) {
	if known := x.known(key); len(known) > 0 {
		return known, nil
	}
	if _, absent := x.absent.Get(key.Hash()); absent {
		return nil, nil
	}
	return together(ctx, &x.lookups, key.Hash(), func(ctx context.Context) ([]*v1alpha1.APIKey, error) { return x.lookUp(ctx, key) })
}

// together looks something up once for all who ask for it at a time. Who began may
// go; others wait for it too.
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

// known are the objects that the informers have.
func (x *Index) known(key keys.Key) (found []*v1alpha1.APIKey) {
	for _, o := range x.keys.by(indexKeyID, key.ID()) {
		// Every candidate's hash is compared, whatever the one before said.
		if k, ok := o.(*v1alpha1.APIKey); ok && key.Matches(k.Spec.Hash) {
			found = append(found, k)
		}
	}
	return found
}

// Current is a key's object as it is now, which must not be changed; nil where it is gone.
func (x *Index) Current(ctx context.Context, key *v1alpha1.APIKey) (*v1alpha1.APIKey, error) {
	for _, o := range x.keys.by(indexKeyID, key.Spec.KeyID) {
		if k, ok := o.(*v1alpha1.APIKey); ok && k.UID == key.UID {
			return k, nil
		}
	}
	now := &v1alpha1.APIKey{} // which the informers have not heard of yet, or no more
	err := x.client.Get(ctx, client.ObjectKeyFromObject(key), now)
	if err != nil || now.UID != key.UID {
		return nil, client.IgnoreNotFound(err)
	}
	return now, nil
}

// lookUp asks Kubernetes, in its turn.
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
			continue // its RoleBinding is missing: its keys open nothing, all others do
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

// Project is the project of a namespace, which must not be changed: as the informers
// know it, else as Kubernetes says. It is asked only for namespaces that have a key.
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
		// By the right that the informers have too.
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

// knownProject is the project of a namespace that the informers have, which must not be
// changed, or nil.
func (x *Index) knownProject(namespace string) *v1alpha1.Project {
	for _, o := range x.projects.by(cache.NamespaceIndex, namespace) {
		if project, ok := o.(*v1alpha1.Project); ok { // a namespace has one, of one name
			return project
		}
	}
	return nil
}
