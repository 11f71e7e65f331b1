// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/internal/seal"
	"github.com/agentplatform/agentplatform/store"
)

// credentialsField is the name under which an outbound connector's credentials
// are sealed.
const credentialsField = "credentials"

// labelSealed is "true" on Secrets whose values the facade has sealed.
const labelSealed = "agentplatform.dev/sealed"

// secrets are a connector's secrets in the clear.
type secrets struct {
	// secret is what callers send, signing what deliveries are signed with; one
	// of them is empty, both for a cron.
	secret, signing string
	headers         map[string]string
}

// key is the key of the child Secret, value what it holds.
func (s secrets) entry() (key, value string) {
	if s.signing != "" {
		return seal.PurposeSigningSecret, s.signing
	}
	return seal.PurposeSecret, s.secret
}

// secrets derives the connector's secrets, or reads those that the user brings.
func (r *Reconciler) secrets(ctx context.Context, c *v1alpha1.Connector, ids identity) (secrets, error) {
	var out secrets
	if c.Spec.Webhook == nil {
		return out, nil
	}
	version := int64(c.SecretVersion())
	if c.Spec.Mode == v1alpha1.ModeOutbound {
		out.signing = r.DerivationKey.SigningSecret(ids.connector, version)
	} else {
		out.secret = r.DerivationKey.Secret(ids.connector, version)
	}
	if c.Spec.SecretRef != nil {
		key, _ := out.entry()
		value, err := r.SecretValue(ctx, c.Namespace, v1alpha1.SecretKeyReference{Name: c.Spec.SecretRef.Name, Key: key})
		if err != nil {
			return secrets{}, err
		}
		if value == "" {
			return secrets{}, &object.SecretError{Name: string(c.Spec.SecretRef.Name), Problem: fmt.Sprintf("its key %q is empty", key)}
		}
		if key == seal.PurposeSecret {
			out.secret = value
		} else {
			out.signing = value
		}
	}
	if c.Spec.HeadersSecretRef == nil {
		return out, nil
	}
	headers, err := r.headers(ctx, c, ids)
	if err != nil {
		return secrets{}, err
	}
	out.headers = headers
	return out, nil
}

// headers reads the headers that an outbound connector sends; those that came in
// through the REST API lie sealed in their Secret.
func (r *Reconciler) headers(ctx context.Context, c *v1alpha1.Connector, ids identity) (map[string]string, error) {
	secret, err := r.WholeSecret(ctx, c.Namespace, string(c.Spec.HeadersSecretRef.Name))
	if err != nil {
		return nil, err
	}
	headers := map[string]string{}
	for name, value := range secret.Data {
		if secret.Labels[labelSealed] == "true" {
			field := seal.Field{ProjectID: ids.project, ConnectorID: ids.connector, Name: "header:" + name}
			if value, err = r.Sealer.Open(field, value); err != nil {
				return nil, &object.SecretError{Name: secret.Name, Problem: fmt.Sprintf("header %q: %v", name, err)}
			}
		}
		headers[name] = string(value)
	}
	return headers, nil
}

// sealed are the credentials of an outbound connector, sealed; what is stored
// already is kept when it says the same, for sealing never gives the same twice.
func (r *Reconciler) sealed(ctx context.Context, ids identity, s secrets) ([]byte, error) {
	if s.signing == "" {
		return nil, nil
	}
	clear, err := json.Marshal(map[string]any{"signing_secret": s.signing, "headers": s.headers})
	if err != nil {
		return nil, fmt.Errorf("writing the credentials: %w", err)
	}
	field := seal.Field{ProjectID: ids.project, ConnectorID: ids.connector, Name: credentialsField}
	stored, err := r.Data.Connector(ctx, ids.connector)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, object.FromStore(fmt.Errorf("reading the connector: %w", err))
	}
	if old, openErr := r.Sealer.Open(field, stored.Sealed); openErr == nil && string(old) == string(clear) {
		return stored.Sealed, nil
	}
	sealed, err := r.Sealer.Seal(field, clear)
	if err != nil {
		return nil, fmt.Errorf("sealing the credentials: %w", err)
	}
	return sealed, nil
}

// showSecrets writes the child Secret.
func (r *Reconciler) showSecrets(ctx context.Context, c *v1alpha1.Connector, s secrets) error {
	if c.Spec.Webhook == nil {
		return nil
	}
	if c.Spec.SecretRef != nil {
		c.MarkSecretReady(string(c.Spec.SecretRef.Name), c.SecretVersion())
		return nil
	}
	child := childSecret(c, s)
	if err := r.Apply(ctx, c, child); err != nil {
		return err
	}
	c.MarkSecretReady(child.Name, c.SecretVersion())
	return nil
}
