// SPDX-License-Identifier: Apache-2.0

package commitstatus

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

const (
	// slowResponse is the response time of a provider that causes a pause before the next status.
	slowResponse = 5 * time.Second
	// maxPause is the maximum pause of a project whose provider rejects requests, fails or is slow.
	maxPause = 10 * time.Minute
	// pauseJitter is the maximum jitter of a pause, as a share of the pause. It spreads the deployments that
	// wait for the end of the pause.
	pauseJitter = 0.5
)

// providerBackoff has the projects whose provider does not accept statuses, so that a project with a thousand
// deployments sends no more requests than a project with one. The zero value is ready. Its methods are
// safe for concurrent use.
type providerBackoff struct {
	mu          sync.Mutex
	byNamespace map[string]paused
}

// paused is a project with a pause.
type paused struct {
	// at is the time of the last request to the provider. pause is the time after it without requests.
	at    time.Time
	pause time.Duration
	// with is the configuration of the last request. After a change of the configuration, the pause no
	// longer applies.
	with providerConfig
}

// providerConfig identifies the configuration of a project's requests: the generation of the Project, and the
// version of its git Secret, or "" without a Secret.
type providerConfig struct {
	generation    int64
	secretVersion string
}

// remainingPause returns the remaining pause of a project.
func (p *providerBackoff) remainingPause(namespace string, with providerConfig, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := p.byNamespace[namespace]
	if last.with != with {
		last.pause = min(last.pause, minRetryInterval) // a configuration that changes often does not cause more requests
	}
	return max(0, last.pause-now.Sub(last.at))
}

// extendPause doubles the pause of a project.
func (p *providerBackoff) extendPause(namespace string, with providerConfig, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Forget projects without a recent request: none of their deployments waits.
	maps.DeleteFunc(p.byNamespace, func(_ string, last paused) bool { return now.Sub(last.at) > 2*maxPause })
	last := p.byNamespace[namespace]
	if last.with != with {
		last.pause = 0
	}
	if p.byNamespace == nil {
		p.byNamespace = map[string]paused{}
	}
	p.byNamespace[namespace] = paused{at: now, pause: min(max(2*last.pause, minRetryInterval), maxPause), with: with}
}

// endPause ends the pause of a project.
func (p *providerBackoff) endPause(namespace string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.byNamespace, namespace)
}

// providerConfig returns the current configuration for requests to the provider. The values of the Secret are
// read later, when a request is sent.
func (r *Reconciler) providerConfig(ctx context.Context, project *v1alpha1.Project) (providerConfig, error) {
	with := providerConfig{generation: project.Generation}
	if project.Spec.Git == nil || project.Spec.Git.SecretRef == nil {
		return with, nil
	}
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: project.Namespace, Name: string(project.Spec.Git.SecretRef.Name)}, secret)
	if client.IgnoreNotFound(err) != nil {
		return with, fmt.Errorf("reading the Git Secret: %w", err)
	}
	with.secretVersion = secret.ResourceVersion // the version of this Secret, not of another one with its name
	return with, nil
}
