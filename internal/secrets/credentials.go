// SPDX-License-Identifier: Apache-2.0

package secrets

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/google/uuid"
)

// Credentials are the sealed credentials of a connector in the store.
type Credentials struct {
	// Headers are the headers of an outbound webhook by name.
	Headers map[string]string `json:"headers,omitempty"`
	// SigningSecret signs the deliveries of an outbound webhook if the user brought one; "" if it
	// is derived.
	SigningSecret string `json:"signing_secret,omitempty"`
	// URL is the destination of an outbound webhook in code whose file uses variables in it; "" if
	// the configuration contains it.
	URL string `json:"url,omitempty"`
	// Said identifies the URL and the headers in the file, before variables are expanded.
	Said string `json:"said,omitempty"`
	// Secrets are the secrets that the user brought: the current one and earlier ones that may
	// still be valid, newest first.
	Secrets []string `json:"secrets,omitempty"`
}

// IsEmpty reports whether there is nothing to seal.
func (c Credentials) IsEmpty() bool {
	return len(c.Headers) == 0 && c.SigningSecret == "" && c.URL == "" && c.Said == "" && len(c.Secrets) == 0
}

// JSON returns the sealed content. Equal credentials give equal JSON.
func (c Credentials) JSON() ([]byte, error) {
	raw, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("writing credentials: %w", err)
	}
	return raw, nil
}

// CredentialsField returns the field for the credentials of a connector.
func CredentialsField(projectID, connectorID uuid.UUID) Field {
	return Field{ProjectID: projectID, Kind: "Connector", ObjectID: connectorID, Name: "credentials"}
}

// TelemetryField returns the field for the headers that a project sends to its collector.
func TelemetryField(projectID uuid.UUID) Field {
	return Field{ProjectID: projectID, Kind: "Project", ObjectID: projectID, Name: "telemetry"}
}

// SecretField returns the field for a webhook secret that the user brought through the REST API, in
// the connector's object.
func SecretField(projectID, connectorID uuid.UUID) Field {
	return Field{ProjectID: projectID, Kind: "Connector", ObjectID: connectorID, Name: "secret"}
}

// HeaderField returns the field for a header value of an outbound webhook, in the connector's
// object.
func HeaderField(projectID, connectorID uuid.UUID, name string) Field {
	return Field{ProjectID: projectID, Kind: "Connector", ObjectID: connectorID, Name: "headers/" + http.CanonicalHeaderKey(name)}
}

// VariableField returns the field for the value of a variable, in its environment's object.
func VariableField(projectID, environmentID uuid.UUID, name string) Field {
	return Field{ProjectID: projectID, Kind: "Environment", ObjectID: environmentID, Name: "variables/" + name}
}
