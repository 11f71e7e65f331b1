// SPDX-License-Identifier: Apache-2.0

package seal

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/google/uuid"
)

// Credentials are what the store keeps sealed of a connector.
type Credentials struct {
	// Headers are those that an outbound webhook sends, by their names.
	Headers map[string]string `json:"headers,omitempty"`
	// SigningSecret signs the deliveries of an outbound webhook, where the user has
	// brought one; "" where it derives.
	SigningSecret string `json:"signing_secret,omitempty"`
	// URL is where an outbound webhook of a project's code sends, if its file names
	// variables there; "" where the configuration says it.
	URL string `json:"url,omitempty"`
	// Said tells what that file says of URL and headers, before its variables have values.
	Said string `json:"said,omitempty"`
	// Secrets are those that callers of a webhook sign with, or that sign its deliveries,
	// where the user has brought them: the current one, and those before that may still be valid, newest first.
	Secrets []string `json:"secrets,omitempty"`
}

// IsEmpty says whether there is nothing to seal.
func (c Credentials) IsEmpty() bool {
	return len(c.Headers) == 0 && c.SigningSecret == "" && c.URL == "" && c.Said == "" && len(c.Secrets) == 0
}

// JSON is what is sealed: the same for the same credentials.
func (c Credentials) JSON() ([]byte, error) {
	raw, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("writing credentials: %w", err)
	}
	return raw, nil
}

// CredentialsField is what the credentials of a connector are sealed for.
func CredentialsField(projectID, connectorID uuid.UUID) Field {
	return Field{ProjectID: projectID, Kind: "Connector", ObjectID: connectorID, Name: "credentials"}
}

// SecretField is what the secret of a webhook is sealed for that the user has brought by the
// REST API, where it lies in the connector's object.
func SecretField(projectID, connectorID uuid.UUID) Field {
	return Field{ProjectID: projectID, Kind: "Connector", ObjectID: connectorID, Name: "secret"}
}

// HeaderField is what the value of a header of an outbound webhook is sealed for, where it
// lies in the connector's object.
func HeaderField(projectID, connectorID uuid.UUID, name string) Field {
	return Field{ProjectID: projectID, Kind: "Connector", ObjectID: connectorID, Name: "headers/" + http.CanonicalHeaderKey(name)}
}

// VariableField is what the value of a variable is sealed for, where it lies in the object of
// its environment.
func VariableField(projectID, environmentID uuid.UUID, name string) Field {
	return Field{ProjectID: projectID, Kind: "Environment", ObjectID: environmentID, Name: "variables/" + name}
}
