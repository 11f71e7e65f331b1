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
	// reportsFor is how long after a deployment came to where it is its provider is told
	// of that: what is older, nobody waits for.
	reportsFor = time.Hour
	// aheadAtMost is how far another clock may be ahead of this one: what is to happen later than
	// that has not, and status is written by whoever may.
	aheadAtMost = 5 * time.Minute
	// soonest is the shortest pause between two attempts; each is half as long as it was
	// tried already.
	soonest = 10 * time.Second
	// reportsAtOnce is how many providers are told at a time.
	reportsAtOnce = 16
)

// Reporter tells the repository's provider what becomes of the commits of deployments. It is
// a controller of its own, so that a provider that hangs holds no deployment up, and writes
// status.commitStatus alone, which nobody else does.
type Reporter struct {
	*object.Base
	// Guard decides which addresses may be reached.
	Guard *egress.Guard

	// busy are the namespaces whose provider is being told something: each has one
	// place, so that one that hangs holds up its own.
	busy sync.Map
	// pauses are those of the namespaces whose provider does not take what it is told.
	pauses pauses
	// gone are deployments that were deleted while their commits were pending, by
	// types.NamespacedName.
	gone sync.Map
}

// Reconcile tells the provider of one Deployment's commit, where it does not know yet: of one that is
// gone, and of the one that has its name now.
func (r *Reporter) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	again, err := r.endGone(ctx, req.NamespacedName)
	if err != nil {
		return again, err
	}
	d := &v1alpha1.Deployment{}
	if err := r.Client.Get(ctx, req.NamespacedName, d); err != nil {
		return again, client.IgnoreNotFound(err)
	}
	result, err := r.tell(ctx, d, r.show)
	if errors.Is(err, object.ErrProjectMissing) { // as while the namespace is deleted; a Project that comes wakes the deployment
		result, err = ctrl.Result{}, nil
	}
	if result.RequeueAfter == 0 || again.RequeueAfter > 0 && again.RequeueAfter < result.RequeueAfter {
		result = again
	}
	return result, err
}

// shows shows what became of telling the provider; went says that the deployment went meanwhile, with
// something left to be told.
type shows func(context.Context, *v1alpha1.Deployment, v1alpha1.DeploymentCommitStatus) (went bool, err error)

// tell tells the provider of a deployment's commit, and show what became of that.
func (r *Reporter) tell(ctx context.Context, d *v1alpha1.Deployment, show shows) (ctrl.Result, error) {
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
	with, err := r.toldWith(ctx, project)
	if err != nil {
		return ctrl.Result{}, err
	}
	if rest := r.pauses.rest(d.Namespace, with, r.Now()); rest > 0 {
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
	became, err := r.report(ctx, d, project, status)
	if err != nil {
		return ctrl.Result{}, err
	}
	r.pause(d.Namespace, with, became.Reason, r.Now().Sub(began))
	if became.Reason == v1alpha1.CommitStatusReported {
		again = ctrl.Result{}
	}
	went, err := show(ctx, d, became)
	if went {
		again.RequeueAfter = soonest
	}
	return again, err
}

// pause keeps a provider from being told the next status at once that did not take the last one, or
// took long: each of them holds a place that others wait for.
func (r *Reporter) pause(namespace string, with toldWith, became v1alpha1.CommitStatusReason, took time.Duration) {
	switch {
	case became == v1alpha1.CommitStatusRefused || became == v1alpha1.CommitStatusUnreachable || took >= slow:
		r.pauses.failed(namespace, with, r.Now())
	case became == v1alpha1.CommitStatusReported:
		r.pauses.ended(namespace)
	}
}

// wantedState is what the provider is to know of a deployment's commit, "" for nothing yet,
// and since when it is so.
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
	if d.Status.FailureReason == v1alpha1.FailureStoreRestored { // which says nothing of a commit
		if state = ""; reportedState(d) == commitstatus.Pending { // and nobody else ends that
			state = commitstatus.Error
		}
	}
	if at == nil || !isCommit(d.Status.Commit) || d.DeletionTimestamp != nil {
		return "", time.Time{}
	}
	return state, at.Time
}

// reportedState is what the provider has taken last of a deployment, "" for nothing.
func reportedState(d *v1alpha1.Deployment) commitstatus.State {
	if told := d.Status.CommitStatus; told != nil && told.Reason == v1alpha1.CommitStatusReported {
		return commitstatus.State(told.State)
	}
	return ""
}

// isPending says whether the last that the provider has taken of a deployment is that it is built.
func isPending(d *v1alpha1.Deployment) bool {
	told := d.Status.CommitStatus
	return told != nil && told.State == string(commitstatus.Pending)
}

// isSettled says whether the provider knows of a deployment what it is to, whatever others of the
// commit there are: its own state, or that in which another one has ended, for which it spoke when it
// was cancelled.
func isSettled(d *v1alpha1.Deployment, state commitstatus.State) bool {
	told := reportedState(d)
	return told == state || state == commitstatus.Error && (told == commitstatus.Success || told == commitstatus.Failure)
}

// isCommit says whether a text is a whole hash, and so nothing else in a URL.
func isCommit(text string) bool {
	return (len(text) == 40 || len(text) == 64) && strings.Trim(text, "0123456789abcdef") == ""
}

// descriptions say the states to a person.
var descriptions = map[commitstatus.State]string{
	commitstatus.Pending: "is being built and tested", commitstatus.Success: "deployed",
	commitstatus.Failure: "failed", commitstatus.Error: "cancelled",
}

// contextOf is the name by which the provider is told of a deployment: that of its environment's slug,
// unless another one is pending there; "" where nobody knows of which environment. One that is no
// name of the namespace was written by somebody else.
func (r *Reporter) contextOf(ctx context.Context, d *v1alpha1.Deployment) (string, error) {
	own := "agentplatform/" + d.Namespace + "/"
	if told := d.Status.CommitStatus; isPending(d) && strings.HasPrefix(told.Context, own) {
		return told.Context, nil
	}
	e := &v1alpha1.Environment{}
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: d.Namespace, Name: string(d.Spec.Environment)}, e)
	if client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("reading the environment that a commit is deployed to: %w", err)
	}
	if e.Status.Slug == "" {
		return "", nil
	}
	return own + e.Status.Slug, nil
}

// statusOf is what the provider is told; ok is false where nobody knows of which environment,
// a newer deployment of the commit speaks for it, or nothing is known of the commit.
func (r *Reporter) statusOf(ctx context.Context, d *v1alpha1.Deployment) (s commitstatus.Status, ok bool, err error) {
	name, err := r.contextOf(ctx, d)
	if name == "" || err != nil {
		return s, false, err
	}
	list := &v1alpha1.DeploymentList{}
	err = r.Client.List(ctx, list, client.InNamespace(d.Namespace), client.MatchingFields{object.ByEnvironment: string(d.Spec.Environment)})
	if err != nil {
		return s, false, fmt.Errorf("reading what a commit is deployed to: %w", err)
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

// bestKnown is, of the deployments of a commit, the one that says what is known of it: the newest,
// which is d or d says nothing; where that was cancelled, the newest that was not, for whose result
// stands. Where all were, it is d if any of them was built: else nobody was told anything.
func bestKnown(d *v1alpha1.Deployment, all []v1alpha1.Deployment) *v1alpha1.Deployment {
	var known *v1alpha1.Deployment
	built := d.Status.StartedAt != nil // it may be deleted
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

// report tells the provider and returns what became of that. An error is one of ours.
func (r *Reporter) report(
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
		return not(v1alpha1.CommitStatusCredentialsMissing, "nothing is reported: git.secretRef of the Project names no Secret with a token")
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
		return not(v1alpha1.CommitStatusCredentialsMissing, fmt.Sprintf("nothing is reported: Secret %q has no %s, and for HTTPS no %s",
			git.SecretRef.Name, runnerconfig.GitBearerToken, runnerconfig.GitPassword))
	}
	err = repository.Report(ctx, r.Guard, s, token, bounded[runnerconfig.GitCA])
	refused := (*commitstatus.RefusedError)(nil)
	switch {
	case ctx.Err() != nil: // whatever it answered
		return became, ctx.Err()
	case errors.As(err, &refused):
		return not(v1alpha1.CommitStatusRefused, refused.Error())
	case err != nil:
		return not(v1alpha1.CommitStatusUnreachable, gitremote.Explain(repository.Shown(), true, err))
	}
	return v1alpha1.DeploymentCommitStatus{
		State: string(s.State), Context: s.Context, Reason: v1alpha1.CommitStatusReported, Message: fmt.Sprintf("%s knows it as %s", repository.Provider, s.Context),
	}, nil
}

// reportingToken is what a Secret has to show to the provider's API; "" without any. Where the
// repository is fetched over SSH its password is the passphrase of a key, which is no server's.
func reportingToken(url string, secret map[string]string) string {
	token := secret[runnerconfig.GitBearerToken]
	if token == "" && (strings.HasPrefix(url, "https://") || strings.HasPrefix(url, "http://")) {
		token = secret[runnerconfig.GitPassword]
	}
	return token
}

// show writes status.commitStatus where it changed, and nothing else. What was deleted while the
// provider was told that it is built is noted as any that goes.
func (r *Reporter) show(ctx context.Context, d *v1alpha1.Deployment, became v1alpha1.DeploymentCommitStatus) (went bool, err error) {
	before := d.DeepCopy()
	d.Status.CommitStatus = &became
	written, err := r.WriteStatus(ctx, before, d)
	if err != nil || written || reportedState(before) == reportedState(d) {
		return false, err
	}
	return r.went(d), nil
}

// SetupWithManager registers the controller.
func (r *Reporter) SetupWithManager(mgr ctrl.Manager) error {
	options := r.ControllerOptions()
	options.MaxConcurrentReconciles = reportsAtOnce
	return ctrl.NewControllerManagedBy(mgr).
		Named("commitstatus").
		WithOptions(options).
		For(&v1alpha1.Deployment{}, builder.WithPredicates(object.Changed(reported))).
		Watches(&v1alpha1.Deployment{}, r.goes()).
		Watches(&v1alpha1.Project{}, r.Enqueue(&v1alpha1.DeploymentList{}, untold), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(r.untoldWith),
			builder.OnlyMetadata, builder.WithPredicates(predicate.ResourceVersionChangedPredicate{})).
		Complete(r)
}
