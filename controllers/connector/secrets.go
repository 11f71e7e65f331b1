// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"context"
	"fmt"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/internal/seal"
	"github.com/agentplatform/agentplatform/store"
)

// purpose is what the connector's secret is for: callers send it, or it signs.
func purpose(c *v1alpha1.Connector) string {
	if c.Sends() {
		return seal.PurposeSigningSecret
	}
	return seal.PurposeSecret
}

// secret is the connector's: derived, with the id of the key that it derives from, or
// the user's own.
func (r *Reconciler) secret(ctx context.Context, c *v1alpha1.Connector, ids identity) (value, keyID string, err error) {
	if c.Spec.SecretRef == nil {
		return r.generated(ctx, c, ids, int64(c.SecretVersion()))
	}
	name := c.Spec.SecretRef.Name
	value, err = r.SecretValue(ctx, c.Namespace, v1alpha1.SecretKeyReference{Name: name, Key: purpose(c)})
	if err != nil {
		return "", "", err
	}
	if value == "" {
		return "", "", &object.SecretError{Name: string(name), Problem: fmt.Sprintf("its key %q is empty", purpose(c))}
	}
	return value, "", nil
}

// generated derives the secret of a version with the key that it derives from.
func (r *Reconciler) generated(ctx context.Context, c *v1alpha1.Connector, ids identity, version int64) (value, keyID string, err error) {
	of := seal.Generated{ProjectID: ids.project, ConnectorID: ids.connector, Version: version}
	keyID, err = r.Store.DerivationKey(ctx, store.Key{ProjectID: ids.project, ID: ids.connector}, of.Version)
	if err != nil {
		return "", "", object.FromStore(fmt.Errorf("choosing the key of the secret: %w", err))
	}
	if c.Sends() {
		value, err = r.Keys.SigningSecret(keyID, of)
		return value, keyID, err
	}
	value, err = r.Keys.Secret(keyID, of)
	return value, keyID, err
}

// showSecret writes the child Secret.
func (r *Reconciler) showSecret(ctx context.Context, c *v1alpha1.Connector, secret string) error {
	if c.Spec.SecretRef != nil {
		c.MarkSecretReady(string(c.Spec.SecretRef.Name), c.SecretVersion())
		return nil
	}
	child := childSecret(c, secret)
	if err := r.Apply(ctx, c, child); err != nil {
		return err
	}
	c.MarkSecretReady(child.Name, c.SecretVersion())
	return nil
}
