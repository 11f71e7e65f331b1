// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/connector"
	"github.com/agentplatform/agentplatform/connector/crd"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/controllers/projection"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

// invalidError reports an invalid field of the spec of an outbound connector.
type invalidError struct{ field, problem string }

func (e *invalidError) Error() string { return e.field + " " + e.problem }

// reconcileOutbound projects an outbound connector into the store. It has no URL of its own. ofCode has the
// credentials from expanded texts of the code.
func (r *Reconciler) reconcileOutbound(ctx context.Context, c *v1alpha1.Connector, ids projection.Identity, ofCode secrets.Credentials) (time.Duration, error) {
	row, secret, err := r.outboundRow(ctx, c, ids, ofCode)
	var invalid *invalidError
	if errors.As(err, &invalid) {
		c.MarkInvalidSetting(invalid.field, invalid.problem)
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	if held, err := r.projectRow(ctx, c, ids, row); err != nil || !held {
		return base.MaxRetryInterval, err
	}
	key := ids.Key()
	if err := r.checkProjected(ctx, c, key); err != nil {
		return 0, err
	}
	if c.IsEnabled() {
		c.MarkRoutesReady()
		if err := r.reportDeliveries(ctx, c, key); err != nil {
			return 0, err
		}
	}
	c.Status.SecretVersion = c.SecretVersion()
	if err := r.publishSecret(ctx, c, secret); err != nil {
		return 0, err
	}
	v1alpha1.MarkReady(c, readyMessage(c))
	return 0, nil
}

// outboundRow returns the connector's row and its signing secret, or *invalidError for an invalid spec.
func (r *Reconciler) outboundRow(
	ctx context.Context, c *v1alpha1.Connector, ids projection.Identity, ofCode secrets.Credentials,
) (row store.Connector, secret string, err error) {
	config := crd.ConfigOf(c)
	config.URL, config.Headers = cmp.Or(ofCode.URL, config.URL), nil // resolveHeaders checks them
	if wrong := crd.KindOf(c).Check(config); len(wrong) > 0 {
		return row, "", &invalidError{crd.FieldName(wrong[0].Field), wrong[0].Problem}
	}
	secret, keyID, err := r.resolveSecret(ctx, c, ids)
	if err != nil {
		return row, "", err
	}
	credentials, err := r.userCredentials(ctx, c, ids, secret)
	if err != nil {
		return row, "", err
	}
	if c.DefinedInCode() {
		credentials.URL, credentials.Headers, credentials.Said = ofCode.URL, ofCode.Headers, ofCode.Said
	} else if credentials.Headers, err = r.resolveHeaders(ctx, c, ids); err != nil {
		return row, "", err
	}
	if c.Spec.SecretRef != nil {
		credentials.SigningSecret = secret
	}
	if row, err = r.connectorRow(c, ids, secret, keyID); err != nil {
		return row, "", err
	}
	row.Sealed, row.SealedKey, err = projection.Seal(ctx, r.Store, r.Keys, ids, credentials)
	return row, secret, err
}

// resolveHeaders returns the headers that the connector sends: from a Secret of the user, or sealed by the
// facade in the object.
func (r *Reconciler) resolveHeaders(ctx context.Context, c *v1alpha1.Connector, ids projection.Identity) (map[string]string, error) {
	if ref := c.Spec.HeadersSecretRef; ref != nil {
		data, err := r.Secret(ctx, c.Namespace, string(ref.Name))
		if err != nil {
			return nil, err
		}
		headers := make(map[string]string, len(data))
		for name, value := range data {
			headers[name] = string(value)
		}
		if wrong := connector.CheckHeaders(headers); len(wrong) > 0 {
			return nil, &base.SecretError{Name: string(ref.Name), Problem: "it " + wrong[0].Problem}
		}
		return headers, nil
	}
	if len(c.Spec.Webhook.Headers) > 0 {
		return nil, &invalidError{"headers", "are only for connectors of the project's code, because they are readable in the object; " +
			"keep them in a Secret that headersSecretRef names"}
	}
	headers := map[string]string{}
	sealed := c.Spec.Webhook.SealedHeaders
	for _, name := range slices.Sorted(maps.Keys(sealed)) {
		value, err := r.openHeader(secrets.HeaderField(ids.Project, ids.Connector, name), sealed[name])
		if err != nil {
			return nil, err
		}
		headers[name] = value
	}
	if wrong := connector.CheckHeaders(headers); len(wrong) > 0 {
		return nil, &invalidError{"sealedHeaders", wrong[0].Problem}
	}
	return headers, nil
}

// openHeader returns a value that the facade has sealed in the object.
func (r *Reconciler) openHeader(field secrets.Field, sealed string) (string, error) {
	value, err := r.decryptSealed(field, sealed)
	if !errors.Is(err, secrets.ErrUnsealable) {
		return value, err
	}
	return "", &invalidError{"sealedHeaders", "cannot be decrypted. The REST API seals them for one connector, " +
		"with a key that the platform must still have; send them to the REST API again, or keep them in a Secret that headersSecretRef names"}
}

// decryptSealed returns a value that the facade has sealed in the object, or secrets.ErrUnsealable if it was
// not sealed for this field.
func (r *Reconciler) decryptSealed(field secrets.Field, sealed string) (string, error) {
	raw, err := base64.StdEncoding.DecodeString(sealed)
	if err != nil {
		return "", secrets.ErrUnsealable
	}
	plain, err := r.Keys.Open(field, raw)
	if err != nil {
		return "", fmt.Errorf("decrypting the sealed values of the object: %w", err)
	}
	return string(plain), nil
}

// reportDeliveries reports whether deliveries succeed, as last read.
func (r *Reconciler) reportDeliveries(ctx context.Context, c *v1alpha1.Connector, key store.Key) error {
	of, err := r.Store.DestinationsOf(ctx, key.ProjectID, []uuid.UUID{key.ID})
	if err != nil {
		return base.FromStore(fmt.Errorf("reading the state of deliveries: %w", err))
	}
	was := ""
	if condition := c.Status.Condition(v1alpha1.ConditionDelivering); condition != nil {
		was = condition.Reason
	}
	d := of[key.ID]
	d.Connector = key
	is, _ := r.Damper.stateToReport(r.Ref(c), d)
	switch is.state {
	case store.DestinationPaused:
		c.MarkPaused(is.reason)
	case store.DestinationFailing:
		c.MarkDestinationFailing()
	case store.DestinationRejecting:
		c.MarkDeliveriesFailing(is.reason)
	default:
		c.MarkDelivering()
	}
	now := c.Status.Condition(v1alpha1.ConditionDelivering)
	switch troubled := now.Reason != v1alpha1.ReasonSucceeded; {
	case now.Reason == was:
	case troubled:
		r.Event(c, corev1.EventTypeWarning, now.Reason, now.Message)
		r.countChange(now.Reason)
	case was == v1alpha1.ReasonPaused, was == v1alpha1.ReasonDestinationFailing, was == v1alpha1.ReasonDeliveriesFailing:
		r.Event(c, corev1.EventTypeNormal, v1alpha1.ConditionDelivering, "deliveries succeed again")
		r.countChange(now.Reason)
	}
	return nil
}

// countChange counts a state change of deliveries by the reason of the condition.
func (r *Reconciler) countChange(reason string) {
	if r.Metrics == nil {
		return
	}
	switch reason {
	case v1alpha1.ReasonPaused:
		r.Metrics.DestinationChanged(metrics.DestinationPaused)
	case v1alpha1.ReasonSucceeded:
		r.Metrics.DestinationChanged(metrics.DestinationResumed)
	default:
		r.Metrics.DestinationChanged(metrics.DestinationFailing)
	}
}
