// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ObjectKind returns "Connector".
func (c *Connector) ObjectKind() string { return "Connector" }

// SpecID returns spec.id, or "" if it is not set.
func (c *Connector) SpecID() string { return string(c.Spec.ID) }

// CommonStatus returns the part of the status that all kinds share.
func (c *Connector) CommonStatus() *ObjectStatus { return &c.Status.ObjectStatus }

// readyWas sets RoutesReady if the gateway rejects webhooks, and SecretReady if the Secret has a
// problem.
func (c *Connector) readyWas(reason, message string) {
	switch reason {
	case ReasonIDTaken, ReasonReferenceMissing, ReasonProjectMissing, ReasonNameTaken, ReasonNotLive, ReasonEnvironmentGone:
		message = c.pausedEffect() + ": " + message
		if c.Sends() {
			setCondition(c, ConditionDelivering, metav1.ConditionFalse, reason, message)
		}
		setCondition(c, ConditionRoutesReady, metav1.ConditionFalse, reason, message)
	case ReasonSecretMissing, ReasonSecretInvalid:
		setCondition(c, ConditionSecretReady, metav1.ConditionFalse, reason, message)
	}
}

// MarkSecretReady reports the generated secret of a version in the child Secret.
func (c *Connector) MarkSecretReady(secret string, version int32) {
	c.Status.SecretName, c.Status.SecretVersion = secret, version
	setCondition(c, ConditionSecretReady, metav1.ConditionTrue, ReasonSucceeded, fmt.Sprintf("version %d, in Secret %q", version, secret))
}

// MarkSecretBrought reports that the named Secret contains the user's own secret.
func (c *Connector) MarkSecretBrought(secret string, version int32) {
	c.Status.SecretName, c.Status.SecretVersion = secret, version
	setCondition(c, ConditionSecretReady, metav1.ConditionTrue, ReasonSucceeded, fmt.Sprintf("the project's own, in Secret %q", secret))
}

// MarkNoSecret reports that callers need no secret.
func (c *Connector) MarkNoSecret(version int32) {
	c.Status.SecretName, c.Status.SecretVersion = "", version
	removeCondition(c, ConditionSecretReady)
}

// MarkSecretSealed reports that the object contains the user's own secret, sealed.
func (c *Connector) MarkSecretSealed(version int32) {
	c.Status.SecretName, c.Status.SecretVersion = "", version
	setCondition(c, ConditionSecretReady, metav1.ConditionTrue, ReasonSucceeded, "the project's own, from the REST API")
}

// MarkInvalidSetting reports an invalid field of the settings.
func (c *Connector) MarkInvalidSetting(field, problem string) {
	MarkStalled(c, ReasonInvalidSpec, InvalidSpecMessage("spec."+string(c.Type())+"."+field+" "+problem))
}

// MarkDelivering reports that deliveries are sent.
func (c *Connector) MarkDelivering() {
	setCondition(c, ConditionDelivering, metav1.ConditionTrue, ReasonSucceeded, "deliveries are sent")
}

// MarkPaused reports that the destination wants no more deliveries.
func (c *Connector) MarkPaused(reason string) {
	setCondition(c, ConditionDelivering, metav1.ConditionFalse, ReasonPaused, "nothing is sent, and deliveries are skipped: "+reason+
		"; to resume, change the connector, or set enabled to true in the REST API")
}

// MarkDeliveriesFailing reports that the destination did not accept the last ended delivery.
func (c *Connector) MarkDeliveriesFailing(reason string) {
	setCondition(c, ConditionDelivering, metav1.ConditionFalse, ReasonDeliveriesFailing, "the last delivery failed: "+reason+
		"; the connector's runs list failed deliveries, which can be replayed")
}

// MarkDestinationFailing reports that the last attempts failed in a row.
func (c *Connector) MarkDestinationFailing() {
	setCondition(c, ConditionDelivering, metav1.ConditionFalse, ReasonDestinationFailing,
		"attempts fail, and deliveries wait for a successful one; the connector's runs have the responses")
}

// MarkRoutesReady reports that the gateway's projection is committed for this generation.
func (c *Connector) MarkRoutesReady() {
	setCondition(c, ConditionRoutesReady, metav1.ConditionTrue, ReasonSucceeded, "this generation is in effect")
}

// MarkDisabled reports that spec.enabled is false: the gateway rejects webhooks, runs no ticks and
// sends nothing.
func (c *Connector) MarkDisabled() {
	if c.Sends() {
		setCondition(c, ConditionDelivering, metav1.ConditionFalse, ReasonDisabled, "nothing is sent, and deliveries are skipped: spec.enabled is false")
	}
	setCondition(c, ConditionRoutesReady, metav1.ConditionTrue, ReasonDisabled, "the connector is disabled at the gateway")
}

// DefinedInCode reports whether the connector mirrors a file of the project's repository.
func (c *Connector) DefinedInCode() bool { return c.Labels[LabelDefinedInCode] == "true" }

// Activation returns the rank of the activation that a connector in code mirrors, or 0 for other
// connectors.
func (c *Connector) Activation() int64 { return activationOf(c.Labels) }

// Retired reports whether the live code no longer has the connector. A retired connector accepts no
// events and works again when the file is back.
func (c *Connector) Retired() bool { return c.DefinedInCode() && c.Labels[LabelRetired] == "true" }

// MarkUnexpanded reports that the connector names a variable that it cannot have.
func (c *Connector) MarkUnexpanded(problem string) {
	MarkStalled(c, ReasonInvalidSpec, InvalidSpecMessage(problem))
}

// TakesEvents reports whether the gateway accepts the connector's webhooks or runs its ticks,
// according to the last projected generation.
func (c *Connector) TakesEvents() bool {
	routes := c.Status.Condition(ConditionRoutesReady)
	return routes != nil && routes.Status == metav1.ConditionTrue && routes.Reason != ReasonDisabled
}

// MarkNameTaken reports that holder, another connector of the environment, has the name.
func (c *Connector) MarkNameTaken(holder string) {
	MarkStalled(c, ReasonNameTaken, fmt.Sprintf("the name %q belongs to %s in the same environment; choose another spec.displayName", c.Title(), holder))
}

// MarkSecretVersionWentBack reports that the stored version of the secret is higher. It stays in
// effect, because callers may have it.
func (c *Connector) MarkSecretVersionWentBack(stored int64) {
	c.Status.SecretVersion = int32(stored) //nolint:gosec // it came from a spec.secretVersion
	MarkStalled(c, ReasonSecretVersionWentBack, fmt.Sprintf(
		"version %d of the secret is in effect and cannot decrease; set spec.secretVersion to %d, or higher to rotate", stored, stored))
}

// MarkRetired reports that the live code no longer has the connector: the gateway rejects webhooks,
// runs no ticks and sends nothing.
func (c *Connector) MarkRetired() {
	c.Status.Retired = true
	c.MarkDisabled()
	markEnded(c, ReasonRetired, "retired, because the connector is no longer in the project's code; only a deployment with this connector can resume it")
}

// File returns the file of the project's repository that defines the connector.
func (c *Connector) File() string {
	return CodeConnectorFile(CodeConnectorStem(c.Spec.Environment, c.Name))
}

// Title returns the connector's name for people: spec.displayName, else its name, or the stem of
// its file for a connector in code.
func (c *Connector) Title() string {
	return cmp.Or(string(c.Spec.DisplayName), CodeConnectorStem(c.Spec.Environment, c.Name))
}

// IsEnabled returns spec.enabled, or true if it is not set.
func (c *Connector) IsEnabled() bool { return c.Spec.Enabled == nil || *c.Spec.Enabled }

// Authentication returns webhook.authentication, or Secret if it is not set.
func (c *Connector) Authentication() WebhookAuthentication {
	if c.Spec.Webhook == nil {
		return AuthenticationSecret
	}
	return cmp.Or(c.Spec.Webhook.Authentication, AuthenticationSecret)
}

// SealedSecret returns the user's own secret as sealed by the REST API, or "".
func (c *Connector) SealedSecret() string {
	if c.Spec.Webhook == nil {
		return ""
	}
	return c.Spec.Webhook.SealedSecret
}

// SecretVersion returns spec.secretVersion, or 1 if it is not set.
func (c *Connector) SecretVersion() int32 { return max(c.Spec.SecretVersion, 1) }

// SecretVersionInEffect returns the version of the secrets that callers send: the version in the
// status, or in the spec before the first reconciliation.
func (c *Connector) SecretVersionInEffect() int32 {
	return cmp.Or(c.Status.SecretVersion, c.SecretVersion())
}

// SecretGracePeriod returns how long the old secrets stay valid: spec.secretGracePeriodSeconds,
// unless the rotation to this version had its own period and the period in the spec has not changed
// since.
func (c *Connector) SecretGracePeriod() time.Duration {
	if seconds, ok := strings.CutPrefix(c.Annotations[AnnotationRotationGrace], c.rotation()); ok {
		if n, err := strconv.ParseUint(seconds, 10, 31); err == nil {
			return time.Duration(n) * time.Second
		}
	}
	return c.usualGracePeriod()
}

// usualGracePeriod returns spec.secretGracePeriodSeconds, or 24 h if it is not set.
func (c *Connector) usualGracePeriod() time.Duration {
	if c.Spec.SecretGracePeriodSeconds == nil {
		return DefaultSecretGracePeriod
	}
	return time.Duration(*c.Spec.SecretGracePeriodSeconds) * time.Second
}

// rotation identifies the current version and period. AnnotationRotationGrace begins with it.
func (c *Connector) rotation() string {
	return fmt.Sprintf("%d/%d=", c.SecretVersion(), int(c.usualGracePeriod().Seconds()))
}

// RotateSecret sets the version of the generated secrets. The grace period applies to this rotation
// only; nil uses the connector's period.
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
