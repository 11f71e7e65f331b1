// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/internal/commitstatus"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/gitremote"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
)

const (
	// reportsFor is the maximum age of a state that is reported to the provider.
	reportsFor = time.Hour
	// aheadAtMost is the tolerated clock difference. A time further in the future is invalid, because
	// other users can write the status.
	aheadAtMost = 5 * time.Minute
	// soonest is the minimum pause between two attempts. Each pause is half of the time since the first
	// attempt.
	soonest = 10 * time.Second
	// reportsAtOnce is the maximum number of concurrent requests to providers.
	reportsAtOnce = 16
)

// Reporter sends commit statuses for deployments to the repository's provider. It is a separate
// controller, so that a slow provider does not delay deployments. It writes only status.commitStatus,
// and no other controller writes that field.
type Reporter struct {
	*object.Base
	// Guard decides which addresses can be reached.
	Guard *egress.Guard

	// busy has the namespaces with a request in progress. Each namespace has one slot, so that a slow
	// provider delays only its own project.
	busy sync.Map
	// pauses has the namespaces whose provider does not accept statuses.
	pauses providerBackoff
	// gone has deployments that were deleted while their commit status was pending, by
	// types.NamespacedName.
	gone sync.Map
}

// Reconcile sends the commit status of a Deployment if the provider does not have it yet: of a deleted
// one, and of the current one with this name.
func (r *Reporter) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	again, err := r.endDeletedStatus(ctx, req.NamespacedName)
	if err != nil {
		return again, err
	}
	d := &v1alpha1.Deployment{}
	if err := r.Client.Get(ctx, req.NamespacedName, d); err != nil {
		return again, client.IgnoreNotFound(err)
	}
	result, err := r.sendStatus(ctx, d, r.showStatus)
	if errors.Is(err, object.ErrProjectMissing) { // the namespace is being deleted; a new Project triggers a reconcile
		result, err = ctrl.Result{}, nil
	}
	if result.RequeueAfter == 0 || again.RequeueAfter > 0 && again.RequeueAfter < result.RequeueAfter {
		result = again
	}
	return result, err
}

// shows records the result of a request. went reports that the deployment was deleted meanwhile with a
// pending commit status.
type shows func(context.Context, *v1alpha1.Deployment, v1alpha1.DeploymentCommitStatus) (went bool, err error)

// sendStatus sends the commit status of a deployment, and calls show with the result.
func (r *Reporter) sendStatus(ctx context.Context, d *v1alpha1.Deployment, show shows) (ctrl.Result, error) {
	state, since := wantedState(d)
	age := r.Now().Sub(since)
	if state == "" || isSettled(d, state) || age > reportsFor || age < -aheadAtMost {
		return ctrl.Result{}, nil
	}
	again := ctrl.Result{RequeueAfter: max(soonest, age/2)}
	project, err := r.Project(ctx, d.Namespace)
	if err != nil {
		return ctrl.Result{}, err
	}
	with, err := r.providerConfig(ctx, project)
	if err != nil {
		return ctrl.Result{}, err
	}
	if rest := r.pauses.remainingPause(d.Namespace, with, r.Now()); rest > 0 {
		return ctrl.Result{RequeueAfter: wait.Jitter(rest, spread)}, nil
	}
	status, ok, err := r.statusOf(ctx, d)
	if err != nil || !ok {
		return again, err
	}
	if told := reportedState(d); told == status.State {
		return ctrl.Result{}, nil
	}
	if _, busy := r.busy.LoadOrStore(d.Namespace, true); busy {
		return ctrl.Result{RequeueAfter: time.Second}, nil
	}
	defer r.busy.Delete(d.Namespace)
	began := r.Now()
	became, err := r.reportStatus(ctx, d, project, status)
	if err != nil {
		return ctrl.Result{}, err
	}
	r.startPause(d.Namespace, with, became.Reason, r.Now().Sub(began))
	if became.Reason == v1alpha1.CommitStatusReported {
		again = ctrl.Result{}
	}
	went, err := show(ctx, d, became)
	if went {
		again.RequeueAfter = soonest
	}
	return again, err
}

// startPause starts a pause if the provider rejected the last status or was slow, because its requests hold
// a slot that other deployments wait for.
func (r *Reporter) startPause(namespace string, with providerConfig, became v1alpha1.CommitStatusReason, took time.Duration) {
	switch {
	case became == v1alpha1.CommitStatusRefused || became == v1alpha1.CommitStatusUnreachable || took >= slow:
		r.pauses.extendPause(namespace, with, r.Now())
	case became == v1alpha1.CommitStatusReported:
		r.pauses.endPause(namespace)
	}
}

// wantedState returns the state of a deployment's commit for the provider and since when it holds. It
// returns "" if there is no state to report yet.
func wantedState(d *v1alpha1.Deployment) (state commitstatus.State, since time.Time) {
	at := d.Status.EndedAt
	switch d.Status.Phase {
	case v1alpha1.DeploymentBuilding:
		state, at = commitstatus.Pending, d.Status.StartedAt
	case v1alpha1.DeploymentDeployed:
		state = commitstatus.Success
	case v1alpha1.DeploymentFailed:
		state = commitstatus.Failure
	case v1alpha1.DeploymentCancelled:
		state = commitstatus.Error
	}
	if d.Status.FailureReason == v1alpha1.FailureStoreRestored { // the failure says nothing about the commit
		if state = ""; reportedState(d) == commitstatus.Pending { // no other controller ends that state
			state = commitstatus.Error
		}
	}
	if at == nil || !isCommit(d.Status.Commit) || d.DeletionTimestamp != nil {
		return "", time.Time{}
	}
	return state, at.Time
}

// reportedState returns the last state that the provider accepted for a deployment, or "".
func reportedState(d *v1alpha1.Deployment) commitstatus.State {
	if told := d.Status.CommitStatus; told != nil && told.Reason == v1alpha1.CommitStatusReported {
		return commitstatus.State(told.State)
	}
	return ""
}

// isPending reports whether the last state that the provider accepted is pending.
func isPending(d *v1alpha1.Deployment) bool {
	told := d.Status.CommitStatus
	return told != nil && told.State == string(commitstatus.Pending)
}

// isSettled reports whether the provider already has the final state of a deployment, whatever other
// deployments of the commit exist: its own state, or the state of another deployment that it reported
// when it was cancelled.
func isSettled(d *v1alpha1.Deployment, state commitstatus.State) bool {
	told := reportedState(d)
	return told == state || state == commitstatus.Error && (told == commitstatus.Success || told == commitstatus.Failure)
}

// isCommit reports whether a text is a complete commit hash, which is safe in a URL.
func isCommit(text string) bool {
	return (len(text) == 40 || len(text) == 64) && strings.Trim(text, "0123456789abcdef") == ""
}

// descriptions are the texts of the states for users.
var descriptions = map[commitstatus.State]string{
	commitstatus.Pending: "is being built and tested", commitstatus.Success: "deployed",
	commitstatus.Failure: "failed", commitstatus.Error: "cancelled",
}

// contextOf returns the context of a deployment's commit status, which has the slug of its environment,
// unless another context is pending for the deployment. It returns "" if the environment is unknown. It
// ignores a pending context that does not belong to the namespace.
func (r *Reporter) contextOf(ctx context.Context, d *v1alpha1.Deployment) (string, error) {
	own := "agentplatform/" + d.Namespace + "/"
	if told := d.Status.CommitStatus; isPending(d) && strings.HasPrefix(told.Context, own) {
		return told.Context, nil
	}
	e := &v1alpha1.Environment{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: d.Namespace, Name: string(d.Spec.Environment)}, e)
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("reading the environment of a commit: %w", err)
	}
	if e.Status.Slug == "" {
		return "", nil
	}
	return own + e.Status.Slug, nil
}

// statusOf returns the commit status of a deployment. ok is false if the environment is unknown, a
// newer deployment of the commit reports instead, or the commit has no state.
func (r *Reporter) statusOf(ctx context.Context, d *v1alpha1.Deployment) (s commitstatus.Status, ok bool, err error) {
	name, err := r.contextOf(ctx, d)
	if name == "" || err != nil {
		return s, false, err
	}
	list := &v1alpha1.DeploymentList{}
	err = r.Client.List(ctx, list, client.InNamespace(d.Namespace), client.MatchingFields{object.ByEnvironment: string(d.Spec.Environment)})
	if err != nil {
		return s, false, fmt.Errorf("listing the deployments of a commit: %w", err)
	}
	known := bestKnown(d, list.Items)
	if known == nil {
		return s, false, nil
	}
	state, _ := wantedState(known)
	description := descriptions[state]
	if known.Status.FailureReason != "" {
		description += ": " + string(known.Status.FailureReason)
	}
	return commitstatus.Status{Commit: d.Status.Commit, State: state, Context: name, Description: description}, true, nil
}

// bestKnown returns the deployment that determines the state of d's commit, or nil if a newer deployment of
// the commit exists. Usually this is d. If d was cancelled, it is the newest deployment of the commit with a
// result, because that result stays valid. Without a result, it is d if any of the deployments was built.
// Otherwise it is nil, because the provider has no state to correct.
func bestKnown(d *v1alpha1.Deployment, all []v1alpha1.Deployment) *v1alpha1.Deployment {
	var known *v1alpha1.Deployment
	built := d.Status.StartedAt != nil // the deployment may be deleted
	for i := range all {
		other := &all[i]
		if other.Status.Commit != d.Status.Commit {
			continue
		}
		if oldestFirst(d, other) < 0 {
			return nil
		}
		built = built || other.Status.StartedAt != nil
		state, _ := wantedState(other)
		if state != "" && state != commitstatus.Error && (known == nil || oldestFirst(known, other) < 0) {
			known = other
		}
	}
	switch {
	case d.Status.Phase != v1alpha1.DeploymentCancelled:
		return d
	case known == nil && built:
		return d
	}
	return known
}

// reportStatus sends a commit status and returns the result. An error is an internal error.
func (r *Reporter) reportStatus(
	ctx context.Context, d *v1alpha1.Deployment, project *v1alpha1.Project, s commitstatus.Status,
) (became v1alpha1.DeploymentCommitStatus, err error) {
	if told := d.Status.CommitStatus; told != nil {
		became.State, became.Context = told.State, told.Context
	}
	not := func(reason v1alpha1.CommitStatusReason, message string) (v1alpha1.DeploymentCommitStatus, error) {
		became.Reason, became.Message = reason, gitremote.Clip(message, 1000)
		return became, nil
	}
	git := project.Spec.Git
	if git == nil {
		return not(v1alpha1.CommitStatusProviderUnknown, "the project has no git repository")
	}
	repository, known, err := commitstatus.Find(git.URL, commitstatus.Provider(git.Provider), git.APIURL)
	switch {
	case err != nil:
		return not(v1alpha1.CommitStatusProviderUnknown, err.Error())
	case !known:
		return not(v1alpha1.CommitStatusProviderUnknown,
			"cannot detect the Git provider from spec.git.url; set spec.git.provider of the Project to GitHub, GitLab, Gitea or Forgejo")
	case git.SecretRef == nil:
		return not(v1alpha1.CommitStatusCredentialsMissing, "no status is reported: set spec.git.secretRef of the Project to a Secret with a token")
	}
	values, err := r.Secret(ctx, d.Namespace, string(git.SecretRef.Name))
	if missing := (*object.SecretError)(nil); errors.As(err, &missing) {
		return not(v1alpha1.CommitStatusCredentialsMissing, missing.Error())
	}
	if err != nil {
		return became, err
	}
	bounded, err := gitremote.ReadSecrets(gitremote.Values(values), runnerconfig.GitBearerToken, runnerconfig.GitPassword, runnerconfig.GitCA)
	if err != nil {
		return not(v1alpha1.CommitStatusCredentialsMissing, err.Error())
	}
	token := reportingToken(git.URL, bounded)
	if token == "" {
		return not(v1alpha1.CommitStatusCredentialsMissing, fmt.Sprintf("no status is reported: Secret %q has no %s and, for HTTPS, no %s",
			git.SecretRef.Name, runnerconfig.GitBearerToken, runnerconfig.GitPassword))
	}
	err = repository.Report(ctx, r.Guard, s, token, bounded[runnerconfig.GitCA])
	refused := (*commitstatus.RefusedError)(nil)
	switch {
	case ctx.Err() != nil: // the response does not matter
		return became, ctx.Err()
	case errors.As(err, &refused):
		return not(v1alpha1.CommitStatusRefused, refused.Error())
	case err != nil:
		return not(v1alpha1.CommitStatusUnreachable, gitremote.Explain(repository.Shown(), true, err))
	}
	return v1alpha1.DeploymentCommitStatus{
		State: string(s.State), Context: s.Context, Reason: v1alpha1.CommitStatusReported, Message: fmt.Sprintf("reported to %s as %s", repository.Provider, s.Context),
	}, nil
}

// reportingToken returns the token for the provider's API from a Secret, or "". For a repository that
// is fetched over SSH, the password is the passphrase of the key and no token.
func reportingToken(url string, secret map[string]string) string {
	token := secret[runnerconfig.GitBearerToken]
	if token == "" && (strings.HasPrefix(url, "https://") || strings.HasPrefix(url, "http://")) {
		token = secret[runnerconfig.GitPassword]
	}
	return token
}

// showStatus writes status.commitStatus if it changed, and no other field. If the deployment was deleted during
// a pending report, showStatus records it like any deleted deployment.
func (r *Reporter) showStatus(ctx context.Context, d *v1alpha1.Deployment, became v1alpha1.DeploymentCommitStatus) (went bool, err error) {
	before := d.DeepCopy()
	d.Status.CommitStatus = &became
	written, err := r.WriteStatus(ctx, before, d)
	if err != nil || written || reportedState(before) == reportedState(d) {
		return false, err
	}
	return r.recordDeleted(d), nil
}

// SetupWithManager registers the controller.
func (r *Reporter) SetupWithManager(mgr ctrl.Manager) error {
	options := r.ControllerOptions()
	options.MaxConcurrentReconciles = reportsAtOnce
	return ctrl.NewControllerManagedBy(mgr).
		Named("commitstatus").
		WithOptions(options).
		For(&v1alpha1.Deployment{}, builder.WithPredicates(object.Changed(reported))).
		Watches(&v1alpha1.Deployment{}, r.deletionHandler()).
		Watches(&v1alpha1.Project{}, r.Enqueue(&v1alpha1.DeploymentList{}, isUnreported), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.unreportedWith),
			builder.OnlyMetadata, builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})).
		Complete(r)
}
