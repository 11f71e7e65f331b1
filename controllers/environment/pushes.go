// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/namespaces"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// pushesEvery is how often the store is asked for pushes of which no hint came.
	pushesEvery = 30 * time.Second
	// pushesPage is how many one statement reads.
	pushesPage = 500
)

// Pushes hands projects to Branches of which the gateway was told that their repository has
// changed. What it asks for is forgotten when somebody looks, and by nobody else.
type Pushes struct {
	store      store.LookTaker
	hints      store.Notifier
	namespaces namespaces.Set
	// told takes the projects.
	told chan event.GenericEvent

	mu sync.Mutex
	// asked are the projects, by namespace, that the store was seen to ask for.
	asked map[string]uuid.UUID
}

// NewPushes hears of none yet.
func NewPushes(looks store.LookTaker, hints store.Notifier, within namespaces.Set) *Pushes {
	return &Pushes{store: looks, hints: hints, namespaces: within, told: make(chan event.GenericEvent), asked: map[string]uuid.UUID{}}
}

// NeedLeaderElection says that only the leader looks.
func (p *Pushes) NeedLeaderElection() bool { return true }

// Start hands projects over until ctx ends: when a hint comes, and every while.
func (p *Pushes) Start(ctx context.Context) error {
	hints, stop := p.hints.Subscribe(store.TopicLook)
	defer stop()
	every := time.NewTicker(pushesEvery)
	defer every.Stop()
	for {
		if err := p.hand(ctx); err != nil && ctx.Err() == nil {
			ctrl.Log.WithName("pushes").Error(err, "repositories are looked at when their interval is over")
		}
		select {
		case _, open := <-hints:
			for open && len(hints) > 0 { // one look at the store is for all of them
				_, open = <-hints
			}
			if !open {
				hints = nil // the store is closed, and says so when it is asked
			}
		case <-every.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// hand hands over those that the store asks for.
func (p *Pushes) hand(ctx context.Context) error {
	for after := uuid.Nil; ; {
		page, err := p.store.AskedLooks(ctx, after, pushesPage)
		if err != nil {
			return fmt.Errorf("reading which repositories have changed: %w", err)
		}
		for _, look := range page {
			if after = look.ProjectID; !p.namespaces.Has(look.Namespace) {
				continue // another manager's
			}
			p.note(look)
			project := &v1alpha1.Project{}
			project.Namespace, project.Name = look.Namespace, v1alpha1.ProjectName
			select {
			case p.told <- event.GenericEvent{Object: project}:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if len(page) < pushesPage {
			return nil
		}
	}
}

func (p *Pushes) note(look store.Look) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[look.Namespace] = look.ProjectID
}

// take forgets that a namespace's repository is asked for, before somebody looks at it: what
// is pushed from then on is asked for anew. What nobody asked for costs no statement.
func (p *Pushes) take(ctx context.Context, namespace string) error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	project, asked := p.asked[namespace]
	delete(p.asked, namespace)
	p.mu.Unlock()
	if !asked {
		return nil
	}
	if err := p.store.TakeLook(ctx, project); err != nil {
		p.note(store.Look{ProjectID: project, Namespace: namespace})
		return fmt.Errorf("taking the look that a push asked for: %w", err)
	}
	return nil
}
