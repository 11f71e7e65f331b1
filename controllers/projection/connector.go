// SPDX-License-Identifier: Apache-2.0

// Package projection builds the store's rows of Connectors and ConnectorLinks, and the objects that
// mirror the files of a repository. Controllers project objects with it, and an activation projects
// files with it, so both write the same rows.
package projection

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/connector/crd"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

// Identity has the IDs of a connector, its project and its environment.
type Identity struct{ Project, Environment, Connector uuid.UUID }

// Key returns the connector's primary key.
func (i Identity) Key() store.Key { return store.Key{ProjectID: i.Project, ID: i.Connector} }

// Row returns the row of the Connector that ref names, without sealed values. secret is the secret in
// effect and keyID the key that it derives from. Both are "" without a secret.
func Row(ref store.ObjectRef, c *v1alpha1.Connector, ids Identity, secret, keyID string) (store.Connector, error) {
	kind, config := crd.KindOf(c), crd.ConfigOf(c)
	config.Headers = nil // they are credentials
	config.ContextHeaders = config.HeaderNames()
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // escapes would count in the size of a tick's input
	if err := encoder.Encode(config); err != nil {
		return store.Connector{}, fmt.Errorf("writing the configuration: %w", err)
	}
	row := store.Connector{
		Ref: ref, ID: ids.Connector, ProjectID: ids.Project, EnvironmentID: ids.Environment,
		Name: c.Title(), Type: string(c.Type()), Mode: kind.Mode(), Enabled: c.IsEnabled(),
		DefinedInCode: c.DefinedInCode(), Retired: c.Retired(), Activation: c.Activation(), Config: bytes.TrimSpace(text.Bytes()), SecretKey: keyID,
		SecretVersion: int64(c.SecretVersion()), SecretGracePeriod: c.SecretGracePeriod(),
	}
	if crd.HasSecret(c) {
		row.SecretDigest = secrets.Digest(secret)
	}
	return row, nil
}

// Derivations chooses the keys that secrets derive from.
type Derivations interface {
	DerivationKey(ctx context.Context, connector store.Key, version int64) (string, error)
}

// GenerateSecret derives the secret of a version. It returns the ID of the key as well.
func GenerateSecret(
	ctx context.Context, from Derivations, keys *secrets.Keys, c *v1alpha1.Connector, ids Identity, version int64,
) (value, keyID string, err error) {
	of := secrets.Generated{ProjectID: ids.Project, ConnectorID: ids.Connector, Version: version, Standard: c.Authentication() == v1alpha1.AuthenticationStandardWebhooks}
	keyID, err = from.DerivationKey(ctx, ids.Key(), of.Version)
	if err != nil {
		return "", "", base.FromStore(fmt.Errorf("choosing the key of the secret: %w", err))
	}
	if c.Sends() {
		value, err = keys.SigningSecret(keyID, of)
		return value, keyID, err
	}
	value, err = keys.Secret(keyID, of)
	return value, keyID, err
}
