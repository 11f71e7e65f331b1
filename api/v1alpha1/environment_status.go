// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ObjectKind returns "Environment".
func (e *Environment) ObjectKind() string { return "Environment" }

// SpecID returns spec.id, or "" if it is not set.
func (e *Environment) SpecID() string { return string(e.Spec.ID) }

// CommonStatus returns the part of the status that all kinds share.
func (e *Environment) CommonStatus() *ObjectStatus { return &e.Status.ObjectStatus }

// MarkSlugTaken reports that holder, an older environment, has the slug.
func (e *Environment) MarkSlugTaken(slug, holder string) {
	e.Status.Slug = ""
	MarkStalled(e, ReasonSlugTaken, fmt.Sprintf("the slug %q belongs to the older %s; choose another spec.displayName", slug, holder))
}

// MarkLimitReached reports that the project is at its limit of environments. An environment that is
// not in effect has neither ID nor slug.
func (e *Environment) MarkLimitReached(limit int32, inEffect bool) {
	effect := "this one stays unchanged, without new deployments, until one is deleted"
	if !inEffect {
		effect = "this one comes into effect when one is deleted"
		e.Status.ID, e.Status.Slug, e.Status.Default = "", "", false
	}
	MarkStalled(e, ReasonLimitReached, fmt.Sprintf("the project has reached its limit of %d environments; %s, or when the limit is raised: "+
		"spec.limits.environments of the Project, up to what the operator's plan allows", limit, effect))
}

// IsBeyondLimit reports whether the project's limit blocks the environment.
func (e *Environment) IsBeyondLimit() bool {
	stalled := e.Status.Condition(ConditionStalled)
	return stalled != nil && stalled.Reason == ReasonLimitReached
}

// MarkSuspended reports that spec.suspend is true.
func (e *Environment) MarkSuspended() {
	markEnded(e, ReasonSuspended, "suspended; no deployments start, and runner pods stay unchanged")
}

// MarkOfReleaseBefore adds to the message of Ready that the pool, which does not change, runs an
// older release.
func (e *Environment) MarkOfReleaseBefore() {
	for _, t := range []string{ConditionReady, ConditionStalled} {
		if c := e.Status.Condition(t); c != nil {
			setCondition(e, t, c.Status, c.Reason, c.Message+"; its runners have the previous release of the platform")
		}
	}
}

// MarkLive reports the live deployment with its name, ID, commit and folder. Commit and folder are
// "" and nil for an upload.
func (e *Environment) MarkLive(deployment, id, commit string, path *string) {
	e.Status.LiveDeployment, e.Status.LiveDeploymentID, e.Status.LiveCommit, e.Status.LivePath = deployment, id, commit, path
	message := fmt.Sprintf("Deployment %q is live", deployment)
	if commit != "" {
		message += ", of commit " + commit
	}
	setCondition(e, ConditionDeploymentLive, metav1.ConditionTrue, ReasonActivated, message)
}

// MarkNothingLive reports that no deployment is live.
func (e *Environment) MarkNothingLive() {
	e.Status.LiveDeployment, e.Status.LiveDeploymentID, e.Status.LiveCommit, e.Status.LivePath = "", "", "", nil
	remedy := fmt.Sprintf("create a Deployment with spec.environment %q, or set spec.git", e.Name)
	switch {
	case e.Spec.Suspend:
		remedy = "none starts while spec.suspend is true"
	case e.Spec.Git.AutoDeploy || e.Spec.Git.Commit != "":
		remedy = "spec.git requests one; see the condition " + ConditionSourceFollowed
	}
	setCondition(e, ConditionDeploymentLive, metav1.ConditionFalse, ReasonNotLive, "no deployment is live, and runs wait: "+remedy)
}

// MarkToolsDrifted reports the drift of the MCP tools that the live deployment pins. It returns whether a tool was added since
// the last report. An empty message means that there is no drift.
func (e *Environment) MarkToolsDrifted(message string, grownAt time.Time) (grown bool) {
	if message == "" {
		e.Status.ToolsDriftedAt = nil
		removeCondition(e, ConditionToolsDrifted)
		return false
	}
	before, at := e.Status.ToolsDriftedAt, metav1.NewTime(grownAt.Truncate(time.Second))
	e.Status.ToolsDriftedAt = &at
	setCondition(e, ConditionToolsDrifted, metav1.ConditionTrue, ReasonToolsChanged, message)
	return before == nil || before.Before(&at)
}

// MarkInEffect reports that the environment and its pool match the spec, whether a deployment is
// live or not.
func (e *Environment) MarkInEffect() {
	message := ""
	if e.Status.LiveDeploymentID == "" {
		message = "in effect; runs wait until a deployment is live"
	}
	MarkReady(e, message)
}

// ShowRunners sets the number of runners without changing Ready.
func (e *Environment) ShowRunners(ready, want int32) {
	if ready >= want {
		e.MarkRunnersReady(ready)
		return
	}
	setCondition(e, ConditionRunnersReady, metav1.ConditionFalse, ReasonRunnersStarting, runnersReady(ready, want))
}

func runnersReady(ready, want int32) string {
	return fmt.Sprintf("%d of %d runners ready", ready, want)
}

// MarkRunnersReady reports that the pool has its requested runners.
func (e *Environment) MarkRunnersReady(ready int32) {
	setCondition(e, ConditionRunnersReady, metav1.ConditionTrue, ReasonSucceeded, fmt.Sprintf("runners ready: %d", ready))
}

// MarkRunnersStarting reports that some runners of the pool are not ready yet.
func (e *Environment) MarkRunnersStarting(ready, want int32) {
	e.ShowRunners(ready, want)
	MarkWaiting(e, ReasonRunnersStarting, runnersReady(ready, want))
}

// MarkRunnersFailing reports that runner pods cannot start because of problem.
func (e *Environment) MarkRunnersFailing(problem string) {
	e.ShowRunnersFailing(problem)
	MarkWaiting(e, ReasonRunnersFailing, problem)
}

// ShowRunnersFailing is MarkRunnersFailing for a pool that has enough runners.
func (e *Environment) ShowRunnersFailing(problem string) {
	setCondition(e, ConditionRunnersReady, metav1.ConditionFalse, ReasonRunnersFailing, problem)
}

// DefaultGitInterval is the default poll interval of a branch.
const DefaultGitInterval = time.Minute

// Interval returns the poll interval of the branch, or 0 if spec.git follows none.
func (g *EnvironmentGit) Interval() time.Duration {
	switch {
	case !g.AutoDeploy:
		return 0
	case g.IntervalSeconds == nil:
		return DefaultGitInterval
	}
	return time.Duration(*g.IntervalSeconds) * time.Second
}

// MarkSourceFollowed reports that a Deployment was created for a commit. ended is its failure, or
// "" if the commit is live or being deployed.
func (e *Environment) MarkSourceFollowed(git EnvironmentGitStatus, ended string) {
	e.Status.Git = &git
	message := fmt.Sprintf("the Deployment of commit %s is %q", git.Commit, git.Deployment)
	if ended != "" {
		message += fmt.Sprintf(", which is %s. %s, or create a Deployment of this commit", ended, e.anotherCommit())
		setCondition(e, ConditionSourceFollowed, metav1.ConditionFalse, ReasonDeploymentFailed, message)
		return
	}
	setCondition(e, ConditionSourceFollowed, metav1.ConditionTrue, ReasonSucceeded, message)
}

// anotherCommit describes how to move the environment to another commit.
func (e *Environment) anotherCommit() string {
	if e.Spec.Git.Commit != "" {
		return "Name another commit in spec.git"
	}
	return "Push another commit"
}

// MarkSourceUnknown reports that the wanted commit is unknown.
func (e *Environment) MarkSourceUnknown(reason, message string) {
	setCondition(e, ConditionSourceFollowed, metav1.ConditionFalse, reason, message)
}

// ForgetSourceOfBefore removes reports about an earlier spec.
func (e *Environment) ForgetSourceOfBefore() {
	if said := e.Status.Condition(ConditionSourceFollowed); said != nil && said.ObservedGeneration != e.Generation {
		removeCondition(e, ConditionSourceFollowed)
	}
}

// MarkSourceSeen reports the head of a branch; "" is the repository's default branch. unseen is the
// reason why git.path of the Project could not be read at that commit, or "".
func (e *Environment) MarkSourceSeen(branch, commit, unseen string) {
	e.Status.SeenCommit = commit
	message := fmt.Sprintf("branch %q is at commit %s", branch, commit)
	if branch == "" {
		message = "the repository's default branch is at commit " + commit
	}
	if unseen != "" {
		setCondition(e, ConditionSourceSeen, metav1.ConditionFalse, ReasonFolderUnseen, message+"; "+unseen)
		return
	}
	setCondition(e, ConditionSourceSeen, metav1.ConditionTrue, ReasonSucceeded, message)
}

// MarkSourceUnfetched reports a failed poll. SeenCommit keeps the last known head.
func (e *Environment) MarkSourceUnfetched(reason, message string) {
	e.ForgetSeenBefore()
	setCondition(e, ConditionSourceSeen, metav1.ConditionFalse, reason, message)
}

// ForgetSeenBefore removes polls of an earlier spec.
func (e *Environment) ForgetSeenBefore() {
	if said := e.Status.Condition(ConditionSourceSeen); said == nil || said.ObservedGeneration != e.Generation {
		e.ForgetSeen()
	}
}

// ForgetSeen removes polls, because no branch is followed.
func (e *Environment) ForgetSeen() {
	e.Status.SeenCommit = ""
	removeCondition(e, ConditionSourceSeen)
}

// MarkSourceUnfollowed reports that spec.git follows nothing.
func (e *Environment) MarkSourceUnfollowed() {
	e.Status.Git = nil
	removeCondition(e, ConditionSourceFollowed)
}

// Title returns the environment's name for people: spec.displayName, else its name.
func (e *Environment) Title() string { return cmp.Or(string(e.Spec.DisplayName), e.Name) }

// WantedSlug returns the slug of the environment's title, or the object's name if the title has no
// letter or digit for a slug.
func (e *Environment) WantedSlug() string { return cmp.Or(Slug(e.Title()), e.Name) }

// IsTest reports whether this is a test environment.
func (e *Environment) IsTest() bool { return e.Spec.Kind == EnvironmentTest }

// ActiveTestSession returns the test session at a time, or nil if there is none.
func (e *Environment) ActiveTestSession(now time.Time) *TestSession {
	session := e.Status.TestSession
	if session == nil || !e.IsTest() || !now.Before(session.ExpiresAt.Time) {
		return nil
	}
	return session
}

// IsSensitive reports whether the value is hidden from users and models.
func (v *EnvironmentVariable) IsSensitive() bool { return v.Sensitive || v.Value == nil }

// Variable returns the variable with that name, or nil.
func (e *Environment) Variable(name VariableName) *EnvironmentVariable {
	for i := range e.Spec.Variables {
		if e.Spec.Variables[i].Name == name {
			return &e.Spec.Variables[i]
		}
	}
	return nil
}

// Replicas returns minReplicas, or 1 if it is not set.
func (p *RunnerPool) Replicas() int32 {
	if p.MinReplicas == nil {
		return 1
	}
	return *p.MinReplicas
}

// Requirements returns the resources in the form of a container.
func (r *RunnerResources) Requirements() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: r.Requests, Limits: r.Limits}
}
