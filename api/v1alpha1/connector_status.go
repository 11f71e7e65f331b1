// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ObjectKind returns "Connector".
func (c *Connector) ObjectKind() string { return "Connector" }

// SpecID returns spec.id, "" where it is not set.
func (c *Connector) SpecID() string { return string(c.Spec.ID) }

// CommonStatus returns what every status has.
func (c *Connector) CommonStatus() *ObjectStatus { return &c.Status.ObjectStatus }

// MarkReady: the connector is in effect as asked. An empty message gets a plain one.
func (c *Connector) MarkReady(message string) { markReady(c, message) }

// MarkReconciling: work is under way.
func (c *Connector) MarkReconciling(reason, message string) {
	markReconciling(c, metav1.ConditionUnknown, reason, message)
}

// MarkStalled: nothing goes on until somebody changes something.
func (c *Connector) MarkStalled(reason, message string) { markStalled(c, reason, message) }

// MarkIDTaken: the id is held by holder, `Kind namespace/name`.
func (c *Connector) MarkIDTaken(holder string) {
	markIDTaken(c, holder)
	c.markRefused(ReasonIDTaken)
}

// MarkReferenceMissing: an object that the spec names does not exist (yet).
func (c *Connector) MarkReferenceMissing(kind, name string) {
	markReferenceMissing(c, kind, name)
	c.markRefused(ReasonReferenceMissing)
}

// markRefused: the gateway refuses webhooks for what Ready says.
func (c *Connector) markRefused(reason string) {
	set(c, ConditionRoutesReady, metav1.ConditionFalse, reason, "webhooks are refused: "+c.Status.Condition(ConditionReady).Message)
}

// MarkSecretMissing: a Secret that the spec names does not exist (yet).
func (c *Connector) MarkSecretMissing(name string) {
	markSecretMissing(c, name)
	set(c, ConditionSecretReady, metav1.ConditionFalse, ReasonSecretMissing, c.Status.Condition(ConditionReady).Message)
}

// MarkSecretInvalid: a Secret that the spec names cannot be used.
func (c *Connector) MarkSecretInvalid(name, problem string) {
	markSecretInvalid(c, name, problem)
	set(c, ConditionSecretReady, metav1.ConditionFalse, ReasonSecretInvalid, c.Status.Condition(ConditionReady).Message)
}

// MarkProjectMissing: the namespace has no Project that is ready (yet).
func (c *Connector) MarkProjectMissing() {
	markProjectMissing(c)
	c.markRefused(ReasonProjectMissing)
}

// MarkStoreUnavailable: the data store does not answer; it is tried again.
func (c *Connector) MarkStoreUnavailable() { markStoreUnavailable(c) }

// IsReady says whether Ready is True for the current generation.
func (c *Connector) IsReady() bool { return isTrueNow(c, ConditionReady) }

// IsStalled says whether Stalled is True for the current generation.
func (c *Connector) IsStalled() bool { return isTrueNow(c, ConditionStalled) }

// MarkSecretReady: the secrets are there; secret is the child Secret's name.
func (c *Connector) MarkSecretReady(secret string, version int32) {
	c.Status.SecretName, c.Status.SecretVersion = secret, version
	set(c, ConditionSecretReady, metav1.ConditionTrue, ReasonSucceeded, fmt.Sprintf("version %d, shown in Secret %q", version, secret))
}

// MarkRoutesReady: the gateway's projection is committed for this generation.
func (c *Connector) MarkRoutesReady() {
	set(c, ConditionRoutesReady, metav1.ConditionTrue, ReasonSucceeded, "the gateway knows this generation")
}

// MarkNameTaken: holder, another connector of the environment, has the name.
func (c *Connector) MarkNameTaken(holder string) {
	markStalled(c, ReasonNameTaken, fmt.Sprintf("the name %q is that of %s in the same environment; choose another spec.displayName", c.Title(), holder))
	c.markRefused(ReasonNameTaken)
}

// MarkSecretVersionWentBack: callers may have been told a later version of the
// secret, stored, which stays in effect.
func (c *Connector) MarkSecretVersionWentBack(stored int64) {
	markStalled(c, ReasonSecretVersionWentBack, fmt.Sprintf(
		"version %d of the secret is in effect and a version never goes back; set spec.secretVersion to %d, or higher to rotate", stored, stored))
}

// Title is the connector's name for people: spec.displayName, else its name.
func (c *Connector) Title() string { return cmp.Or(string(c.Spec.DisplayName), c.Name) }

// IsEnabled returns spec.enabled, true where it is not set.
func (c *Connector) IsEnabled() bool { return c.Spec.Enabled == nil || *c.Spec.Enabled }

// Type is ConnectorWebhook.
func (c *Connector) Type() ConnectorType { return ConnectorWebhook }

// RequiresAuthentication says whether a caller must send the connector's secret.
func (c *Connector) RequiresAuthentication() bool {
	w := c.Spec.Webhook
	return w == nil || w.RequireAuthentication == nil || *w.RequireAuthentication
}

// Timeout returns webhook.timeoutSeconds, 5 min for a sync webhook without it; 0
// for one that does not wait.
func (c *Connector) Timeout() time.Duration {
	w := c.Spec.Webhook
	switch {
	case c.Spec.Mode != ModeSync:
		return 0
	case w == nil || w.TimeoutSeconds == nil:
		return DefaultSyncTimeout
	}
	return time.Duration(*w.TimeoutSeconds) * time.Second
}

// SecretVersion returns spec.secretVersion, 1 where it is not set.
func (c *Connector) SecretVersion() int32 { return max(c.Spec.SecretVersion, 1) }

// SecretGracePeriod returns spec.secretGracePeriodSeconds, 24 h where it is not set.
func (c *Connector) SecretGracePeriod() time.Duration {
	if c.Spec.SecretGracePeriodSeconds == nil {
		return DefaultSecretGracePeriod
	}
	return time.Duration(*c.Spec.SecretGracePeriodSeconds) * time.Second
}
