// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/internal/plan"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/internal/seal"
	"github.com/agentplatform/agentplatform/store"
)

// keepPool writes the children of the pool: token, configuration, pods.
func (r *Reconciler) keepPool(
	ctx context.Context, e *v1alpha1.Environment, project *v1alpha1.Project, allowed plan.Runner, key store.Key,
) error {
	if err := object.NetworkReady(project); err != nil {
		return err
	}
	token, err := r.Token(ctx, e, tokenName(e), object.Labels(component, e.Name))
	if err != nil {
		return err
	}
	if err := r.admit(ctx, token, key); err != nil {
		return err
	}
	config, err := r.config(ctx, e, project)
	if err != nil {
		return err
	}
	if err := r.Apply(ctx, e, configSecret(e, config)); err != nil {
		return err
	}
	return r.Apply(ctx, e, pool(e, poolOptions{
		PodOptions: r.Pods, ProjectID: key.ProjectID.String(), ConfigDigest: configDigest(token, config),
		Resources: allowed.Fill(e.Spec.Runner.Resources.Requirements()),
	}))
}

// admit makes the store know the pool's token.
func (r *Reconciler) admit(ctx context.Context, token string, key store.Key) error {
	known, err := r.Data.Token(ctx, seal.Digest(token))
	if err == nil && known.Environment() == key {
		return nil
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return object.FromStore(fmt.Errorf("finding the runners' token: %w", err))
	}
	return object.FromStore(r.Data.PutToken(ctx, store.Token{
		SHA256: seal.Digest(token), Kind: store.TokenRunner, ProjectID: key.ProjectID, EnvironmentID: key.ID,
	}))
}

// config is the content of the pool's configuration Secret.
func (r *Reconciler) config(ctx context.Context, e *v1alpha1.Environment, project *v1alpha1.Project) (map[string][]byte, error) {
	var providers runnerconfig.Providers
	for _, p := range project.Spec.ModelProviders {
		provider := runnerconfig.Provider{Prefix: p.Prefix, Type: string(p.Type), BaseURL: p.BaseURL}
		if p.APIKeySecretRef != nil {
			key, err := r.SecretValue(ctx, e.Namespace, *p.APIKeySecretRef)
			if err != nil {
				return nil, err
			}
			provider.APIKey = key
		}
		providers.Providers = append(providers.Providers, provider)
	}
	data, err := json.Marshal(providers)
	if err != nil {
		return nil, fmt.Errorf("writing the model providers: %w", err)
	}
	return map[string][]byte{runnerconfig.ProvidersFile: data}, nil
}

// showPool shows how the pool is doing.
func (r *Reconciler) showPool(ctx context.Context, e *v1alpha1.Environment) error {
	found := &appsv1.Deployment{}
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: e.Namespace, Name: poolName(e)}, found)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading the runner pool: %w", err)
	}
	want := e.Spec.Runner.Replicas()
	e.Status.Runner = v1alpha1.RunnerPoolStatus{
		Replicas: found.Status.Replicas, ReadyReplicas: found.Status.ReadyReplicas, Selector: selector(e),
	}
	ready, problem := rollout(found)
	switch {
	case problem != "":
		e.MarkRunnersFailing(problem)
	case ready < want:
		e.MarkRunnersStarting(ready, want)
	default:
		e.MarkRunnersReady(ready)
		e.MarkReady("")
	}
	return nil
}

// rollout is how many pods of the configuration of now are ready at least, and
// what keeps more from coming. Pods of before say nothing of it: they stay until
// the new ones are ready.
func rollout(pool *appsv1.Deployment) (ready int32, problem string) {
	s := pool.Status
	if s.ObservedGeneration < pool.Generation {
		return 0, ""
	}
	for _, c := range s.Conditions {
		failed := c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue
		stuck := c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse
		if failed || stuck {
			problem = c.Message
		}
	}
	before := s.Replicas - s.UpdatedReplicas
	return max(s.AvailableReplicas-before, 0), problem
}
