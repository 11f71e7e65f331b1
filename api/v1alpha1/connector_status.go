// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ObjectKind returns "Connector".
func (c *Connector) ObjectKind() string { return "Connector" }

// SpecID returns spec.id, "" where it is not set.
func (c *Connector) SpecID() string { return string(c.Spec.ID) }

// CommonStatus returns what every status has.
func (c *Connector) CommonStatus() *ObjectStatus { return &c.Status.ObjectStatus }

// readyWas: RoutesReady says why the gateway refuses webhooks, SecretReady what is
// wrong with the Secret.
func (c *Connector) readyWas(reason, message string) {
	switch reason {
	case ReasonIDTaken, ReasonReferenceMissing, ReasonProjectMissing, ReasonNameTaken, ReasonNotLive, ReasonEnvironmentGone:
		effect := "webhooks are refused: "
		switch {
		case c.Type() == ConnectorCron:
			effect = "the schedule stands still: "
		case c.Sends():
			effect = "nothing is sent: "
			set(c, ConditionDelivering, metav1.ConditionFalse, reason, effect+message)
		}
		set(c, ConditionRoutesReady, metav1.ConditionFalse, reason, effect+message)
	case ReasonSecretMissing, ReasonSecretInvalid:
		set(c, ConditionSecretReady, metav1.ConditionFalse, reason, message)
	}
}

// MarkSecretReady: the generated secret of a version is there; secret is the child Secret's name.
func (c *Connector) MarkSecretReady(secret string, version int32) {
	c.Status.SecretName, c.Status.SecretVersion = secret, version
	set(c, ConditionSecretReady, metav1.ConditionTrue, ReasonSucceeded, fmt.Sprintf("version %d, shown in Secret %q", version, secret))
}

// MarkSecretBrought: the secret is the user's own, which the named Secret has.
func (c *Connector) MarkSecretBrought(secret string, version int32) {
	c.Status.SecretName, c.Status.SecretVersion = secret, version
	set(c, ConditionSecretReady, metav1.ConditionTrue, ReasonSucceeded, fmt.Sprintf("the project's own, in Secret %q", secret))
}

// MarkNoSecret: callers need none.
func (c *Connector) MarkNoSecret(version int32) {
	c.Status.SecretName, c.Status.SecretVersion = "", version
	remove(c, ConditionSecretReady)
}

// MarkInvalidCron: a field of spec.cron, by its name there, is not as it must be.
func (c *Connector) MarkInvalidCron(field, problem string) {
	MarkStalled(c, ReasonInvalidSpec, "spec.cron."+field+" "+problem+"; what was valid before, if anything, stays in effect")
}

// MarkSecretSealed: the secret is the user's own, which lies sealed in the object.
func (c *Connector) MarkSecretSealed(version int32) {
	c.Status.SecretName, c.Status.SecretVersion = "", version
	set(c, ConditionSecretReady, metav1.ConditionTrue, ReasonSucceeded, "the project's own, by the REST API")
}

// MarkInvalidWebhook: a field of spec.webhook, by its name there, is not as it must be.
func (c *Connector) MarkInvalidWebhook(field, problem string) {
	MarkStalled(c, ReasonInvalidSpec, "spec.webhook."+field+" "+problem+"; what was valid before, if anything, stays in effect")
}

// MarkDelivering: what there is to send is sent.
func (c *Connector) MarkDelivering() {
	set(c, ConditionDelivering, metav1.ConditionTrue, ReasonSucceeded, "what there is to send is sent")
}

// MarkPaused: the destination has answered that it wants no more, as reason says.
func (c *Connector) MarkPaused(reason string) {
	set(c, ConditionDelivering, metav1.ConditionFalse, ReasonPaused, "nothing is sent, and deliveries are skipped: "+reason+
		"; change the connector, or set enabled to true by the REST API, to send again")
}

// MarkDeliveriesFailing: the last delivery that ended was not taken, for a reason.
func (c *Connector) MarkDeliveriesFailing(reason string) {
	set(c, ConditionDelivering, metav1.ConditionFalse, ReasonDeliveriesFailing, "the last delivery that ended was not taken: "+reason+
		"; the connector's runs tell of each, and can be replayed")
}

// MarkDestinationFailing: the last attempts have failed, one after the other.
func (c *Connector) MarkDestinationFailing() {
	set(c, ConditionDelivering, metav1.ConditionFalse, ReasonDestinationFailing,
		"attempts fail one after the other: deliveries wait for one that succeeds; the connector's runs say what was answered")
}

// MarkRoutesReady: the gateway's projection is committed for this generation.
func (c *Connector) MarkRoutesReady() {
	set(c, ConditionRoutesReady, metav1.ConditionTrue, ReasonSucceeded, "the gateway knows this generation")
}

// MarkDisabled: the gateway refuses webhooks, runs no ticks and sends nothing, as
// spec.enabled of this generation says.
func (c *Connector) MarkDisabled() {
	if c.Sends() {
		set(c, ConditionDelivering, metav1.ConditionFalse, ReasonDisabled, "nothing is sent, and deliveries are skipped: spec.enabled is false")
	}
	set(c, ConditionRoutesReady, metav1.ConditionTrue, ReasonDisabled, "the gateway knows that the connector is disabled")
}

// DefinedInCode says whether the connector mirrors a file of the project's
// repository, where alone it is changed.
func (c *Connector) DefinedInCode() bool { return c.Labels[LabelDefinedInCode] == "true" }

// Activation is the rank of the activation that a connector of the code mirrors; 0 of
// others.
func (c *Connector) Activation() int64 { return activationOf(c.Labels) }

// Retired says that the code of what is live has the connector no more. It stays, takes
// no events, and is what it was once the file is back.
func (c *Connector) Retired() bool { return c.DefinedInCode() && c.Labels[LabelRetired] == "true" }

// MarkUnexpanded: a text of the connector names a variable that it cannot have.
func (c *Connector) MarkUnexpanded(problem string) {
	MarkStalled(c, ReasonInvalidSpec, problem+"; what was valid before, if anything, stays in effect")
}

// TakesEvents says whether the gateway takes the connector's webhooks, or runs its ticks, by
// what was last brought to it: that may be an earlier generation.
func (c *Connector) TakesEvents() bool {
	routes := c.Status.Condition(ConditionRoutesReady)
	return routes != nil && routes.Status == metav1.ConditionTrue && routes.Reason != ReasonDisabled
}

// MarkNameTaken: holder, another connector of the environment, has the name.
func (c *Connector) MarkNameTaken(holder string) {
	MarkStalled(c, ReasonNameTaken, fmt.Sprintf("the name %q is that of %s in the same environment; choose another spec.displayName", c.Title(), holder))
}

// MarkSecretVersionWentBack: callers may have been told a later version of the
// secret, stored, which stays in effect.
func (c *Connector) MarkSecretVersionWentBack(stored int64) {
	c.Status.SecretVersion = int32(stored) //nolint:gosec // it came from a spec.secretVersion
	MarkStalled(c, ReasonSecretVersionWentBack, fmt.Sprintf(
		"version %d of the secret is in effect and a version never goes back; set spec.secretVersion to %d, or higher to rotate", stored, stored))
}

// MarkRetired: the gateway refuses webhooks, runs no ticks and sends nothing, for the code has the connector no more.
func (c *Connector) MarkRetired() {
	c.Status.Retired = true
	c.MarkDisabled()
	markEnded(c, ReasonRetired, "retired: the project's code has the connector no more, and no deployment can resume it but one that has")
}

// File is the file of the project's repository that defines the connector.
func (c *Connector) File() string {
	return CodeConnectorFile(CodeConnectorStem(c.Spec.Environment, c.Name))
}

// Title is the connector's name for people: spec.displayName, else its name, of one that a
// file defines the stem of that.
func (c *Connector) Title() string {
	return cmp.Or(string(c.Spec.DisplayName), CodeConnectorStem(c.Spec.Environment, c.Name))
}

// IsEnabled returns spec.enabled, true where it is not set.
func (c *Connector) IsEnabled() bool { return c.Spec.Enabled == nil || *c.Spec.Enabled }

// Type is what the connector is.
func (c *Connector) Type() ConnectorType {
	if c.Spec.Cron != nil {
		return ConnectorCron
	}
	return ConnectorWebhook
}

// Authentication is webhook.authentication, Secret where it is not set.
func (c *Connector) Authentication() WebhookAuthentication {
	if c.Spec.Webhook == nil {
		return AuthenticationSecret
	}
	return cmp.Or(c.Spec.Webhook.Authentication, AuthenticationSecret)
}

// RequiresAuthentication says whether a caller must send the connector's secret: nobody
// calls a cron connector, nor an outbound webhook.
func (c *Connector) RequiresAuthentication() bool {
	return c.Type() == ConnectorWebhook && c.Spec.Mode != ModeOutbound && c.Authentication() != AuthenticationNone
}

// Signature is the word of the provider by whose signature callers are known; "" where they
// send the secret itself, or nothing.
func (c *Connector) Signature() string {
	if a := c.Authentication(); c.RequiresAuthentication() && a != AuthenticationSecret {
		return a.Word()
	}
	return ""
}

// ContextHeaders are the headers that runs see, in lower case, each once.
func (c *Connector) ContextHeaders() []string {
	if c.Spec.Webhook == nil {
		return nil
	}
	var out []string
	for _, name := range c.Spec.Webhook.ContextHeaders {
		if lower := strings.ToLower(string(name)); !slices.Contains(out, lower) {
			out = append(out, lower)
		}
	}
	return out
}

// HasSecret says whether the connector has a secret, which callers send or which signs.
func (c *Connector) HasSecret() bool { return c.RequiresAuthentication() || c.Sends() }

// GeneratesSecret says whether the platform makes that secret.
func (c *Connector) GeneratesSecret() bool {
	return c.HasSecret() && c.Spec.SecretRef == nil && c.SealedSecret() == ""
}

// SealedSecret is the user's own secret as the REST API has sealed it; "" without one.
func (c *Connector) SealedSecret() string {
	if c.Spec.Webhook == nil {
		return ""
	}
	return c.Spec.Webhook.SealedSecret
}

// Sends says whether the connector sends results.
func (c *Connector) Sends() bool { return c.Type() == ConnectorWebhook && c.Spec.Mode == ModeOutbound }

// RequiresFiles says whether runs of events without attachments fail.
func (c *Connector) RequiresFiles() bool {
	return c.Spec.Webhook != nil && c.Spec.Webhook.FilesRequired
}

// Timeout returns webhook.timeoutSeconds, 5 min for a sync webhook without it, 15 s for
// an outbound one; 0 for one that does not wait.
func (c *Connector) Timeout() time.Duration {
	w := c.Spec.Webhook
	defaults := map[ConnectorMode]time.Duration{ModeSync: DefaultSyncTimeout, ModeOutbound: DefaultOutboundTimeout}
	switch {
	case defaults[c.Spec.Mode] == 0:
		return 0
	case w == nil || w.TimeoutSeconds == nil:
		return defaults[c.Spec.Mode]
	}
	return time.Duration(*w.TimeoutSeconds) * time.Second
}

// SecretVersion returns spec.secretVersion, 1 where it is not set.
func (c *Connector) SecretVersion() int32 { return max(c.Spec.SecretVersion, 1) }

// SecretVersionInEffect is the version of the secrets that callers send: the one of
// the status, as long as no controller has seen the connector that of the spec.
func (c *Connector) SecretVersionInEffect() int32 {
	return cmp.Or(c.Status.SecretVersion, c.SecretVersion())
}

// SecretGracePeriod is how long the secrets before the present version stay valid:
// spec.secretGracePeriodSeconds, unless the rotation to that version had a period of its own and the spec's has not
// changed since.
func (c *Connector) SecretGracePeriod() time.Duration {
	if seconds, ok := strings.CutPrefix(c.Annotations[AnnotationRotationGrace], c.rotation()); ok {
		if n, err := strconv.ParseUint(seconds, 10, 31); err == nil {
			return time.Duration(n) * time.Second
		}
	}
	return c.usualGracePeriod()
}

// usualGracePeriod is spec.secretGracePeriodSeconds, 24 h where it is not set.
func (c *Connector) usualGracePeriod() time.Duration {
	if c.Spec.SecretGracePeriodSeconds == nil {
		return DefaultSecretGracePeriod
	}
	return time.Duration(*c.Spec.SecretGracePeriodSeconds) * time.Second
}

// rotation names what a period of its own is for, as AnnotationRotationGrace begins.
func (c *Connector) rotation() string {
	return fmt.Sprintf("%d/%d=", c.SecretVersion(), int(c.usualGracePeriod().Seconds()))
}

// RotateSecret raises the version of the generated secrets. The grace period is that of this rotation alone; nil is
// the connector's.
func (c *Connector) RotateSecret(version int32, graceSeconds *int32) {
	c.Spec.SecretVersion = version
	delete(c.Annotations, AnnotationRotationGrace)
	if graceSeconds == nil {
		return
	}
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	c.Annotations[AnnotationRotationGrace] = c.rotation() + strconv.Itoa(int(*graceSeconds))
}
