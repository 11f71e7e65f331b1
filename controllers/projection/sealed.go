// SPDX-License-Identifier: Apache-2.0

package projection

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/connector/crd"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/internal/expand"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

// Texts returns the texts of a connector of the code that may name sensitive variables. Their expanded
// values are sealed.
func Texts(c *v1alpha1.Connector) []string {
	if !c.DefinedInCode() || !c.Sends() {
		return nil
	}
	return textsOf(c)
}

// Credentials returns the expanded credentials of an outbound connector of the code: its headers, and
// its URL if it names variables. Other connectors have none. The values exist only in sealed form. If a
// text cannot be expanded, or its value is invalid, Credentials returns a *TextError that does not
// contain the value.
func Credentials(c *v1alpha1.Connector, variables Variables) (out secrets.Credentials, err error) {
	if !c.DefinedInCode() || !c.Sends() {
		return out, nil
	}
	problem := ""
	e := expand.Expansion{Lookup: func(name string) (string, bool) {
		if wrong := variables.Problems[name]; wrong != "" && problem == "" {
			problem = fmt.Sprintf("the variable %s has no value: %s", name, wrong)
		}
		variable, known := variables.Find(name)
		return variable.Value, known
	}}
	config := crd.ConfigOf(c)
	if config.URL, err = e.Text(config.URL); err != nil {
		return out, &TextError{fmt.Sprintf(`"url" %v`, err)}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Spec.Webhook.Headers)) {
		value, err := e.Text(c.Spec.Webhook.Headers[name])
		if err != nil {
			return out, &TextError{fmt.Sprintf(`"headers" %v, in the value of %q`, err, name)}
		}
		if out.Headers == nil {
			out.Headers = map[string]string{}
		}
		out.Headers[name] = value
	}
	if missing := e.Missing(); len(missing) > 0 {
		return secrets.Credentials{}, missingVariableError(c, missing)
	}
	if problem != "" {
		return secrets.Credentials{}, &TextError{problem}
	}
	config.Headers = out.Headers
	if wrong := crd.KindOf(c).Check(config); len(wrong) > 0 {
		return secrets.Credentials{}, &TextError{fmt.Sprintf("%q %s", wrong[0].Field, wrong[0].Problem)}
	}
	if NamesVariables(c) {
		out.URL, out.Said = config.URL, DestinationDigest(c)
	}
	return out, nil
}

// DestinationDigest returns a digest of the URL and headers of an outbound connector, or "" for other connectors.
// The digest does not reveal them.
func DestinationDigest(c *v1alpha1.Connector) string {
	if c.Spec.Webhook == nil || !c.Sends() {
		return ""
	}
	hash := sha256.New()
	// Maps are encoded in the order of their keys.
	_ = json.NewEncoder(hash).Encode([]any{c.Spec.Webhook.URL, c.Spec.Webhook.Headers}) // cannot fail: these are strings
	return hex.EncodeToString(hash.Sum(nil))
}

// ConnectorReader reads connectors from the store.
type ConnectorReader interface {
	Connector(ctx context.Context, key store.Key) (store.Connector, error)
}

// Seal seals the credentials of a connector. If the stored ones are equal, it returns the stored
// ciphertext, because every encryption differs.
func Seal(ctx context.Context, in ConnectorReader, keys *secrets.Keys, ids Identity, credentials secrets.Credentials) (sealed []byte, keyID string, err error) {
	if credentials.IsEmpty() {
		return nil, "", nil
	}
	plain, err := credentials.JSON()
	if err != nil {
		return nil, "", err
	}
	field := secrets.CredentialsField(ids.Project, ids.Connector)
	stored, err := in.Connector(ctx, ids.Key())
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return nil, "", base.FromStore(fmt.Errorf("reading the sealed credentials: %w", err))
	}
	if len(stored.Sealed) > 0 {
		if was, err := keys.Open(field, stored.Sealed); err == nil && bytes.Equal(was, plain) {
			return stored.Sealed, stored.SealedKey, nil
		}
	}
	sealed, keyID, err = keys.Seal(field, plain)
	if err != nil {
		return nil, "", fmt.Errorf("sealing the connector's credentials: %w", err)
	}
	return sealed, keyID, nil
}

// OpenCredentials returns the sealed credentials of a row, or none if they cannot be decrypted.
func OpenCredentials(keys *secrets.Keys, row store.Connector) (out secrets.Credentials) {
	plain, err := keys.Open(secrets.CredentialsField(row.ProjectID, row.ID), row.Sealed)
	if err != nil || json.Unmarshal(plain, &out) != nil {
		return secrets.Credentials{}
	}
	return out
}
