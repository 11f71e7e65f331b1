// SPDX-License-Identifier: Apache-2.0

package gitfollower

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/internal/namespaces"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// pushPollInterval is the poll interval for pushes without a notification.
	pushPollInterval = 30 * time.Second
	// pushPageSize is the number of projects per query.
	pushPageSize = 500
)

// Pushes queues the projects whose repository received a push, as reported to the gateway, for
// Branches. A request stays in the store until the repository is polled.
type Pushes struct {
	store      store.PollRequestReader
	hints      store.Notifier
	namespaces namespaces.Set
	// projects receives the projects.
	projects chan event.GenericEvent

	mu sync.Mutex
	// requested has the requested projects, by namespace.
	requested map[string]uuid.UUID
}

// NewPushes returns Pushes that have not started.
func NewPushes(requests store.PollRequestReader, hints store.Notifier, within namespaces.Set) *Pushes {
	return &Pushes{
		store: requests, hints: hints, namespaces: within, projects: make(chan event.GenericEvent), requested: map[string]uuid.UUID{},
	}
}

// NeedLeaderElection reports true: only the leader polls.
func (p *Pushes) NeedLeaderElection() bool { return true }

// Start queues projects until ctx ends: after each notification, and at each pushPollInterval.
func (p *Pushes) Start(ctx context.Context) error {
	hints, stop := p.hints.Subscribe(store.TopicLook)
	defer stop()
	every := time.NewTicker(pushPollInterval)
	defer every.Stop()
	for {
		if err := p.queueProjects(ctx); err != nil && ctx.Err() == nil {
			ctrl.Log.WithName("pushes").Error(err, "reading push notifications; repositories are polled at their interval")
		}
		select {
		case _, open := <-hints:
			for open && len(hints) > 0 { // one query handles all pending notifications
				_, open = <-hints
			}
			if !open {
				hints = nil // the store is closed, and the next query returns the error
			}
		case <-every.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// queueProjects queues the projects that the store requests.
func (p *Pushes) queueProjects(ctx context.Context) error {
	for after := uuid.Nil; ; {
		page, err := p.store.ListPollRequests(ctx, after, pushPageSize)
		if err != nil {
			return fmt.Errorf("reading the repositories with pushes: %w", err)
		}
		for _, look := range page {
			if after = look.ProjectID; !p.namespaces.Has(look.Namespace) {
				continue // a project of another manager
			}
			p.recordRequest(look)
			project := &v1alpha1.Project{}
			project.Namespace, project.Name = look.Namespace, v1alpha1.ProjectName
			if err := base.Queue(ctx, p.projects, project); err != nil {
				return err
			}
		}
		if len(page) < pushPageSize {
			return nil
		}
	}
}

func (p *Pushes) recordRequest(look store.PollRequest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requested[look.Namespace] = look.ProjectID
}

// takeRequest removes the request for a namespace's repository before the poll, so that a later push creates a
// new request. Without a request, it makes no query.
func (p *Pushes) takeRequest(ctx context.Context, namespace string) error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	project, asked := p.requested[namespace]
	delete(p.requested, namespace)
	p.mu.Unlock()
	if !asked {
		return nil
	}
	if err := p.store.DeletePollRequest(ctx, project); err != nil {
		p.recordRequest(store.PollRequest{ProjectID: project, Namespace: namespace})
		return fmt.Errorf("taking the poll request of a push: %w", err)
	}
	return nil
}
