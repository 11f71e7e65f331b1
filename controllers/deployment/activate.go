// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// prefetchTimeout is how long an activation waits for a runner to fetch the bundle. After that,
	// the first run fetches it.
	prefetchTimeout = 30 * time.Second
	// maxRunnerAge is the maximum age of a runner's last request for the runner to count.
	maxRunnerAge = time.Minute
)

// activateBuilt activates a built deployment when a runner has its bundle. It fails a deployment whose models
// lack a provider.
func (r *Reconciler) activateBuilt(ctx context.Context, v *deploymentState) error {
	// A deployment that was live goes live again after it is rebuilt, for example after a restore of
	// the store.
	wasLive := v.Status.Live
	if missing := v.missingProviders(); missing != "" && !wasLive {
		return r.endBuild(ctx, v, store.DeploymentFailed, store.FailureModelProvider, missing)
	}
	held, err := r.requestPrefetch(ctx, v)
	if err != nil {
		return err
	}
	if !held && v.timeAtStep(r.Now()) < prefetchTimeout {
		return nil
	}
	_, err = r.activate(ctx, v, store.Activation{}, v.Spec.SkipFailedConnectors || wasLive)
	var failed *connectorsError
	if errors.As(err, &failed) {
		return r.failConnectors(ctx, v, failed)
	}
	return err
}

// requestPrefetch asks the runners to fetch the bundle. It reports whether a runner has it, or there is no
// runner to wait for.
func (r *Reconciler) requestPrefetch(ctx context.Context, v *deploymentState) (bool, error) {
	digest := v.outcome.BundleDigest
	if err := r.Store.RequestPrefetch(ctx, v.environmentKey, digest); err != nil {
		return false, base.FromStore(fmt.Errorf("requesting a prefetch: %w", err))
	}
	runners, err := r.Store.Runners(ctx, v.environmentKey, maxRunnerAge)
	if err != nil {
		return false, base.FromStore(fmt.Errorf("listing the runners: %w", err))
	}
	held := slices.ContainsFunc(runners, func(runner store.Runner) bool { return slices.Contains(runner.Digests, digest) })
	return held || len(runners) == 0, nil
}

// timeAtStep returns how long the deployment has been at its last step.
func (v *deploymentState) timeAtStep(now time.Time) time.Duration {
	c := v.Status.Condition(v1alpha1.ConditionConnectorsApplied)
	if c == nil {
		return 0
	}
	return now.Sub(c.LastTransitionTime.Time)
}

// activate switches the live deployment and applies the connectors of its code, in one transaction. It
// reports whether this deployment is live now. If tolerated, connectors that cannot be applied stay
// unchanged. Otherwise activate changes nothing and returns a *connectorsError.
func (r *Reconciler) activate(ctx context.Context, v *deploymentState, a store.Activation, tolerated bool) (live bool, err error) {
	a.Deployment = v.key
	result, err := r.activateInStore(ctx, v, a, tolerated)
	if err != nil && (a.RequestedAt != nil || !errors.Is(err, store.ErrConflict)) {
		return false, err
	}
	if v.outcome, err = r.Store.Deployment(ctx, v.key); err != nil {
		return false, base.FromStore(err)
	}
	return result.Live, nil
}

// activateInStore is the transaction of activate. The store's rows may differ from the cached objects, so
// the store may reject a connector that had no conflict. activate then treats it as a connector that cannot
// be applied.
func (r *Reconciler) activateInStore(
	ctx context.Context, v *deploymentState, a store.Activation, tolerated bool,
) (store.ActivationResult, error) {
	refused := map[string]string{}
	for {
		with := a
		if err := r.addConnectors(ctx, v, &with, tolerated, refused); err != nil {
			return store.ActivationResult{}, err
		}
		result, err := r.Store.Activate(ctx, with)
		if err == nil {
			return result, nil
		}
		name, problem := refusalOf(with.Connectors, err)
		if name == "" {
			return result, base.FromStore(fmt.Errorf("activating: %w", err))
		}
		refused[name] = problem
	}
}

// refusalOf returns the name of the connector that made an activation fail, and the reason. It returns
// "" for any other error.
func refusalOf(connectors []store.Connector, err error) (name, problem string) {
	var (
		refused *store.ConnectorRefusedError
		held    *store.DuplicateError
	)
	if !errors.As(err, &refused) {
		return "", ""
	}
	for _, c := range connectors {
		switch {
		case c.ID != refused.Connector:
		case errors.As(refused.Cause, &held) && held.Holder.Kind == store.KindConnector:
			return c.Ref.Name, fmt.Sprintf("the name %q still belongs to Connector %q in the same environment, until its new spec "+
				"is in effect; see its conditions, or choose another name", c.Name, held.Holder.Name)
		default:
			return c.Ref.Name, refused.Error()
		}
	}
	return "", ""
}

// restore makes a deployment live that was live when its environment was deleted, after the environment
// or both come back: from a backup, from Git, or in another cluster. The store orders activations, so
// neither the order of the restored objects nor their statuses matter.
func (r *Reconciler) restore(ctx context.Context, v *deploymentState) error {
	if v.outcome.Status != store.DeploymentDeployed {
		return nil
	}
	environment, err := r.Store.Environment(ctx, v.environmentKey)
	if err != nil {
		return base.FromStore(err)
	}
	if v.outcome.ActivationRank <= environment.LiveRank {
		return nil
	}
	// If two deployments were live, the later one was live when the environment was deleted, even if it
	// cannot go live again.
	all, err := r.Store.ListDeployments(ctx, v.environmentKey)
	if err != nil {
		return base.FromStore(err)
	}
	if slices.ContainsFunc(all, func(d store.Deployment) bool { return d.ActivationRank > v.outcome.ActivationRank }) {
		return nil
	}
	// Tolerate missing model providers and connectors that cannot be applied, because the deployment was
	// live before.
	_, err = r.activate(ctx, v, store.Activation{}, true)
	if errors.Is(err, store.ErrBundleGone) {
		v.outcome.Message, err = "was live in the environment and cannot go live again: "+bundleDeletedMessage, nil
	}
	return err
}

// bundleDeletedMessage is the message for a user who activates a deployment whose bundle was deleted.
const bundleDeletedMessage = "the bundle was deleted; deploy the same commit again"

// handleActivation handles spec.activation, for example of a rollback.
func (r *Reconciler) handleActivation(ctx context.Context, v *deploymentState) error {
	if !v.ActivationPending() || !v.outcome.Status.Terminal() {
		return nil
	}
	if v.outcome.Status != store.DeploymentDeployed {
		v.MarkActivation(v1alpha1.ActivationNotDeployed,
			fmt.Sprintf("the deployment is %s; only a deployed one can go live", v.outcome.Status))
		return nil
	}
	if v.Spec.Activation.IsAhead(r.Now()) {
		v.MarkActivationAhead()
		return nil
	}
	old, err := r.wasHandled(ctx, v)
	if err != nil {
		return err
	}
	if old {
		v.MarkActivation(v1alpha1.ActivationActivated, "handled before this object was restored")
		return nil
	}
	later, err := r.laterRequest(ctx, v)
	if err != nil {
		return err
	}
	if later != "" {
		v.MarkActivation(v1alpha1.ActivationSuperseded, fmt.Sprintf("the activation of Deployment %q was requested later", later))
		return nil
	}
	missing, err := r.providersToGoLive(ctx, v)
	if err != nil {
		return err
	}
	if missing != "" {
		v.MarkActivation(v1alpha1.ActivationModelProviderMissing, missing)
		return nil
	}
	live, err := r.activate(ctx, v, store.Activation{RequestedAt: &v.Spec.Activation.RequestedAt.Time}, v.toleratesFailures())
	var failed *connectorsError
	if errors.As(err, &failed) {
		v.MarkActivation(v1alpha1.ActivationConnectorsFailed, failed.Error())
		return nil
	}
	if errors.Is(err, store.ErrBundleGone) {
		v.MarkActivation(v1alpha1.ActivationBundleGone, bundleDeletedMessage)
		return nil
	}
	if err != nil {
		return err
	}
	message := ""
	if !live {
		message = "already done; another deployment was activated since"
	}
	v.MarkActivation(v1alpha1.ActivationActivated, message)
	return nil
}

// toleratesFailures reports whether the pending activation request tolerates connectors that cannot be applied.
func (v *deploymentState) toleratesFailures() bool {
	return v.ActivationPending() && v.Spec.Activation.Force
}

// laterRequest returns the name of a deployment of the same environment with a later activation request,
// which is pending or already live. If several requests waited for the manager, the last one wins, in
// whatever order the manager reads them. Requests with a time in the future do not count.
func (r *Reconciler) laterRequest(ctx context.Context, v *deploymentState) (string, error) {
	environment, err := r.Store.Environment(ctx, v.environmentKey)
	if err != nil {
		return "", base.FromStore(err)
	}
	list := &v1alpha1.DeploymentList{}
	err = r.Client.List(ctx, list, client.InNamespace(v.Namespace), client.MatchingFields{base.ByEnvironment: string(v.Spec.Environment)})
	if err != nil {
		return "", fmt.Errorf("listing the deployments: %w", err)
	}
	for i := range list.Items {
		other := &list.Items[i]
		if other.Name == v.Name || other.Spec.Environment != v.Spec.Environment || other.Status.Phase != v1alpha1.DeploymentDeployed ||
			other.Spec.Activation == nil || !v.Spec.Activation.RequestedAt.Before(&other.Spec.Activation.RequestedAt) {
			continue
		}
		if other.Spec.Activation.RequestedAt.After(r.Now()) {
			continue
		}
		live := environment.LiveDeploymentID != nil && environment.LiveDeploymentID.String() == other.Status.ID
		if other.ActivationPending() || live {
			return other.Name, nil
		}
	}
	return "", nil
}

// wasHandled reports whether an activation request came with a restored object, and its environment had
// an activation since. Such a request must not be executed again. The store has only the last
// request, and a backup may contain an earlier one. Requests that were added after the object was
// created are new, and the clock of their author does not matter.
func (r *Reconciler) wasHandled(ctx context.Context, v *deploymentState) (bool, error) {
	if !v.hadNoStatus || v.Generation > 1 {
		return false, nil
	}
	environment, err := r.Store.Environment(ctx, v.environmentKey)
	if err != nil {
		return false, base.FromStore(err)
	}
	at := environment.LiveActivatedAt
	return at != nil && at.After(v.Spec.Activation.RequestedAt.Add(time.Second)), nil
}
