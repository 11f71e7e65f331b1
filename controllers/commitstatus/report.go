// SPDX-License-Identifier: Apache-2.0

package commitstatus

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/internal/gitremote"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
)

// descriptions are the texts of the states for users.
var descriptions = map[State]string{
	Pending: "is being built and tested", Success: "deployed",
	Failure: "failed", Error: "cancelled",
}

// contextOf returns the context of a deployment's commit status, which has the slug of its environment,
// unless another context is pending for the deployment. It returns "" if the environment is unknown. It
// ignores a pending context that does not belong to the namespace.
func (r *Reconciler) contextOf(ctx context.Context, d *v1alpha1.Deployment) (string, error) {
	own := "agentplatform/" + d.Namespace + "/"
	if last := d.Status.CommitStatus; isPending(d) && strings.HasPrefix(last.Context, own) {
		return last.Context, nil
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
func (r *Reconciler) statusOf(ctx context.Context, d *v1alpha1.Deployment) (s Status, ok bool, err error) {
	name, err := r.contextOf(ctx, d)
	if name == "" || err != nil {
		return s, false, err
	}
	list := &v1alpha1.DeploymentList{}
	err = r.Client.List(ctx, list, client.InNamespace(d.Namespace), client.MatchingFields{base.ByEnvironment: string(d.Spec.Environment)})
	if err != nil {
		return s, false, fmt.Errorf("listing the deployments of a commit: %w", err)
	}
	known := decidingDeployment(d, list.Items)
	if known == nil {
		return s, false, nil
	}
	state, _ := wantedState(known)
	description := descriptions[state]
	if known.Status.FailureReason != "" {
		description += ": " + string(known.Status.FailureReason)
	}
	return Status{Commit: d.Status.Commit, State: state, Context: name, Description: description}, true, nil
}

// reportStatus sends a commit status and returns the result. An error is an internal error.
func (r *Reconciler) reportStatus(
	ctx context.Context, d *v1alpha1.Deployment, project *v1alpha1.Project, s Status,
) (became v1alpha1.DeploymentCommitStatus, err error) {
	if last := d.Status.CommitStatus; last != nil {
		became.State, became.Context = last.State, last.Context
	}
	not := func(reason v1alpha1.CommitStatusReason, message string) (v1alpha1.DeploymentCommitStatus, error) {
		became.Reason, became.Message = reason, gitremote.Clip(message, 1000)
		return became, nil
	}
	git := project.Spec.Git
	if git == nil {
		return not(v1alpha1.CommitStatusProviderUnknown, "the project has no git repository")
	}
	repository, known, err := Find(git.URL, Provider(git.Provider), git.APIURL)
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
	if missing := (*base.SecretError)(nil); errors.As(err, &missing) {
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
	refused := (*RefusedError)(nil)
	switch {
	case ctx.Err() != nil: // the response does not matter
		return became, ctx.Err()
	case errors.As(err, &refused):
		return not(v1alpha1.CommitStatusRefused, refused.Error())
	case err != nil:
		return not(v1alpha1.CommitStatusUnreachable, gitremote.Explain(repository.APIAddress(), true, err))
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

// recordStatus writes status.commitStatus if it changed, and no other field. If the deployment was deleted during
// a pending report, recordStatus records it like any deleted deployment.
func (r *Reconciler) recordStatus(ctx context.Context, d *v1alpha1.Deployment, became v1alpha1.DeploymentCommitStatus) (deleted bool, err error) {
	before := d.DeepCopy()
	d.Status.CommitStatus = &became
	written, err := r.WriteStatus(ctx, before, d)
	if err != nil || written || reportedState(before) == reportedState(d) {
		return false, err
	}
	return r.recordDeleted(d), nil
}
