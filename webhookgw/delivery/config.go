// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/agentplatform/agentplatform/connector"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

// Keys derives and opens the secrets of connectors.
type Keys interface {
	SigningSecret(keyID string, of secrets.Generated) (string, error)
	Open(field secrets.Field, sealed []byte) ([]byte, error)
	// SealingKey returns the ID of a key, or "" while there are no keys. Nothing is claimed without
	// keys.
	SealingKey() string
}

// destination is the URL, headers, secrets and schedule of a connector.
type destination struct {
	url     *url.URL
	headers http.Header
	// secret signs the requests. former has the previous secrets that are still valid.
	secret          string
	previousSecrets []string
	timeout         time.Duration
	schedule        []time.Duration
}

// destinationOf reads the configuration of a connector. Its errors are texts for the owner of the
// connector, except *secrets.MissingKeyError and secrets.ErrNoKeys, which concern this process.
func destinationOf(c store.Connector, keys Keys) (to destination, err error) {
	var (
		sealed secrets.Credentials
	)
	conf, err := connector.ParseConfig(c.Config)
	if err != nil {
		return to, err
	}
	if len(c.Sealed) > 0 {
		plain, err := keys.Open(secrets.CredentialsField(c.ProjectID, c.ID), c.Sealed)
		if err != nil {
			return to, fmt.Errorf("opening the connector's credentials: %w", err)
		}
		if err := json.Unmarshal(plain, &sealed); err != nil {
			return to, fmt.Errorf("the connector's credentials cannot be read")
		}
	}
	if to.url, err = url.Parse(cmp.Or(sealed.URL, conf.URL)); err != nil || to.url.Host == "" {
		return to, fmt.Errorf("the connector's url is not a valid URL")
	}
	if to.secret = sealed.SigningSecret; to.secret == "" {
		if to.secret, err = signingSecret(c, keys, c.SecretKey, c.SecretVersion); err != nil {
			return to, err
		}
	}
	for _, old := range c.Secrets {
		if old.NotAfter == nil {
			continue // the current secret
		}
		for _, brought := range sealed.Secrets {
			if bytes.Equal(secrets.Digest(brought), old.SHA256) {
				to.previousSecrets = append(to.previousSecrets, brought)
			}
		}
		if old.Key == "" {
			continue
		}
		// Without its key the secret cannot be used.
		if secret, err := signingSecret(c, keys, old.Key, old.Version); err == nil {
			to.previousSecrets = append(to.previousSecrets, secret)
		}
	}
	to.headers = http.Header{}
	for name, value := range sealed.Headers {
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return to, fmt.Errorf("the value of the connector's header %q has characters that are not allowed in headers", name)
		}
		to.headers.Set(name, value)
	}
	to.timeout, to.schedule = conf.Timeout(connector.Outbound), conf.AttemptDelays()
	return to, nil
}

func signingSecret(c store.Connector, keys Keys, keyID string, version int64) (string, error) {
	secret, err := keys.SigningSecret(keyID, secrets.Generated{ProjectID: c.ProjectID, ConnectorID: c.ID, Version: version})
	if err != nil {
		return "", fmt.Errorf("deriving the signing secret: %w", err)
	}
	return secret, nil
}
