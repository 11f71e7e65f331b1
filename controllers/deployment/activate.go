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
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// prefetchPatience is how long activation waits for a runner that holds the
	// bundle; after that the first run fetches it.
	prefetchPatience = 30 * time.Second
	// runnerSeen is how long ago a runner may have been heard of to count.
	runnerSeen = time.Minute
)

// goLive activates a deployment that was built, once a runner holds its bundle.
func (r *Reconciler) goLive(ctx context.Context, v *version) error {
	held, err := r.prefetched(ctx, v)
	if err != nil {
		return err
	}
	if !held && v.waited(r.Now()) < prefetchPatience {
		return nil
	}
	// One that was live is so again once it is built anew, as for a store that was restored.
	_, err = r.activate(ctx, v, store.Activation{}, v.Spec.SkipFailedConnectors || v.Status.Live)
	var failed *connectorsError
	if errors.As(err, &failed) {
		return r.failConnectors(ctx, v, failed)
	}
	return err
}

// prefetched asks the runners to fetch the bundle, and says whether one holds
// it, or none is there to wait for.
func (r *Reconciler) prefetched(ctx context.Context, v *version) (bool, error) {
	digest := v.outcome.BundleDigest
	if err := r.Store.RequestPrefetch(ctx, v.environmentKey, digest); err != nil {
		return false, object.FromStore(fmt.Errorf("asking for a prefetch: %w", err))
	}
	runners, err := r.Store.Runners(ctx, v.environmentKey, runnerSeen)
	if err != nil {
		return false, object.FromStore(fmt.Errorf("listing the runners: %w", err))
	}
	held := slices.ContainsFunc(runners, func(runner store.Runner) bool { return slices.Contains(runner.Digests, digest) })
	return held || len(runners) == 0, nil
}

// waited is how long the deployment has been at its last step.
func (v *version) waited(now time.Time) time.Duration {
	c := v.Status.Condition(v1alpha1.ConditionConnectorsApplied)
	if c == nil {
		return 0
	}
	return now.Sub(c.LastTransitionTime.Time)
}

// activate flips what is live, with the connectors of the code, in one transaction, and
// says whether it is this deployment now. Connectors that cannot be applied stay as they
// are where that is tolerated; else nothing is done, and they are a *connectorsError.
func (r *Reconciler) activate(ctx context.Context, v *version, a store.Activation, tolerated bool) (live bool, err error) {
	a.Deployment = v.key
	result, err := r.flip(ctx, v, a, tolerated)
	if err != nil && (a.RequestedAt != nil || !errors.Is(err, store.ErrConflict)) {
		return false, err
	}
	if v.outcome, err = r.Store.Deployment(ctx, v.key); err != nil {
		return false, object.FromStore(err)
	}
	return result.Live, nil
}

// flip is the transaction. Rows may say something else than the objects from which they come, so
// that it may refuse a connector that nothing seemed to be in the way of: then that one cannot be
// applied either.
func (r *Reconciler) flip(ctx context.Context, v *version, a store.Activation, tolerated bool) (store.ActivationResult, error) {
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
			return result, object.FromStore(fmt.Errorf("activating: %w", err))
		}
		refused[name] = problem
	}
}

// refusalOf is the name of the one of these connectors that an activation failed for, and why;
// "" where it failed for anything else.
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
			return c.Ref.Name, fmt.Sprintf("the name %q is still that of Connector %q in the same environment, until what that one's spec says "+
				"is in effect: see its conditions, or choose another name", c.Name, held.Holder.Name)
		default:
			return c.Ref.Name, refused.Error()
		}
	}
	return "", ""
}

// restore makes a deployment live that was so when its environment went, once
// that or both came back: from a backup, by Git, or in another cluster. The store
// ranks activations, so the order in which objects come back does not matter, nor
// what their statuses say.
func (r *Reconciler) restore(ctx context.Context, v *version) error {
	if v.outcome.Status != store.DeploymentDeployed {
		return nil
	}
	environment, err := r.Store.Environment(ctx, v.environmentKey)
	if err != nil {
		return object.FromStore(err)
	}
	if v.outcome.ActivationRank <= environment.LiveRank {
		return nil
	}
	// Of two that were live the later one was so when its environment went, also where it cannot be again.
	all, err := r.Store.ListDeployments(ctx, v.environmentKey)
	if err != nil {
		return object.FromStore(err)
	}
	if slices.ContainsFunc(all, func(d store.Deployment) bool { return d.ActivationRank > v.outcome.ActivationRank }) {
		return nil
	}
	// Whatever became of its connectors meanwhile: it was live.
	_, err = r.activate(ctx, v, store.Activation{}, true)
	if errors.Is(err, store.ErrBundleGone) {
		v.outcome.Message, err = "was live in the environment, and cannot be so again: "+bundleGone, nil
	}
	return err
}

// bundleGone is for the person who wants a deployment live whose bundle is gone.
const bundleGone = "what was built is not stored any more; deploy the same commit again"

// activateAgain answers spec.activation, as a rollback asks for.
func (r *Reconciler) activateAgain(ctx context.Context, v *version) error {
	if !v.ActivationPending() || !v.outcome.Status.Terminal() {
		return nil
	}
	if v.outcome.Status != store.DeploymentDeployed {
		v.MarkActivation(v1alpha1.ActivationNotDeployed,
			fmt.Sprintf("the deployment is %s; only a deployed one can be live", v.outcome.Status))
		return nil
	}
	if v.Spec.Activation.IsAhead(r.Now()) {
		v.MarkActivationAhead()
		return nil
	}
	old, err := r.answeredBefore(ctx, v)
	if err != nil {
		return err
	}
	if old {
		v.MarkActivation(v1alpha1.ActivationActivated, "answered before this object was restored")
		return nil
	}
	later, err := r.askedLater(ctx, v)
	if err != nil {
		return err
	}
	if later != "" {
		v.MarkActivation(v1alpha1.ActivationSuperseded, fmt.Sprintf("the activation of Deployment %q was asked for later", later))
		return nil
	}
	live, err := r.activate(ctx, v, store.Activation{RequestedAt: &v.Spec.Activation.RequestedAt.Time}, v.forces())
	var failed *connectorsError
	if errors.As(err, &failed) {
		v.MarkActivation(v1alpha1.ActivationConnectorsFailed, failed.Error())
		return nil
	}
	if errors.Is(err, store.ErrBundleGone) {
		v.MarkActivation(v1alpha1.ActivationBundleGone, bundleGone)
		return nil
	}
	if err != nil {
		return err
	}
	message := ""
	if !live {
		message = "carried out before; another deployment was activated since"
	}
	v.MarkActivation(v1alpha1.ActivationActivated, message)
	return nil
}

// forces says that the request to activate the deployment wants it live although
// connectors of its code cannot be applied.
func (v *version) forces() bool {
	return v.ActivationPending() && v.Spec.Activation.Force
}

// askedLater names a deployment of the same environment whose activation was
// asked for after this one's and waits, or is what is live now: of requests that
// waited for a manager together the last one counts, in whatever order they are
// seen. What was asked for by a clock that is ahead of ours says nothing.
func (r *Reconciler) askedLater(ctx context.Context, v *version) (string, error) {
	environment, err := r.Store.Environment(ctx, v.environmentKey)
	if err != nil {
		return "", object.FromStore(err)
	}
	list := &v1alpha1.DeploymentList{}
	err = r.Client.List(ctx, list, client.InNamespace(v.Namespace), client.MatchingFields{object.ByEnvironment: string(v.Spec.Environment)})
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

// answeredBefore says whether a request came along with a restored object whose
// environment had an activation since: it must not be carried out again. The
// store knows the last request alone, and a backup may hold one before that. What
// was asked of an object after it was made is none of those, and whose clock it was
// asked by does not count.
func (r *Reconciler) answeredBefore(ctx context.Context, v *version) (bool, error) {
	if !v.unseen || v.Generation > 1 {
		return false, nil
	}
	environment, err := r.Store.Environment(ctx, v.environmentKey)
	if err != nil {
		return false, object.FromStore(err)
	}
	at := environment.LiveActivatedAt
	return at != nil && at.After(v.Spec.Activation.RequestedAt.Add(time.Second)), nil
}
