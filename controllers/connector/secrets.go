// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/controllers/projection"
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
// the user's own; "" where it has none.
func (r *Reconciler) secret(ctx context.Context, c *v1alpha1.Connector, ids projection.Identity) (value, keyID string, err error) {
	if !c.HasSecret() {
		return "", "", nil
	}
	if sealed := c.SealedSecret(); sealed != "" {
		value, err = r.unsealed(seal.SecretField(ids.Project, ids.Connector), sealed)
		return value, "", err
	}
	if c.Spec.SecretRef == nil {
		return r.generated(ctx, c, ids, int64(c.SecretVersion()))
	}
	name := c.Spec.SecretRef.Name
	value, err = r.SecretValue(ctx, c.Namespace, v1alpha1.SecretKeyReference{Name: name, Key: purpose(c)})
	if err != nil {
		return "", "", err
	}
	if problem := seal.CheckBrought(value); problem != "" {
		return "", "", &object.SecretError{Name: string(name), Problem: fmt.Sprintf("its key %q %s", purpose(c), problem)}
	}
	return value, "", nil
}

// inboundRow is the connector as the store keeps it, and what its callers send or sign with.
func (r *Reconciler) inboundRow(ctx context.Context, c *v1alpha1.Connector, ids projection.Identity) (row store.Connector, secret string, err error) {
	secret, keyID, err := r.secret(ctx, c, ids)
	if err != nil {
		return row, "", err
	}
	if row, err = r.row(c, ids, secret, keyID); err != nil {
		return row, "", err
	}
	credentials, err := r.brought(ctx, c, ids, secret)
	if err != nil {
		return row, "", err
	}
	row.Sealed, row.SealedKey, err = projection.Seal(ctx, r.Store, r.Keys, ids, credentials)
	return row, secret, err
}

// brought are the secrets of the user's that callers may sign with, or that deliveries are
// signed with, which the gateway needs in clear: the current one, and those before that are
// still valid.
func (r *Reconciler) brought(ctx context.Context, c *v1alpha1.Connector, ids projection.Identity, secret string) (out seal.Credentials, err error) {
	signature := c.Signature()
	if digest := signature == "" || signature == v1alpha1.AuthenticationGitLab.Word(); digest && !c.Sends() { // which is enough
		return out, nil
	}
	if !c.GeneratesSecret() {
		out.Secrets = append(out.Secrets, secret)
	}
	stored, err := r.Store.Connector(ctx, ids.Key())
	switch {
	case errors.Is(err, store.ErrNotFound):
		return out, nil
	case err != nil:
		return out, object.FromStore(fmt.Errorf("reading the secrets before: %w", err))
	case len(stored.Sealed) == 0 || c.SecretGracePeriod() == 0:
		return out, nil
	}
	for _, s := range projection.Opened(r.Keys, stored).Secrets { // what cannot be opened any more signs nothing any more
		accepted := slices.ContainsFunc(stored.Secrets, func(a store.AcceptedSecret) bool { return bytes.Equal(a.SHA256, seal.Digest(s)) })
		if accepted && !slices.Contains(out.Secrets, s) && len(out.Secrets) < store.MaxAcceptedSecrets {
			out.Secrets = append(out.Secrets, s)
		}
	}
	return out, nil
}

// generated derives the secret of a version with the key that it derives from.
func (r *Reconciler) generated(ctx context.Context, c *v1alpha1.Connector, ids projection.Identity, version int64) (value, keyID string, err error) {
	return projection.Generated(ctx, r.Store, r.Keys, c, ids, version)
}

// showSecret says where the secret is; a generated one it writes into the child Secret.
func (r *Reconciler) showSecret(ctx context.Context, c *v1alpha1.Connector, secret string) error {
	switch {
	case !c.HasSecret():
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
