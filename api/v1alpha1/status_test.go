// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// all is one object of each kind, at generation 3.
func all() []v1alpha1.ConditionedObject {
	objects := []v1alpha1.ConditionedObject{
		newProject(), newEnvironment(), newDeployment(), newConnector(), newLink(), newAPIKey(),
	}
	for _, o := range objects {
		o.SetGeneration(3)
	}
	return objects
}

// condition is "Status Reason" of a condition, "absent" when it is.
func condition(o v1alpha1.ConditionedObject, conditionType string) string {
	c := o.CommonStatus().Condition(conditionType)
	if c == nil {
		return "absent"
	}
	return string(c.Status) + " " + c.Reason
}

func TestStatus_ReconcilingKeepsObservedGeneration(t *testing.T) {
	t.Parallel()
	for _, o := range all() {
		v1alpha1.MarkReconciling(o, v1alpha1.ReasonProgressing, "at work")
		require.Equal(t, "Unknown Progressing", condition(o, v1alpha1.ConditionReady), o.ObjectKind())
		require.Equal(t, "True Progressing", condition(o, v1alpha1.ConditionReconciling))
		require.Equal(t, "absent", condition(o, v1alpha1.ConditionStalled))
		require.Zero(t, o.CommonStatus().ObservedGeneration)
		require.EqualValues(t, 3, o.CommonStatus().Condition(v1alpha1.ConditionReady).ObservedGeneration)
		require.False(t, v1alpha1.IsReady(o))
	}
}

func TestStatus_ReadyEndsReconciling(t *testing.T) {
	t.Parallel()
	for _, o := range all() {
		v1alpha1.MarkStalled(o, v1alpha1.ReasonInvalidSpec, "wrong")
		v1alpha1.MarkReconciling(o, v1alpha1.ReasonProgressing, "at work")
		v1alpha1.MarkReady(o, "")
		require.Equal(t, "True Succeeded", condition(o, v1alpha1.ConditionReady), o.ObjectKind())
		require.NotEmpty(t, o.CommonStatus().Condition(v1alpha1.ConditionReady).Message)
		require.Equal(t, "absent", condition(o, v1alpha1.ConditionReconciling))
		require.Equal(t, "absent", condition(o, v1alpha1.ConditionStalled))
		require.EqualValues(t, 3, o.CommonStatus().ObservedGeneration)
		require.True(t, v1alpha1.IsReady(o))

		o.SetGeneration(4)
		require.False(t, v1alpha1.IsReady(o), "another generation")
	}
}

func TestStatus_StalledEndsReconciling(t *testing.T) {
	t.Parallel()
	for _, o := range all() {
		v1alpha1.MarkReconciling(o, v1alpha1.ReasonProgressing, "at work")
		v1alpha1.MarkIDTaken(o, "Connector other/orders")
		require.Equal(t, "False IDTaken", condition(o, v1alpha1.ConditionReady), o.ObjectKind())
		require.Equal(t, "True IDTaken", condition(o, v1alpha1.ConditionStalled))
		require.Equal(t, "absent", condition(o, v1alpha1.ConditionReconciling))
		require.EqualValues(t, 3, o.CommonStatus().ObservedGeneration)
		require.Empty(t, o.CommonStatus().ID)
		require.Contains(t, o.CommonStatus().Condition(v1alpha1.ConditionReady).Message, "Connector other/orders")
		require.True(t, v1alpha1.IsStalled(o))
	}
}

func TestStatus_RetriesTransientErrors(t *testing.T) {
	t.Parallel()
	for reason, mark := range map[string]func(v1alpha1.ConditionedObject){
		v1alpha1.ReasonReferenceMissing: func(o v1alpha1.ConditionedObject) { v1alpha1.MarkReferenceMissing(o, "Environment", "production") },
		v1alpha1.ReasonSecretMissing:    func(o v1alpha1.ConditionedObject) { v1alpha1.MarkSecretMissing(o, "git") },
		v1alpha1.ReasonSecretInvalid:    func(o v1alpha1.ConditionedObject) { v1alpha1.MarkSecretInvalid(o, "git", `key "password" is missing`) },
		v1alpha1.ReasonProjectMissing:   func(o v1alpha1.ConditionedObject) { v1alpha1.MarkProjectMissing(o) },
	} {
		t.Run(reason, func(t *testing.T) {
			for _, o := range all() {
				mark(o)
				require.Equal(t, "False "+reason, condition(o, v1alpha1.ConditionReady), o.ObjectKind())
				require.Equal(t, "True "+reason, condition(o, v1alpha1.ConditionReconciling))
				require.Equal(t, "absent", condition(o, v1alpha1.ConditionStalled))
			}
		})
	}
}

// An object that is in effect stays Ready while the store is unavailable, because its webhook still works.
func TestStatus_RetryKeepsReady(t *testing.T) {
	t.Parallel()
	for name, mark := range map[string]func(v1alpha1.ConditionedObject){
		"store unavailable": v1alpha1.MarkStoreUnavailable,
		"retrying":          func(o v1alpha1.ConditionedObject) { v1alpha1.MarkRetrying(o, "the server is busy") },
	} {
		t.Run(name, func(t *testing.T) {
			for _, o := range all() {
				v1alpha1.MarkReady(o, "")
				mark(o)
				require.True(t, v1alpha1.IsReady(o), "%s %s", name, o.ObjectKind())
				require.True(t, o.CommonStatus().IsTrue(v1alpha1.ConditionReconciling), "%s %s", name, o.ObjectKind())

				o.SetGeneration(o.GetGeneration() + 1)
				mark(o)
				require.Equal(t, metav1.ConditionUnknown, o.CommonStatus().Condition(v1alpha1.ConditionReady).Status,
					"%s %s: nobody knows about another generation", name, o.ObjectKind())
			}
		})
	}
}

func TestStatus_TruncatesLongMessages(t *testing.T) {
	t.Parallel()
	project := newProject()
	v1alpha1.MarkStalled(project, v1alpha1.ReasonInvalidSpec, strings.Repeat("ä", 4000))
	message := project.Status.Condition(v1alpha1.ConditionReady).Message
	require.LessOrEqual(t, len(message), 1024)
	require.True(t, utf8.ValidString(message))
	require.True(t, strings.HasSuffix(message, "…"))
}

func TestEnvironmentStatus_Conditions(t *testing.T) {
	t.Parallel()
	e := newEnvironment()
	e.Status.Slug = "production"
	e.MarkSlugTaken("production", "Environment shop/prod")
	require.Equal(t, "True SlugTaken", condition(e, v1alpha1.ConditionStalled))
	require.Empty(t, e.Status.Slug)

	e.MarkRunnersStarting(1, 3)
	require.Equal(t, "False RunnersStarting", condition(e, v1alpha1.ConditionRunnersReady))
	require.Equal(t, "True RunnersStarting", condition(e, v1alpha1.ConditionReconciling))
	e.ShowRunnersFailing("no image")
	require.Equal(t, "False RunnersFailing", condition(e, v1alpha1.ConditionRunnersReady))
	require.Equal(t, "True RunnersStarting", condition(e, v1alpha1.ConditionReconciling), "as it was")
	e.MarkRunnersReady(3)
	require.Equal(t, "True Succeeded", condition(e, v1alpha1.ConditionRunnersReady))

	e.MarkLimitReached(2, false)
	require.True(t, v1alpha1.IsStalled(e))
	e.MarkSuspended()
	require.True(t, v1alpha1.IsReady(e))
}

func TestEnvironmentStatus_PoolReplicas(t *testing.T) {
	t.Parallel()
	require.EqualValues(t, 1, (&v1alpha1.RunnerPool{}).Replicas())
	require.EqualValues(t, 4, (&v1alpha1.RunnerPool{MinReplicas: ptr.To(int32(4))}).Replicas())
}

func TestDisplayName_TitlesAndSlugs(t *testing.T) {
	t.Parallel()
	e := newEnvironment()
	e.Spec.DisplayName = "EU West"
	require.Equal(t, "EU West", e.Title())
	require.Equal(t, "eu-west", e.WantedSlug())
	e.Spec.DisplayName = "日本"
	require.Equal(t, "production", e.WantedSlug())
	e.Spec.DisplayName = ""
	require.Equal(t, "production", e.Title())

	c := newConnector()
	require.Equal(t, "orders", c.Title())
	for name, want := range map[string]string{"production.ask": "ask", "staging.ask": "staging.ask", "production-ask": "production-ask"} {
		t.Run(name, func(t *testing.T) {
			c.Name, c.Spec.Environment = name, "production"
			require.Equal(t, want, c.Title(), "of one that a file defines its stem")
		})
	}
	c.Name, c.Spec.DisplayName = "production.ask", "Ask"
	require.Equal(t, "Ask", c.Title())
	require.Equal(t, "connectors/ask.yaml", c.File())
}

// A period that a rotation brings is its own: later rotations have the connector's again.
func TestConnector_RotateSecret(t *testing.T) {
	t.Parallel()
	c := newConnector()
	c.Spec.SecretGracePeriodSeconds = ptr.To(int32(60))
	c.RotateSecret(2, nil)
	require.Equal(t, time.Minute, c.SecretGracePeriod())
	for seconds, want := range map[int32]time.Duration{0: 0, 5: 5 * time.Second, 31536000: 8760 * time.Hour} {
		t.Run(fmt.Sprint(seconds), func(t *testing.T) {
			c.RotateSecret(3, &seconds)
			require.Equal(t, want, c.SecretGracePeriod())
		})
	}
	c.Spec.SecretGracePeriodSeconds = ptr.To(int32(0))
	require.Zero(t, c.SecretGracePeriod(), "what the spec is changed to afterwards counts")
	c.Spec.SecretVersion, c.Spec.SecretGracePeriodSeconds = 4, ptr.To(int32(60))
	require.Equal(t, time.Minute, c.SecretGracePeriod(), "by kubectl")
	for _, unread := range []string{"4", "4/60", "4/60=", "4/60=-1", "4/60=1h", "4=5", "4/60=99999999999"} {
		c.Annotations[v1alpha1.AnnotationRotationGrace] = unread
		require.Equal(t, time.Minute, c.SecretGracePeriod(), unread)
	}
	c.RotateSecret(5, nil)
	require.NotContains(t, c.Annotations, v1alpha1.AnnotationRotationGrace)
}

func TestConnector_Defaults(t *testing.T) {
	t.Parallel()
	c := newConnector()
	require.True(t, c.IsEnabled())
	require.EqualValues(t, 1, c.SecretVersion())
	require.Equal(t, 24*time.Hour, c.SecretGracePeriod())
	c.Spec.SecretGracePeriodSeconds = ptr.To(int32(0))
	require.Zero(t, c.SecretGracePeriod(), "0 is not the default")
	require.Equal(t, v1alpha1.ConnectorWebhook, c.Type())

	c.Spec.Mode = v1alpha1.ModeSync
	c.Spec.SecretGracePeriodSeconds = ptr.To(int32(0))
	require.Zero(t, c.SecretGracePeriod())
}

func TestConnectorStatus_Conditions(t *testing.T) {
	t.Parallel()
	c := newConnector()
	c.MarkSecretReady("orders-secret", 2)
	c.MarkRoutesReady()
	require.Equal(t, "True Succeeded", condition(c, v1alpha1.ConditionSecretReady))
	require.Equal(t, "True Succeeded", condition(c, v1alpha1.ConditionRoutesReady))
	require.Equal(t, "orders-secret", c.Status.SecretName)

	v1alpha1.MarkSecretInvalid(c, "own", `key "secret" is missing`)
	require.Equal(t, "False SecretInvalid", condition(c, v1alpha1.ConditionSecretReady))
}

func TestConnectorLinkStatus_Conditions(t *testing.T) {
	t.Parallel()
	l := newLink()
	v1alpha1.MarkReferenceMissing(l, "Connector", "orders")
	require.Equal(t, "False ReferenceMissing", condition(l, v1alpha1.ConditionReferencesResolved))
	l.MarkAgentUnknown([]string{"hello", "bye"})
	require.Contains(t, l.Status.Condition(v1alpha1.ConditionReady).Message, "which has hello, bye")
	require.Equal(t, "False AgentUnknown", condition(l, v1alpha1.ConditionReferencesResolved))
	require.False(t, v1alpha1.IsStalled(l), "the next deployment may bring the agent")
	l.MarkMiddlewareMissing()
	require.Contains(t, l.Status.Condition(v1alpha1.ConditionReady).Message, "spec.outbound.mode")
	require.Contains(t, l.Status.Condition(v1alpha1.ConditionReady).Message, "deploy middleware/"+string(l.Spec.Agent)+".star")
	require.Equal(t, "False MiddlewareMissing", condition(l, v1alpha1.ConditionReferencesResolved))
	require.False(t, v1alpha1.IsStalled(l), "the next deployment may bring the script")
	l.MarkReferencesResolved()
	require.Equal(t, "True Succeeded", condition(l, v1alpha1.ConditionReferencesResolved))
}

func TestAPIKeyStatus_ExpiredIsReady(t *testing.T) {
	t.Parallel()
	k := newAPIKey()
	k.MarkRevoked()
	require.Equal(t, "True Revoked", condition(k, v1alpha1.ConditionReady))
	k.MarkExpired()
	require.Equal(t, "True Expired", condition(k, v1alpha1.ConditionReady))
	require.Equal(t, "absent", condition(k, v1alpha1.ConditionStalled))
}
