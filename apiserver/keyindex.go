// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
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
	// absentTime is how long it is remembered that nobody has a key.
	absentTime = 5 * time.Second
)

// KeyIndex finds the objects of API keys. What informers know costs nothing; a key
// that they do not know, because it is new or invented, is looked for in Kubernetes,
// a few times a second in all.
type KeyIndex struct {
	client     client.WithWatch
	namespaces namespaces.Set
	logger     *slog.Logger
	informers  []cache.SharedIndexInformer
	budget     *rate.Limiter
	lookups    singleflight.Group
	absent     *expiring[string, struct{}]
}

// NewKeyIndex makes an index of the keys in some namespaces, the empty set for all.
// It knows none before Run.
func NewKeyIndex(c client.WithWatch, within namespaces.Set, logger *slog.Logger) *KeyIndex {
	x := &KeyIndex{
		client: c, namespaces: within, logger: logger,
		budget: rate.NewLimiter(lookupsPerSecond, lookupsPerSecond),
		absent: newExpiring[string, struct{}](absentTime, time.Now),
	}
	for _, namespace := range x.each() {
		x.informers = append(x.informers, x.informer(namespace))
	}
	return x
}

// each are the namespaces to ask; "" stands for all of them.
func (x *KeyIndex) each() []string {
	if len(x.namespaces) == 0 {
		return []string{metav1.NamespaceAll}
	}
	return x.namespaces
}

func (x *KeyIndex) informer(namespace string) cache.SharedIndexInformer {
	options := func(o metav1.ListOptions) *client.ListOptions {
		return &client.ListOptions{Namespace: namespace, Raw: &o}
	}
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := &v1alpha1.APIKeyList{}
			return list, x.client.List(ctx, list, options(o))
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return x.client.Watch(ctx, &v1alpha1.APIKeyList{}, options(o))
		},
	}
	return cache.NewSharedIndexInformer(cache.ToListWatcherWithWatchListSemantics(source, x.client), &v1alpha1.APIKey{}, 0, cache.Indexers{indexKeyID: func(o any) ([]string, error) {
		key, ok := o.(*v1alpha1.APIKey)
		if !ok {
			return nil, nil
		}
		return []string{key.Spec.KeyID}, nil
	}})
}

// Run keeps the index up to date until ctx ends. A namespace whose keys may not be
// read holds up no other one.
func (x *KeyIndex) Run(ctx context.Context) error {
	var group errgroup.Group
	for i, informer := range x.informers {
		namespace := x.each()[i]
		if err := informer.SetTransform(lean); err != nil {
			return fmt.Errorf("starting to read API keys: %w", err)
		}
		err := informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, _ *cache.Reflector, err error) {
			if ctx.Err() == nil && !apierrors.IsResourceExpired(err) {
				x.logger.WarnContext(ctx, "reading API keys from Kubernetes; it is tried again", "namespace", namespace, "error", err)
			}
		})
		if err != nil {
			return fmt.Errorf("starting to read API keys: %w", err)
		}
		group.Go(func() error {
			informer.RunWithContext(ctx)
			return nil
		})
	}
	return group.Wait()
}

// lean leaves out what nobody asks of a key, and tenants may make large.
func lean(o any) (any, error) {
	if key, ok := o.(*v1alpha1.APIKey); ok {
		key.ManagedFields, key.Annotations = nil, nil
	}
	return o, nil
}

// find returns the objects with the hash of a key; they must not be changed.
func (x *KeyIndex) find(ctx context.Context, key keys.Key) ([]*v1alpha1.APIKey, error) {
	if known := x.known(key); len(known) > 0 {
		return known, nil
	}
	if _, absent := x.absent.get(key.Hash()); absent {
		return nil, nil
	}
	// Who began the lookup may go; others wait for it too.
	ch := x.lookups.DoChan(key.Hash(), func() (any, error) { return x.lookUp(context.WithoutCancel(ctx), key) })
	select {
	case answer := <-ch:
		if answer.Err != nil {
			return nil, answer.Err
		}
		return answer.Val.([]*v1alpha1.APIKey), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// known are the objects that the informers have.
func (x *KeyIndex) known(key keys.Key) (found []*v1alpha1.APIKey) {
	for _, informer := range x.informers {
		objects, err := informer.GetIndexer().ByIndex(indexKeyID, key.ID())
		if err != nil {
			continue // there is such an index
		}
		for _, o := range objects {
			// Every candidate's hash is compared, whatever the one before said.
			if k, ok := o.(*v1alpha1.APIKey); ok && key.Matches(k.Spec.Hash) {
				found = append(found, k)
			}
		}
	}
	return found
}

// lookUp asks Kubernetes, in its turn.
func (x *KeyIndex) lookUp(ctx context.Context, key keys.Key) (found []*v1alpha1.APIKey, err error) {
	turn, cancel := context.WithTimeout(ctx, lookupPatience)
	defer cancel()
	if err := x.budget.Wait(turn); err != nil {
		return nil, problem(http.StatusServiceUnavailable, "too many unknown API keys are being looked up; try again")
	}
	ctx, cancel = context.WithTimeout(ctx, lookupTime)
	defer cancel()
	for _, namespace := range x.each() {
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
		x.absent.put(key.Hash(), struct{}{})
	}
	return found, nil
}
