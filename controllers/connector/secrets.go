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

// secret is what callers of the connector send: derived, with the id of the key
// that it derives from, or the user's own.
func (r *Reconciler) secret(ctx context.Context, c *v1alpha1.Connector, ids identity) (value, keyID string, err error) {
	if c.Spec.SecretRef == nil {
		return r.generated(ctx, ids, int64(c.SecretVersion()))
	}
	name := c.Spec.SecretRef.Name
	value, err = r.SecretValue(ctx, c.Namespace, v1alpha1.SecretKeyReference{Name: name, Key: seal.PurposeSecret})
	if err != nil {
		return "", "", err
	}
	if value == "" {
		return "", "", &object.SecretError{Name: string(name), Problem: fmt.Sprintf("its key %q is empty", seal.PurposeSecret)}
	}
	return value, "", nil
}

// generated derives the secret of a version with the key that it derives from.
func (r *Reconciler) generated(ctx context.Context, ids identity, version int64) (value, keyID string, err error) {
	of := seal.Generated{ProjectID: ids.project, ConnectorID: ids.connector, Version: version}
	keyID, err = r.Store.DerivationKey(ctx, store.Key{ProjectID: ids.project, ID: ids.connector}, of.Version)
	if err != nil {
		return "", "", object.FromStore(fmt.Errorf("choosing the key of the secret: %w", err))
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
