// SPDX-License-Identifier: Apache-2.0

package runnerpool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/internal/plan"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

// appliedPool describes the pool that applyChildren wrote.
type appliedPool struct {
	// generation is the generation of the pool. A status of an earlier generation is stale.
	generation int64
	replicaCount
	// changed reports that the pool was different before.
	changed bool
	// awaitsRollout reports that the pool keeps its release of the platform, because other pools get the new
	// release first.
	awaitsRollout bool
}

// applyChildren writes the children of the pool: token, configuration and pods. While it waits for a rollout
// slot, it keeps the earlier release of the platform.
func (r *Reconciler) applyChildren(
	ctx context.Context, e *v1alpha1.Environment, project *v1alpha1.Project, allowed plan.Runner, key store.Key,
) (appliedPool, error) {
	if err := base.NetworkReady(project); err != nil {
		return appliedPool{}, err
	}
	found, err := r.getPool(ctx, e)
	if err != nil {
		return appliedPool{}, err
	}
	token, err := r.Token(ctx, e, tokenName(e), base.Labels(component, e.Name), func(token string) error {
		return r.storeToken(ctx, e, token, key)
	})
	if err != nil {
		return appliedPool{}, err
	}
	config, err := r.poolConfig(ctx, e, project, key)
	if err != nil {
		return appliedPool{}, err
	}
	if err := r.Apply(ctx, e, configSecret(e, config)); err != nil {
		return appliedPool{}, err
	}
	wanted := newPool(e, poolOptions{
		PodOptions: r.Pods, ProjectID: key.ProjectID.String(), ConfigDigest: configDigest(token, config),
		Resources: allowed.Fill(e.Spec.Runner.Resources.Requirements()),
	})
	waits, err := r.chooseRelease(ctx, e, found, wanted)
	if err != nil {
		return appliedPool{}, err
	}
	wrote, err := r.applyPool(ctx, e, found, wanted, key)
	wrote.changed, wrote.awaitsRollout = wrote.generation != found.Generation, waits
	return wrote, err
}

// applyPool writes the pool, except for the number of replicas if another field manager sets it.
func (r *Reconciler) applyPool(ctx context.Context, e *v1alpha1.Environment, found, wanted *appsv1.Deployment, key store.Key) (appliedPool, error) {
	others, err := r.otherReplicas(ctx, e, wanted)
	if err != nil {
		return appliedPool{}, err
	}
	to := r.countReplicas(e, found, others, key)
	if wanted.Spec.Replicas = &to.replicas; others != nil {
		wanted.Spec.Replicas = nil
	}
	if err := r.Apply(ctx, e, wanted); err != nil {
		return appliedPool{}, err
	}
	to.announce()
	return appliedPool{replicaCount: to, generation: wanted.Generation}, nil
}

// otherReplicas returns the number of replicas that another field manager has set, such as an
// autoscaler of the pool. It returns nil if the controller sets the number.
func (r *Reconciler) otherReplicas(ctx context.Context, e *v1alpha1.Environment, wanted *appsv1.Deployment) (*int32, error) {
	found, err := r.Child(ctx, e, wanted)
	if found == nil || err != nil || !base.HasOtherReplicas(found) {
		return nil, err
	}
	current := &appsv1.Deployment{}
	if err := r.Reader.Get(ctx, client.ObjectKeyFromObject(wanted), current); err != nil {
		return nil, fmt.Errorf("reading the replicas of the pool: %w", err)
	}
	return current.Spec.Replicas, nil
}

// getPool returns the pool, or an empty one if it does not exist.
func (r *Reconciler) getPool(ctx context.Context, e *v1alpha1.Environment) (*appsv1.Deployment, error) {
	found := &appsv1.Deployment{}
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: e.Namespace, Name: poolName(e)}, found)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the runner pool: %w", err)
	}
	return found, nil
}

// storeToken stores the pool's token.
func (r *Reconciler) storeToken(ctx context.Context, e *v1alpha1.Environment, token string, key store.Key) error {
	known, err := r.Store.Token(ctx, secrets.Digest(token))
	switch {
	case err == nil && known.Environment() == key:
		return nil
	case err == nil:
		return &base.SecretError{Name: tokenName(e), Problem: "its token belongs to another user; delete the Secret to create a new one"}
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return base.FromStore(fmt.Errorf("reading the runners' token: %w", err))
	}
	return base.FromStore(r.Store.PutToken(ctx, store.Token{
		SHA256: secrets.Digest(token), Kind: store.TokenRunner, ProjectID: key.ProjectID, EnvironmentID: key.ID,
	}))
}

// poolConfig returns the data of the pool's configuration Secret.
func (r *Reconciler) poolConfig(
	ctx context.Context, e *v1alpha1.Environment, project *v1alpha1.Project, key store.Key,
) (map[string][]byte, error) {
	var providers runnerconfig.Providers
	for _, p := range project.Spec.ModelProviders {
		provider := runnerconfig.Provider{Prefix: p.Prefix, Type: p.Type.EnumValue(), BaseURL: p.BaseURL}
		if p.APIKeySecretRef != nil {
			key, err := r.SecretValue(ctx, e.Namespace, *p.APIKeySecretRef)
			if err != nil {
				return nil, err
			}
			var problem string
			if provider.APIKey, problem = runnerconfig.Credential(key); problem != "" {
				ref := p.APIKeySecretRef
				return nil, &base.SecretError{Name: string(ref.Name), Problem: fmt.Sprintf("its key %q %s", ref.Key, problem)}
			}
		}
		providers.Providers = append(providers.Providers, provider)
	}
	variables, err := r.Variables(ctx, e, key, r.Keys)
	if err != nil {
		return nil, err
	}
	prices, err := pricesOf(project.Spec.ModelProviders)
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for name, content := range map[string]any{
		runnerconfig.ProvidersFile: providers, runnerconfig.VariablesFile: variables, runnerconfig.PricesFile: prices,
	} {
		if files[name], err = json.Marshal(content); err != nil {
			return nil, fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return files, nil
}
