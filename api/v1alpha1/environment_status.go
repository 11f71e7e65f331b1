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

// SpecID returns spec.id, "" where it is not set.
func (e *Environment) SpecID() string { return string(e.Spec.ID) }

// CommonStatus returns what every status has.
func (e *Environment) CommonStatus() *ObjectStatus { return &e.Status.ObjectStatus }

// MarkSlugTaken: an older environment, holder, has the slug.
func (e *Environment) MarkSlugTaken(slug, holder string) {
	e.Status.Slug = ""
	MarkStalled(e, ReasonSlugTaken, fmt.Sprintf("the slug %q is held by the older %s; choose another spec.displayName", slug, holder))
}

// MarkLimitReached: the project may not have more than limit environments. One
// that is not in effect at all has neither id nor slug to show.
func (e *Environment) MarkLimitReached(limit int32, inEffect bool) {
	effect := "this one stays as it is, without new deployments, until one is deleted"
	if !inEffect {
		effect = "this one comes into effect when one is deleted"
		e.Status.ID, e.Status.Slug, e.Status.Default = "", "", false
	}
	MarkStalled(e, ReasonLimitReached, fmt.Sprintf("the project has the %d environments that it may have; %s, or when the limit is raised: "+
		"spec.limits.environments of the Project, up to what the operator's plan allows", limit, effect))
}

// IsBeyondLimit says whether the project's limit keeps the environment back.
func (e *Environment) IsBeyondLimit() bool {
	stalled := e.Status.Condition(ConditionStalled)
	return stalled != nil && stalled.Reason == ReasonLimitReached
}

// MarkSuspended: spec.suspend holds the controllers back.
func (e *Environment) MarkSuspended() {
	markEnded(e, ReasonSuspended, "suspended: no deployments are started and runner pods stay as they are")
}

// MarkOfReleaseBefore adds to what Ready says that the pool, which stays as it is, is not of the
// platform's present release.
func (e *Environment) MarkOfReleaseBefore() {
	for _, t := range []string{ConditionReady, ConditionStalled} {
		if c := e.Status.Condition(t); c != nil {
			set(e, t, c.Status, c.Reason, c.Message+"; its runners are of the platform's release before")
		}
	}
}

// MarkLive: the environment runs a deployment, of that name, id, commit and folder of the repository,
// which are "" and nil of an uploaded bundle.
func (e *Environment) MarkLive(deployment, id, commit string, path *string) {
	e.Status.LiveDeployment, e.Status.LiveDeploymentID, e.Status.LiveCommit, e.Status.LivePath = deployment, id, commit, path
	message := fmt.Sprintf("Deployment %q is live", deployment)
	if commit != "" {
		message += ", of commit " + commit
	}
	set(e, ConditionDeploymentLive, metav1.ConditionTrue, ReasonActivated, message)
}

// MarkNothingLive: the environment runs no deployment, and has to wait for one.
func (e *Environment) MarkNothingLive() {
	e.Status.LiveDeployment, e.Status.LiveDeploymentID, e.Status.LiveCommit, e.Status.LivePath = "", "", "", nil
	remedy := fmt.Sprintf("make a Deployment with spec.environment %q, or let spec.git deploy", e.Name)
	switch {
	case e.Spec.Suspend:
		remedy = "none is started while spec.suspend is true"
	case e.Spec.Git.AutoDeploy || e.Spec.Git.Commit != "":
		remedy = "spec.git asks for one, and the condition " + ConditionSourceFollowed + " says what became of it"
	}
	set(e, ConditionDeploymentLive, metav1.ConditionFalse, ReasonNotLive, "no deployment is live, and runs wait for one: "+remedy)
}

// MarkInEffect: the environment and its pool are as spec asks, whether a deployment is live or not.
func (e *Environment) MarkInEffect() {
	message := ""
	if e.Status.LiveDeploymentID == "" {
		message = "in effect; runs wait until a deployment is live"
	}
	MarkReady(e, message)
}

// ShowRunners says how many runners there are, whatever Ready says of it.
func (e *Environment) ShowRunners(ready, want int32) {
	if ready >= want {
		e.MarkRunnersReady(ready)
		return
	}
	set(e, ConditionRunnersReady, metav1.ConditionFalse, ReasonRunnersStarting, runnersReady(ready, want))
}

func runnersReady(ready, want int32) string {
	return fmt.Sprintf("%d of %d runners ready", ready, want)
}

// MarkRunnersReady: the pool has the runners that it asks for.
func (e *Environment) MarkRunnersReady(ready int32) {
	set(e, ConditionRunnersReady, metav1.ConditionTrue, ReasonSucceeded, fmt.Sprintf("runners ready: %d", ready))
}

// MarkRunnersStarting: some of the pool's runners do not take runs yet.
func (e *Environment) MarkRunnersStarting(ready, want int32) {
	e.ShowRunners(ready, want)
	MarkWaiting(e, ReasonRunnersStarting, runnersReady(ready, want))
}

// MarkRunnersFailing: runner pods cannot be started, because of problem.
func (e *Environment) MarkRunnersFailing(problem string) {
	e.ShowRunnersFailing(problem)
	MarkWaiting(e, ReasonRunnersFailing, problem)
}

// ShowRunnersFailing is MarkRunnersFailing of a pool that has runners enough.
func (e *Environment) ShowRunnersFailing(problem string) {
	set(e, ConditionRunnersReady, metav1.ConditionFalse, ReasonRunnersFailing, problem)
}

// DefaultGitInterval is how often a repository is asked for the head of a branch.
const DefaultGitInterval = time.Minute

// Interval is how often the repository is asked for the head of the branch; 0 where
// spec.git follows none.
func (g *EnvironmentGit) Interval() time.Duration {
	switch {
	case !g.AutoDeploy:
		return 0
	case g.IntervalSeconds == nil:
		return DefaultGitInterval
	}
	return time.Duration(*g.IntervalSeconds) * time.Second
}

// MarkSourceFollowed: a Deployment was asked to bring the environment to a commit. ended is what
// became of it, "" where the commit is live or on its way.
func (e *Environment) MarkSourceFollowed(git EnvironmentGitStatus, ended string) {
	e.Status.Git = &git
	message := fmt.Sprintf("commit %s was asked for by Deployment %q", git.Commit, git.Deployment)
	if ended != "" {
		message += fmt.Sprintf(", which is %s. %s, or make a Deployment of this one", ended, e.anotherCommit())
		set(e, ConditionSourceFollowed, metav1.ConditionFalse, ReasonDeploymentFailed, message)
		return
	}
	set(e, ConditionSourceFollowed, metav1.ConditionTrue, ReasonSucceeded, message)
}

// anotherCommit is how the environment is brought to another commit.
func (e *Environment) anotherCommit() string {
	if e.Spec.Git.Commit != "" {
		return "Name another commit in spec.git"
	}
	return "Push another commit"
}

// MarkSourceUnknown: it is not known at which commit the environment is to be.
func (e *Environment) MarkSourceUnknown(reason, message string) {
	set(e, ConditionSourceFollowed, metav1.ConditionFalse, reason, message)
}

// ForgetSourceOfBefore leaves out what was said before spec changed.
func (e *Environment) ForgetSourceOfBefore() {
	if said := e.Status.Condition(ConditionSourceFollowed); said != nil && said.ObservedGeneration != e.Generation {
		remove(e, ConditionSourceFollowed)
	}
}

// MarkSourceSeen: the branch stands at a commit, "" is the repository's own branch. unseen says why
// it is not known what git.path of the Project holds there, "" where it is, or need not be.
func (e *Environment) MarkSourceSeen(branch, commit, unseen string) {
	e.Status.SeenCommit = commit
	message := fmt.Sprintf("branch %q is at commit %s", branch, commit)
	if branch == "" {
		message = "the repository's default branch is at commit " + commit
	}
	if unseen != "" {
		set(e, ConditionSourceSeen, metav1.ConditionFalse, ReasonFolderUnseen, message+"; "+unseen)
		return
	}
	set(e, ConditionSourceSeen, metav1.ConditionTrue, ReasonSucceeded, message)
}

// MarkSourceUnfetched: it could not be seen where the branch stands. SeenCommit is where it stood.
func (e *Environment) MarkSourceUnfetched(reason, message string) {
	e.ForgetSeenBefore()
	set(e, ConditionSourceSeen, metav1.ConditionFalse, reason, message)
}

// ForgetSeenBefore leaves out what was seen before spec changed.
func (e *Environment) ForgetSeenBefore() {
	if said := e.Status.Condition(ConditionSourceSeen); said == nil || said.ObservedGeneration != e.Generation {
		e.ForgetSeen()
	}
}

// ForgetSeen: nobody looks at a branch.
func (e *Environment) ForgetSeen() {
	e.Status.SeenCommit = ""
	remove(e, ConditionSourceSeen)
}

// MarkSourceUnfollowed: spec.git follows nothing.
func (e *Environment) MarkSourceUnfollowed() {
	e.Status.Git = nil
	remove(e, ConditionSourceFollowed)
}

// Title is the environment's name for people: spec.displayName, else its name.
func (e *Environment) Title() string { return cmp.Or(string(e.Spec.DisplayName), e.Name) }

// WantedSlug is the slug of the environment's title; the object's name where
// the title holds no letter or digit that a slug can have.
func (e *Environment) WantedSlug() string { return cmp.Or(Slug(e.Title()), e.Name) }

// IsTest says whether the environment is one for tests.
func (e *Environment) IsTest() bool { return e.Spec.Kind == EnvironmentTest }

// ActiveTestSession is who tests in the environment at a time; nil where nobody
// does, or where it is none for tests.
func (e *Environment) ActiveTestSession(now time.Time) *TestSession {
	session := e.Status.TestSession
	if session == nil || !e.IsTest() || !now.Before(session.ExpiresAt.Time) {
		return nil
	}
	return session
}

// IsSensitive says whether nobody is shown the value, and no model is told it.
func (v *EnvironmentVariable) IsSensitive() bool { return v.Sensitive || v.Value == nil }

// Variable returns the variable of that name; nil where there is none.
func (e *Environment) Variable(name VariableName) *EnvironmentVariable {
	for i := range e.Spec.Variables {
		if e.Spec.Variables[i].Name == name {
			return &e.Spec.Variables[i]
		}
	}
	return nil
}

// Replicas returns minReplicas, 1 where it is not set.
func (p *RunnerPool) Replicas() int32 {
	if p.MinReplicas == nil {
		return 1
	}
	return *p.MinReplicas
}

// Requirements are the resources as a container has them.
func (r *RunnerResources) Requirements() corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: r.Requests, Limits: r.Limits}
}
