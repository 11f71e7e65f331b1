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
func (c *Connector) MarkIDTaken(holder string) { markIDTaken(c, holder) }

// MarkReferenceMissing: an object that the spec names does not exist (yet).
func (c *Connector) MarkReferenceMissing(kind, name string) { markReferenceMissing(c, kind, name) }

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
func (c *Connector) MarkProjectMissing() { markProjectMissing(c) }

// MarkStoreUnavailable: the data store does not answer; it is tried again.
func (c *Connector) MarkStoreUnavailable(cause error) { markStoreUnavailable(c, cause) }

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

// MarkDelivering: the outbound connector sends, or is disabled.
func (c *Connector) MarkDelivering() {
	if !c.IsEnabled() {
		set(c, ConditionDelivering, metav1.ConditionFalse, ReasonDisabled, "spec.enabled is false")
		return
	}
	set(c, ConditionDelivering, metav1.ConditionTrue, ReasonSucceeded, "results are sent")
}

// MarkDestinationGone: the destination answered 410, so that nothing is sent.
func (c *Connector) MarkDestinationGone() {
	set(c, ConditionDelivering, metav1.ConditionFalse, ReasonDestinationGone,
		"the destination answered 410 Gone, nothing is sent any more; correct spec.webhook.url, or disable and enable the connector")
}

// MarkRetired: the live deployment's code no longer has the connector.
func (c *Connector) MarkRetired() {
	c.Status.Retired = true
	set(c, ConditionRetired, metav1.ConditionTrue, ReasonRetired,
		"the live deployment's code no longer has this connector; it works no more and can be deleted")
}

// MarkNotRetired: the connector works (again).
func (c *Connector) MarkNotRetired() {
	c.Status.Retired = false
	remove(c, ConditionRetired)
}

// MarkInvalidSpec: the spec asks for something that cannot be.
func (c *Connector) MarkInvalidSpec(problem string) { markStalled(c, ReasonInvalidSpec, problem) }

// MarkNameTaken: a connector that code defines, holder, has the display name.
func (c *Connector) MarkNameTaken(holder string) {
	markStalled(c, ReasonNameTaken, fmt.Sprintf("the name %q is that of %s, which code defines; choose another spec.displayName", c.Title(), holder))
}

// Title is the connector's name for people: spec.displayName, else its name.
func (c *Connector) Title() string { return cmp.Or(string(c.Spec.DisplayName), c.Name) }

// IsEnabled returns spec.enabled, true where it is not set.
func (c *Connector) IsEnabled() bool { return c.Spec.Enabled == nil || *c.Spec.Enabled }

// Type says which of webhook and cron the connector is.
func (c *Connector) Type() ConnectorType {
	if c.Spec.Cron != nil {
		return ConnectorCron
	}
	return ConnectorWebhook
}

// RequiresAuthentication says whether a caller must send the connector's secret:
// inbound and sync webhooks that do not turn it off.
func (c *Connector) RequiresAuthentication() bool {
	w := c.Spec.Webhook
	return w != nil && c.Spec.Mode != ModeOutbound && (w.RequireAuthentication == nil || *w.RequireAuthentication)
}

// RequiresFiles returns webhook.filesRequired, false where it is not set.
func (c *Connector) RequiresFiles() bool {
	w := c.Spec.Webhook
	return w != nil && w.FilesRequired != nil && *w.FilesRequired
}

// Timeout returns webhook.timeoutSeconds with its default for the mode: 5 min
// for sync, 15 s for outbound, 0 where there is nothing to wait for.
func (c *Connector) Timeout() time.Duration {
	w := c.Spec.Webhook
	switch {
	case w == nil || c.Spec.Mode == ModeInbound:
		return 0
	case w.TimeoutSeconds != nil:
		return time.Duration(*w.TimeoutSeconds) * time.Second
	case c.Spec.Mode == ModeSync:
		return DefaultSyncTimeout
	default:
		return DefaultOutboundTimeout
	}
}

// SecretVersion returns spec.secretVersion, 1 where it is not set.
func (c *Connector) SecretVersion() int32 { return max(c.Spec.SecretVersion, 1) }

// SecretGracePeriod returns spec.secretGracePeriod, 24 h where it is not set.
func (c *Connector) SecretGracePeriod() time.Duration {
	if c.Spec.SecretGracePeriod == nil {
		return DefaultSecretGracePeriod
	}
	return c.Spec.SecretGracePeriod.Duration
}
