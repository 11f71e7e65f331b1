// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/internal/plan"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/internal/seal"
	"github.com/agentplatform/agentplatform/store"
)

// kept is what keepPool wrote.
type kept struct {
	// generation is that of the pool; what is seen of an earlier one is not its state.
	generation int64
	number
	// changed: the pool was another one before.
	changed bool
	// waits: the pool has the release of the platform that it had, for a new one reaches
	// others first.
	waits bool
}

// keepPool writes the children of the pool: token, configuration, pods. One that waits for
// its turn has all but the platform's new release.
func (r *Reconciler) keepPool(
	ctx context.Context, e *v1alpha1.Environment, project *v1alpha1.Project, allowed plan.Runner, key store.Key,
) (kept, error) {
	if err := object.NetworkReady(project); err != nil {
		return kept{}, err
	}
	found, err := r.pool(ctx, e)
	if err != nil {
		return kept{}, err
	}
	token, err := r.Token(ctx, e, tokenName(e), object.Labels(component, e.Name), func(token string) error {
		return r.admit(ctx, e, token, key)
	})
	if err != nil {
		return kept{}, err
	}
	config, err := r.config(ctx, e, project, key)
	if err != nil {
		return kept{}, err
	}
	if err := r.Apply(ctx, e, configSecret(e, config)); err != nil {
		return kept{}, err
	}
	wanted := pool(e, poolOptions{
		PodOptions: r.Pods, ProjectID: key.ProjectID.String(), ConfigDigest: configDigest(token, config),
		Resources: allowed.Fill(e.Spec.Runner.Resources.Requirements()),
	})
	waits, err := r.release(ctx, e, found, wanted)
	if err != nil {
		return kept{}, err
	}
	wrote, err := r.applyPool(ctx, e, found, wanted, key)
	wrote.changed, wrote.waits = wrote.generation != found.Generation, waits
	return wrote, err
}

// applyPool writes the pool, but for the number of runners where somebody else sets
// it.
func (r *Reconciler) applyPool(ctx context.Context, e *v1alpha1.Environment, found, wanted *appsv1.Deployment, key store.Key) (kept, error) {
	others, err := r.scaledByOther(ctx, e, wanted)
	if err != nil {
		return kept{}, err
	}
	to := r.number(e, found, others, key)
	if wanted.Spec.Replicas = &to.replicas; others != nil {
		wanted.Spec.Replicas = nil
	}
	if err := r.Apply(ctx, e, wanted); err != nil {
		return kept{}, err
	}
	to.announce()
	return kept{number: to, generation: wanted.Generation}, nil
}

// scaledByOther is how many runners somebody else has set, such as an autoscaler of
// the pool itself; nil where the number is ours.
func (r *Reconciler) scaledByOther(ctx context.Context, e *v1alpha1.Environment, wanted *appsv1.Deployment) (*int32, error) {
	found, err := r.Child(ctx, e, wanted)
	if found == nil || err != nil || !object.IsScaled(found) {
		return nil, err
	}
	current := &appsv1.Deployment{}
	if err := r.Reader.Get(ctx, client.ObjectKeyFromObject(wanted), current); err != nil {
		return nil, fmt.Errorf("reading how far the pool was scaled: %w", err)
	}
	return current.Spec.Replicas, nil
}

// pool reads the pool; an empty one where there is none.
func (r *Reconciler) pool(ctx context.Context, e *v1alpha1.Environment) (*appsv1.Deployment, error) {
	found := &appsv1.Deployment{}
	err := r.Client.Get(ctx, types.NamespacedName{Namespace: e.Namespace, Name: poolName(e)}, found)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading the runner pool: %w", err)
	}
	return found, nil
}

// admit makes the store know the pool's token.
func (r *Reconciler) admit(ctx context.Context, e *v1alpha1.Environment, token string, key store.Key) error {
	known, err := r.Store.Token(ctx, seal.Digest(token))
	switch {
	case err == nil && known.Environment() == key:
		return nil
	case err == nil:
		return &object.SecretError{Name: tokenName(e), Problem: "it holds a token that is somebody else's; delete it, and another one is made"}
	}
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return object.FromStore(fmt.Errorf("finding the runners' token: %w", err))
	}
	return object.FromStore(r.Store.PutToken(ctx, store.Token{
		SHA256: seal.Digest(token), Kind: store.TokenRunner, ProjectID: key.ProjectID, EnvironmentID: key.ID,
	}))
}

// config is the content of the pool's configuration Secret.
func (r *Reconciler) config(
	ctx context.Context, e *v1alpha1.Environment, project *v1alpha1.Project, key store.Key,
) (map[string][]byte, error) {
	var providers runnerconfig.Providers
	for _, p := range project.Spec.ModelProviders {
		provider := runnerconfig.Provider{Prefix: p.Prefix, Type: p.Type.Word(), BaseURL: p.BaseURL}
		if p.APIKeySecretRef != nil {
			key, err := r.SecretValue(ctx, e.Namespace, *p.APIKeySecretRef)
			if err != nil {
				return nil, err
			}
			var problem string
			if provider.APIKey, problem = runnerconfig.Credential(key); problem != "" {
				ref := p.APIKeySecretRef
				return nil, &object.SecretError{Name: string(ref.Name), Problem: fmt.Sprintf("its key %q %s", ref.Key, problem)}
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

// showPool shows how the pool is doing, and whether the environment is in effect;
// done says that all runners are of now.
func (r *Reconciler) showPool(ctx context.Context, e *v1alpha1.Environment, wrote kept) (done bool, err error) {
	seen, err := r.showRunners(ctx, e, wrote)
	// A pool that scales has as many as are enough before it has all, unless some of before
	// are to go.
	enough := wrote.scales && seen.before == 0 && seen.ready >= wrote.enough
	switch {
	case err != nil:
		return false, err
	case seen.problem != "" && enough && seen.ready > 0:
		e.ShowRunnersFailing(seen.problem)
		v1alpha1.MarkReady(e, "in effect, but "+strconv.Itoa(int(seen.ready))+" of "+strconv.Itoa(int(wrote.replicas))+" runners are all that there are: "+seen.problem)
		return false, nil
	case seen.problem != "":
		e.MarkRunnersFailing(seen.problem)
		return false, nil
	case seen.ready < 0 && (!wrote.changed || wrote.scaled) && v1alpha1.IsReady(e):
		return false, nil // somebody else changed the pool, or its number: what comes of it is told next
	case seen.ready < wrote.replicas && enough:
		e.ShowRunners(seen.ready, wrote.replicas)
	case seen.ready < wrote.replicas:
		e.MarkRunnersStarting(max(seen.ready, 0), wrote.replicas)
		return false, nil
	default:
		e.MarkRunnersReady(seen.ready)
	}
	if wrote.waits {
		v1alpha1.MarkReady(e, "in effect; its runners get the platform's new release in turn with those of other environments")
		return false, nil
	}
	e.MarkInEffect()
	return seen.ready >= wrote.replicas, nil
}

// runners are what is seen of a pool.
type runners struct {
	// replicas are those that it is to have.
	replicas int32
	// ready are those of now that take runs, -1 where that cannot be said yet, before are
	// those of an earlier configuration.
	ready, before int32
	// problem is what keeps more from coming.
	problem string
	// releaseBefore: there are some, and not of the platform's present release.
	releaseBefore bool
}

// showRunners shows how many runners there are.
func (r *Reconciler) showRunners(ctx context.Context, e *v1alpha1.Environment, wrote kept) (runners, error) {
	found, err := r.pool(ctx, e)
	if err != nil {
		return runners{}, err
	}
	e.Status.Runner = v1alpha1.RunnerPoolStatus{
		Replicas: found.Status.Replicas, ReadyReplicas: found.Status.ReadyReplicas, Selector: selector(e),
	}
	seen := rollout(found, wrote.generation)
	seen.releaseBefore = metav1.IsControlledBy(found, e) && hasRunners(found) &&
		found.Annotations[object.AnnotationPlatform] != platformDigest(r.Pods)
	if seen.problem == "" && seen.ready < wrote.replicas {
		seen.problem, err = r.podProblem(ctx, e)
	}
	return seen, err
}

// podProblem is what keeps a runner pod from running; "" where nothing is known to.
func (r *Reconciler) podProblem(ctx context.Context, e *v1alpha1.Environment) (string, error) {
	pods := &corev1.PodList{}
	if err := r.Client.List(ctx, pods, client.InNamespace(e.Namespace), client.MatchingLabels(poolLabels(e))); err != nil {
		return "", fmt.Errorf("listing the runner pods: %w", err)
	}
	for i := range pods.Items {
		if problem := object.PodProblem(&pods.Items[i]); problem != "" {
			return problem, nil
		}
	}
	return "", nil
}

// rollout is how many pods of the configuration of now are ready at least, and
// what keeps more from coming; -1 before Kubernetes has looked at it. Pods of before
// say nothing of it: they stay until the new ones are ready.
func rollout(pool *appsv1.Deployment, generation int64) runners {
	s, seen := pool.Status, runners{replicas: ptr.Deref(pool.Spec.Replicas, 0), ready: -1}
	if s.ObservedGeneration < max(pool.Generation, generation) {
		return seen
	}
	for _, c := range s.Conditions {
		failed := c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue
		stuck := c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse
		if failed || stuck {
			seen.problem = c.Message
		}
	}
	seen.before = s.Replicas - s.UpdatedReplicas
	seen.ready = max(s.AvailableReplicas-seen.before, 0)
	return seen
}
