// SPDX-License-Identifier: Apache-2.0

package base_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	kstatus "sigs.k8s.io/cli-utils/pkg/kstatus/status"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/store"
)

// kinds returns one object of each kind, at generation 3.
func kinds() []v1alpha1.ConditionedObject {
	all := []v1alpha1.ConditionedObject{
		&v1alpha1.Project{}, &v1alpha1.Environment{}, &v1alpha1.Deployment{}, &v1alpha1.Connector{}, &v1alpha1.ConnectorLink{}, &v1alpha1.APIKey{},
	}
	for _, o := range all {
		o.SetGeneration(3)
	}
	return all
}

func terminating() error {
	err := apierrors.NewForbidden(schema.GroupResource{}, "a", errors.New("it goes"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

const (
	soon  = 2 * time.Second
	again = -1 // the queue's backoff, and an error for the log
)

// cause is an error of a reconcile and its expected result.
type cause struct {
	err   error
	state string
	wait  time.Duration
}

var group = schema.GroupResource{Resource: "things"}

// missingRight is the error of kube-apiserver for a missing permission.
var missingRight = apierrors.NewForbidden(group, "a", errors.New(
	`User "system:serviceaccount:agentplatform-system:agentplatform-manager" cannot list resource "things" in API group "" in the namespace "team"`))

// causes has all errors of a reconcile. Permanent errors are Stalled, temporary ones Reconciling.
var causes = map[string]cause{
	"stale cache":                        {&store.StaleError{Stored: 9}, "", soon},
	"stale cache, reported by the store": {base.FromStore(&store.StaleError{Stored: 9}), "", soon},
	"a conflict":                         {apierrors.NewConflict(group, "a", nil), "", soon},
	"terminating namespace":              {terminating(), "", 0},
	"ID taken by another object":         {base.FromStore(&store.IDTakenError{}), "Ready=False/IDTaken Stalled observed", base.MaxRetryInterval},
	"invalid spec":                       {&base.StalledError{Reason: v1alpha1.ReasonInvalidSpec, Message: "m"}, "Ready=False/InvalidSpec Stalled observed", 0},
	"child name taken":                   {&base.NameCollisionError{Kind: "Secret", Name: "a"}, "Ready=False/NameCollision Stalled observed", base.MaxRetryInterval},
	"child of a deleted owner remains":   {&base.LeftoverError{Kind: "Secret", Name: "a"}, "Ready=Unknown/Progressing Reconciling", soon},
	"waiting without a reason":           {&base.WaitingError{Message: "m"}, "Ready=False/Progressing Reconciling", soon},
	"waiting with a reason":              {&base.WaitingError{Reason: v1alpha1.ReasonGitMissing, Message: "m"}, "Ready=False/GitMissing Reconciling", soon},
	"no project":                         {base.ErrProjectMissing, "Ready=False/ProjectMissing Reconciling", base.MaxRetryInterval},
	"referenced object not ready":        {&base.MissingError{Kind: "Environment", Name: "a", Unready: true}, "Ready=Unknown/Progressing Reconciling", soon},
	"referenced object missing":          {&base.MissingError{Kind: "Environment", Name: "a"}, "Ready=False/ReferenceMissing Reconciling", base.MaxRetryInterval},
	"malformed Secret":                   {&base.SecretError{Name: "a", Problem: "empty"}, "Ready=False/SecretInvalid Reconciling", base.MaxRetryInterval},
	"missing Secret":                     {&base.SecretError{Name: "a"}, "Ready=False/SecretMissing Reconciling", base.MaxRetryInterval},
	"store unavailable":                  {base.FromStore(errors.New("refused")), "Ready=Unknown/StoreUnavailable Reconciling", again},
	"Kubernetes: invalid":                {apierrors.NewInvalid(schema.GroupKind{}, "a", nil), "Ready=False/Refused Stalled observed", base.MaxRetryInterval},
	"Kubernetes: forbidden":              {apierrors.NewForbidden(group, "a", errors.New("quota")), "Ready=False/Refused Stalled observed", base.MaxRetryInterval},
	"Kubernetes: a policy":               {apierrors.NewForbidden(group, "a", errors.New(`admission webhook "User" denied the request: "x" cannot be`)), "Ready=False/Refused Stalled observed", base.MaxRetryInterval},
	"Kubernetes: a missing right":        {missingRight, "Ready=Unknown/Progressing Reconciling", again},
	"Kubernetes: bad request":            {apierrors.NewBadRequest("m"), "Ready=False/Refused Stalled observed", base.MaxRetryInterval},
	"Kubernetes: too many requests":      {apierrors.NewTooManyRequests("m", 1), "Ready=Unknown/Progressing Reconciling", again},
	"Kubernetes: internal":               {apierrors.NewInternalError(errors.New("m")), "Ready=Unknown/Progressing Reconciling", again},
	"Kubernetes: a timeout":              {apierrors.NewServerTimeout(group, "get", 1), "Ready=Unknown/Progressing Reconciling", again},
	"Kubernetes: gone meanwhile":         {apierrors.NewNotFound(group, "a"), "Ready=Unknown/Progressing Reconciling", again},
	"deadline exceeded":                  {context.DeadlineExceeded, "Ready=Unknown/Progressing Reconciling", again},
	"unknown error":                      {errors.New("m"), "Ready=Unknown/Progressing Reconciling", again},
}

// Each error of each kind has its condition, wrapped and joined with others as in the controllers.
func TestExplain_EveryErrorIsACondition(t *testing.T) {
	t.Parallel()
	for name, c := range causes {
		for shape, err := range map[string]error{
			"as it is": c.err, "wrapped": fmt.Errorf("doing: %w", c.err), "joined": errors.Join(c.err, nil),
		} {
			t.Run(name+", "+shape, func(t *testing.T) {
				for _, o := range kinds() {
					what := fmt.Sprintf("%s, %s, %s", name, shape, o.ObjectKind())
					wait, returned := (&base.Base{}).Explain(o, err)
					require.Equal(t, c.state, State(o), what)
					if c.wait == again {
						require.ErrorIs(t, returned, c.err, what)
						require.Zero(t, wait, what)
						continue
					}
					require.NoError(t, returned, what)
					require.Equal(t, c.wait, wait, what)
					require.LessOrEqual(t, wait, base.MaxRetryInterval, what)
				}
			})
		}
	}
}

// The retry interval is the time since the error began, up to Later, even if the message changes.
func TestExplain_RetryIntervalGrows(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]func(turn int) error{
		"waits": func(turn int) error { return &base.WaitingError{Message: fmt.Sprint(turn)} },
		"not yet": func(turn int) error {
			return &base.MissingError{Kind: "Environment", Name: fmt.Sprint(turn), Unready: true}
		},
		"leftover": func(turn int) error { return &base.LeftoverError{Kind: "Secret", Name: fmt.Sprint(turn)} },
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakeClock(time.Now())
			keeper := &base.Base{Clock: clock}
			o := &v1alpha1.Environment{}
			_, _ = keeper.Explain(o, err(0))
			since := o.Status.Condition(v1alpha1.ConditionReconciling).LastTransitionTime
			last := time.Duration(0)
			for turn, age := range []time.Duration{0, time.Second, 2 * time.Second, 5 * time.Second, 20 * time.Second, time.Minute, time.Hour} {
				clock.SetTime(since.Add(age))
				wait, _ := keeper.Explain(o, err(turn))
				require.Equal(t, min(max(age, soon), base.MaxRetryInterval), wait, "%s after %s", name, age)
				require.GreaterOrEqual(t, wait, last)
				last = wait
			}
			require.Equal(t, base.MaxRetryInterval, last)
		})
	}
}

// An object in effect stays ready while it cannot be reconciled, unless something is missing.
func TestExplain_RetriesKeepReady(t *testing.T) {
	t.Parallel()
	for name, c := range causes {
		t.Run(name, func(t *testing.T) {
			for _, o := range kinds() {
				v1alpha1.MarkReady(o, "")
				_, _ = (&base.Base{}).Explain(o, c.err)
				untouched := c.state == "" || c.wait == again
				require.Equal(t, untouched, v1alpha1.IsReady(o), "%s, %s", name, o.ObjectKind())
			}
		})
	}
}

// computed returns the status that kstatus computes, like kubectl, Flux and Argo CD.
func computed(t *testing.T, o v1alpha1.ConditionedObject) kstatus.Status {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	require.NoError(t, err)
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(o.ObjectKind()))
	result, err := kstatus.Compute(u)
	require.NoError(t, err)
	return result.Status
}

// wanted returns the expected status of a state.
func wanted(state string) kstatus.Status {
	switch {
	case strings.Contains(state, v1alpha1.ConditionReconciling), state == "":
		return kstatus.InProgressStatus
	case strings.Contains(state, v1alpha1.ConditionStalled):
		return kstatus.FailedStatus
	default:
		return kstatus.CurrentStatus
	}
}

// kstatus reads the conditions of each error as in progress, failed or current. A generation that was
// not reconciled is in progress.
func TestExplain_MatchesKstatus(t *testing.T) {
	t.Parallel()
	for name, c := range causes {
		t.Run(name, func(t *testing.T) {
			for _, o := range kinds() {
				o.CommonStatus().ObservedGeneration = -1 // the default of the CRD
				require.Equal(t, kstatus.InProgressStatus, computed(t, o), "nobody has looked: %s", o.ObjectKind())
				_, _ = (&base.Base{}).Explain(o, c.err)
				require.Equal(t, wanted(c.state), computed(t, o), "%s, %s", name, o.ObjectKind())

				o.SetGeneration(4)
				require.Equal(t, kstatus.InProgressStatus, computed(t, o), "another generation: %s, %s", name, o.ObjectKind())
			}
		})
	}
}

// marked returns an object with the conditions that mark sets.
func marked[O v1alpha1.ConditionedObject](o O, mark func(O)) v1alpha1.ConditionedObject {
	o.SetGeneration(3)
	mark(o)
	return o
}

// kstatus reads the final and the waiting conditions of each kind.
func TestConditions_MatchKstatus(t *testing.T) {
	t.Parallel()
	environment, deployment := &v1alpha1.Environment{}, &v1alpha1.Deployment{}
	connector, link, key := &v1alpha1.Connector{}, &v1alpha1.ConnectorLink{}, &v1alpha1.APIKey{}
	for name, c := range map[string]struct {
		o    v1alpha1.ConditionedObject
		want kstatus.Status
	}{
		"ready":              {marked(&v1alpha1.Project{}, func(p *v1alpha1.Project) { v1alpha1.MarkReady(p, "") }), kstatus.CurrentStatus},
		"not supported":      {marked(&v1alpha1.Project{}, func(p *v1alpha1.Project) { v1alpha1.MarkNotSupported(p, nil) }), kstatus.FailedStatus},
		"suspended":          {marked(environment.DeepCopy(), (*v1alpha1.Environment).MarkSuspended), kstatus.CurrentStatus},
		"limit reached":      {marked(environment.DeepCopy(), func(e *v1alpha1.Environment) { e.MarkLimitReached(1, true) }), kstatus.FailedStatus},
		"slug taken":         {marked(environment.DeepCopy(), func(e *v1alpha1.Environment) { e.MarkSlugTaken("a", "b") }), kstatus.FailedStatus},
		"runners starting":   {marked(environment.DeepCopy(), func(e *v1alpha1.Environment) { e.MarkRunnersStarting(0, 1) }), kstatus.InProgressStatus},
		"runners failing":    {marked(environment.DeepCopy(), func(e *v1alpha1.Environment) { e.MarkRunnersFailing("m") }), kstatus.InProgressStatus},
		"pending":            {marked(deployment.DeepCopy(), func(d *v1alpha1.Deployment) { d.MarkPending("m") }), kstatus.InProgressStatus},
		"being started":      {marked(deployment.DeepCopy(), func(d *v1alpha1.Deployment) { d.MarkBuilding("") }), kstatus.InProgressStatus},
		"packing":            {marked(deployment.DeepCopy(), func(d *v1alpha1.Deployment) { d.MarkBuilding(v1alpha1.StepPacking) }), kstatus.InProgressStatus},
		"blocked":            {marked(deployment.DeepCopy(), func(d *v1alpha1.Deployment) { d.MarkBuildBlocked("m") }), kstatus.InProgressStatus},
		"deployed":           {marked(deployment.DeepCopy(), (*v1alpha1.Deployment).MarkDeployed), kstatus.CurrentStatus},
		"superseded":         {marked(deployment.DeepCopy(), func(d *v1alpha1.Deployment) { d.MarkCancelled("m") }), kstatus.CurrentStatus},
		"failed":             {marked(deployment.DeepCopy(), func(d *v1alpha1.Deployment) { d.MarkFailed(v1alpha1.FailureBuild, "m") }), kstatus.FailedStatus},
		"name reused":        {marked(deployment.DeepCopy(), (*v1alpha1.Deployment).MarkNameReused), kstatus.FailedStatus},
		"name taken":         {marked(connector.DeepCopy(), func(c *v1alpha1.Connector) { c.MarkNameTaken("b") }), kstatus.FailedStatus},
		"version went back":  {marked(connector.DeepCopy(), func(c *v1alpha1.Connector) { c.MarkSecretVersionWentBack(2) }), kstatus.FailedStatus},
		"agent unknown":      {marked(link.DeepCopy(), func(l *v1alpha1.ConnectorLink) { l.MarkAgentUnknown(nil) }), kstatus.InProgressStatus},
		"no middleware":      {marked(link.DeepCopy(), (*v1alpha1.ConnectorLink).MarkMiddlewareMissing), kstatus.InProgressStatus},
		"duplicate":          {marked(link.DeepCopy(), func(l *v1alpha1.ConnectorLink) { l.MarkDuplicate("b") }), kstatus.FailedStatus},
		"too many":           {marked(link.DeepCopy(), func(l *v1alpha1.ConnectorLink) { l.MarkTooMany(1) }), kstatus.FailedStatus},
		"revoked":            {marked(key.DeepCopy(), (*v1alpha1.APIKey).MarkRevoked), kstatus.CurrentStatus},
		"expired":            {marked(key.DeepCopy(), (*v1alpha1.APIKey).MarkExpired), kstatus.CurrentStatus},
		"in force":           {marked(key.DeepCopy(), (*v1alpha1.APIKey).MarkInForce), kstatus.CurrentStatus},
		"unknown permission": {marked(key.DeepCopy(), func(k *v1alpha1.APIKey) { k.MarkUnknownPermissions(nil) }), kstatus.FailedStatus},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, computed(t, c.o))
			require.Equal(t, c.want == kstatus.CurrentStatus, v1alpha1.IsReady(c.o))
		})
	}
}

// No watch reports the conflicting object, so the error has a retry interval.
func TestExplain_RetriesNameCollision(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err       error
		condition string
		reason    string
	}{
		{&base.NameCollisionError{Kind: "Secret", Name: "a"}, v1alpha1.ConditionStalled, v1alpha1.ReasonNameCollision},
		{&base.LeftoverError{Kind: "Secret", Name: "a"}, v1alpha1.ConditionReconciling, v1alpha1.ReasonProgressing},
	} {
		t.Run(c.condition, func(t *testing.T) {
			o := &v1alpha1.Environment{}
			after, err := (&base.Base{}).Explain(o, c.err)
			require.NoError(t, err)
			require.Positive(t, after)
			condition := o.Status.Condition(c.condition)
			require.NotNil(t, condition)
			require.Equal(t, c.reason, condition.Reason)
			require.Contains(t, condition.Message, `Secret "a"`)
		})
	}
}

// Error texts of the database driver contain hosts and users. No condition shows them, whether or not
// the error is marked as an error of the store.
func TestExplain_HidesStoreErrors(t *testing.T) {
	t.Parallel()
	driver := errors.New("failed to connect to `user=agentplatform database=runs`: 10.7.7.7:5432 (db.internal): FATAL: password")
	for name, err := range map[string]error{
		"marked":         base.FromStore(fmt.Errorf("starting the build: %w", driver)),
		"marked, joined": errors.Join(errors.New("other"), base.FromStore(driver)),
		"not marked":     fmt.Errorf("starting the build: %w", driver),
	} {
		t.Run(name, func(t *testing.T) {
			for _, o := range []v1alpha1.ConditionedObject{
				&v1alpha1.Project{}, &v1alpha1.Environment{}, &v1alpha1.Deployment{}, &v1alpha1.Connector{}, &v1alpha1.ConnectorLink{}, &v1alpha1.APIKey{},
			} {
				_, again := (&base.Base{}).Explain(o, err)
				require.ErrorIs(t, again, driver, "the log tells: %s", name)
				require.NotEmpty(t, o.CommonStatus().Conditions)
				for _, c := range o.CommonStatus().Conditions {
					for _, secret := range []string{"agentplatform database", "10.7.7.7", "db.internal", "FATAL"} {
						require.NotContains(t, c.Message, secret, "%s %s %s", name, o.ObjectKind(), c.Type)
					}
					require.Contains(t, c.Message, "the manager's log")
				}
			}
		})
	}
}

func TestExplain_ShowsKubernetesRefusal(t *testing.T) {
	t.Parallel()
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "a", errors.New("exceeded quota: few"))
	environment := &v1alpha1.Environment{}
	after, err := (&base.Base{}).Explain(environment, fmt.Errorf("applying Secret %q: %w", "a", refused))
	require.NoError(t, err)
	require.Equal(t, base.MaxRetryInterval, after, "the quota may be raised")
	require.True(t, v1alpha1.IsStalled(environment))
	require.Contains(t, environment.Status.Condition(v1alpha1.ConditionReady).Message, "exceeded quota: few")
}
