// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/connector/crd"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/controllers/projection"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

// secretPurpose returns the purpose of the connector's secret: callers send it, or it signs deliveries.
func secretPurpose(c *v1alpha1.Connector) string {
	if c.Sends() {
		return secrets.PurposeSigningSecret
	}
	return secrets.PurposeSecret
}

// resolveSecret returns the connector's secret: a derived one with the ID of its key, the user's own, or "" if
// it has none.
func (r *Reconciler) resolveSecret(ctx context.Context, c *v1alpha1.Connector, ids projection.Identity) (value, keyID string, err error) {
	if !crd.HasSecret(c) {
		return "", "", nil
	}
	if sealed := c.SealedSecret(); sealed != "" {
		value, err = r.decryptSealed(secrets.SecretField(ids.Project, ids.Connector), sealed)
		return value, "", err
	}
	if c.Spec.SecretRef == nil {
		return r.generateSecret(ctx, c, ids, int64(c.SecretVersion()))
	}
	name := c.Spec.SecretRef.Name
	value, err = r.SecretValue(ctx, c.Namespace, v1alpha1.SecretKeyReference{Name: name, Key: secretPurpose(c)})
	if err != nil {
		return "", "", err
	}
	if problem := secrets.CheckUserSecret(value); problem != "" {
		return "", "", &base.SecretError{Name: string(name), Problem: fmt.Sprintf("its key %q %s", secretPurpose(c), problem)}
	}
	return value, "", nil
}

// inboundRow returns the connector's row and the secret of its callers.
func (r *Reconciler) inboundRow(ctx context.Context, c *v1alpha1.Connector, ids projection.Identity) (row store.Connector, secret string, err error) {
	secret, keyID, err := r.resolveSecret(ctx, c, ids)
	if err != nil {
		return row, "", err
	}
	if row, err = r.connectorRow(c, ids, secret, keyID); err != nil {
		return row, "", err
	}
	credentials, err := r.userCredentials(ctx, c, ids, secret)
	if err != nil {
		return row, "", err
	}
	row.Sealed, row.SealedKey, err = projection.Seal(ctx, r.Store, r.Keys, ids, credentials)
	return row, secret, err
}

// userCredentials returns the user's own secrets that callers or deliveries sign with, which the gateway needs
// in plain text: the current one and the earlier ones that are still valid.
func (r *Reconciler) userCredentials(ctx context.Context, c *v1alpha1.Connector, ids projection.Identity, secret string) (out secrets.Credentials, err error) {
	signature := crd.ConfigOf(c).Signature(crd.KindOf(c))
	if digest := signature == "" || signature == v1alpha1.AuthenticationGitLab.EnumValue(); digest && !c.Sends() { // the digest is enough
		return out, nil
	}
	if !crd.GeneratesSecret(c) {
		out.Secrets = append(out.Secrets, secret)
	}
	stored, err := r.Store.Connector(ctx, ids.Key())
	switch {
	case errors.Is(err, store.ErrNotFound):
		return out, nil
	case err != nil:
		return out, base.FromStore(fmt.Errorf("reading the previous secrets: %w", err))
	case len(stored.Sealed) == 0 || c.SecretGracePeriod() == 0:
		return out, nil
	}
	for _, s := range projection.OpenCredentials(r.Keys, stored).Secrets { // a secret that cannot be decrypted is no longer valid
		accepted := slices.ContainsFunc(stored.Secrets, func(a store.AcceptedSecret) bool { return bytes.Equal(a.SHA256, secrets.Digest(s)) })
		if accepted && !slices.Contains(out.Secrets, s) && len(out.Secrets) < store.MaxAcceptedSecrets {
			out.Secrets = append(out.Secrets, s)
		}
	}
	return out, nil
}

// generateSecret derives the secret of a version. It returns the ID of the key as well.
func (r *Reconciler) generateSecret(ctx context.Context, c *v1alpha1.Connector, ids projection.Identity, version int64) (value, keyID string, err error) {
	return projection.GenerateSecret(ctx, r.Store, r.Keys, c, ids, version)
}

// publishSecret reports where the secret is. It writes a generated one to the child Secret.
func (r *Reconciler) publishSecret(ctx context.Context, c *v1alpha1.Connector, secret string) error {
	switch {
	case !crd.HasSecret(c):
		c.MarkNoSecret(c.SecretVersion())
		return nil
	case c.SealedSecret() != "":
		c.MarkSecretSealed(c.SecretVersion())
		return nil
	case c.Spec.SecretRef != nil:
		c.MarkSecretBrought(string(c.Spec.SecretRef.Name), c.SecretVersion())
		return nil
	}
	child := childSecret(c, secret)
	if err := r.Apply(ctx, c, child); err != nil {
		return err
	}
	c.MarkSecretReady(child.Name, c.SecretVersion())
	return nil
}
