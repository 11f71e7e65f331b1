// SPDX-License-Identifier: Apache-2.0

package connectors

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"
	kjson "sigs.k8s.io/json"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/connector"
	"github.com/agentplatform/agentplatform/connector/crd"
	"github.com/agentplatform/agentplatform/internal/secrets"
)

// ConnectorConfig is the config of a connector in responses: its settings by name, with masked credentials.
type ConnectorConfig struct{ Value any }

// MarshalJSON writes the config.
func (c ConnectorConfig) MarshalJSON() ([]byte, error) { return json.Marshal(c.Value) }

// UnmarshalJSON reads a config of any type.
func (c *ConnectorConfig) UnmarshalJSON(data []byte) error { return json.Unmarshal(data, &c.Value) }

// Schema refers to the component of describeConfigs.
func (ConnectorConfig) Schema(r huma.Registry) *huma.Schema { return anyConfig(r, "ConnectorConfig") }

// ConnectorConfigInput is the config of a connector in a request. It is decoded once the type is known, so that errors
// name the field.
type ConnectorConfigInput json.RawMessage

// UnmarshalJSON keeps the text of the config.
func (c *ConnectorConfigInput) UnmarshalJSON(data []byte) error {
	return (*json.RawMessage)(c).UnmarshalJSON(data)
}

// given reports whether the request has a config other than null.
func (c ConnectorConfigInput) given() bool { return len(c) > 0 && string(c) != "null" }

// Schema refers to the component of describeConfigs.
func (ConnectorConfigInput) Schema(r huma.Registry) *huma.Schema {
	return anyConfig(r, "ConnectorConfigInput")
}

// applyConfig writes a config into the spec of the connector with an ID.
func (s *API) applyConfig(c *rest.Caller, id uuid.UUID, conn *v1alpha1.Connector, typ rest.ConnectorType, config ConnectorConfigInput) error {
	kind := connector.KindOf(string(typ), conn.Spec.Mode.EnumValue())
	if kind == "" {
		problem := "is not a mode of this type"
		if kinds := connector.KindsOf(string(typ)); len(kinds) == 1 {
			problem = "must be " + kinds[0].Mode() + " for a " + kinds[0].Noun() + ": leave it out"
		}
		return rest.InvalidField("body.mode", problem)
	}
	in, err := decodeConfig(kind, json.RawMessage(config))
	if err != nil {
		return err
	}
	if ref := conn.Spec.HeadersSecretRef; in.HeadersSecret != nil && (ref == nil || string(ref.Name) != *in.HeadersSecret) {
		return rest.InvalidField("body.config.headers_secret", "can be set only by headersSecretRef of the Connector object")
	} else if ref != nil && len(in.Headers) > 0 {
		return rest.InvalidField("body.config.headers", fmt.Sprintf("come from the Secret %q: change them there", ref.Name))
	}
	var problems []rest.FieldError
	for _, problem := range kind.Check(in.Config) {
		problems = append(problems, rest.FieldError{Location: "body.config." + problem.Field, Message: problem.Problem})
	}
	if len(problems) > 0 {
		return rest.Invalid(problems...)
	}
	return s.setConfig(c, id, &conn.Spec, kind, in)
}

// setConfig writes a valid config into a spec. The credentials are sealed for the connector with the ID.
func (s *API) setConfig(c *rest.Caller, id uuid.UUID, spec *v1alpha1.ConnectorSpec, kind connector.Kind, in configInput) error {
	headers, stored := in.Headers, v1alpha1.WebhookConnector{}
	if in.Headers = nil; spec.Webhook != nil {
		stored = *spec.Webhook
	}
	set := *spec
	crd.SetConfig(&set, kind, in.Config)
	switch {
	case kind.HasCallers():
		sealed, err := s.sealSecret(c, id, spec, in.Secret, set.Webhook.Authentication)
		if err != nil {
			return err
		}
		if set.Webhook.SealedSecret = sealed; set.Webhook.Authentication == v1alpha1.AuthenticationNone {
			set.SecretRef = nil
		}
	case kind.Sends():
		sealed, err := s.sealHeaders(c, id, headers, stored.SealedHeaders)
		if err != nil {
			return err
		}
		set.Webhook.SealedHeaders = sealed
	}
	*spec = set
	return nil
}

// sealSecret returns the sealed secret of the project, or "" for a generated secret.
func (s *API) sealSecret(
	c *rest.Caller, id uuid.UUID, spec *v1alpha1.ConnectorSpec, sent *string, authentication v1alpha1.WebhookAuthentication,
) (string, error) {
	const at = "body.config.secret"
	stored := map[string]string{}
	if w := spec.Webhook; w != nil && w.SealedSecret != "" {
		stored["secret"] = w.SealedSecret
		if sent == nil && cmp.Or(w.Authentication, v1alpha1.AuthenticationSecret) == authentication {
			sent = new(string) // an omitted secret stays
		}
	}
	switch {
	case sent == nil:
		return "", nil
	case spec.SecretRef != nil:
		return "", rest.InvalidField(at, fmt.Sprintf("comes from the Secret %q: change it there", spec.SecretRef.Name))
	case authentication == v1alpha1.AuthenticationNone:
		return "", rest.InvalidField(at, "has no effect because authentication is none: leave the secret out, or choose another authentication")
	case *sent != "" && *sent != rest.Masked && secrets.CheckUserSecret(*sent) != "":
		return "", rest.InvalidField(at, secrets.CheckUserSecret(*sent))
	}
	fresh, kept, err := keepCredentials("body.config", map[string]string{"secret": *sent}, stored)
	if err != nil {
		return "", err
	}
	field := secrets.SecretField(c.ProjectID, id)
	value, anew := fresh["secret"]
	if !anew {
		if value, anew = s.Keys.OpenOutdated(field, kept["secret"]); !anew {
			return kept["secret"], nil
		}
	}
	sealed, _, err := s.Keys.Seal(field, []byte(value))
	if err != nil {
		return "", fmt.Errorf("sealing the secret of a connector: %w", err)
	}
	return base64.StdEncoding.EncodeToString(sealed), nil
}

// configInput is a config in a request.
type configInput struct {
	connector.Config
	Secret        *string `json:"secret"`
	HeadersSecret *string `json:"headers_secret"`
}

// decodeConfig rejects fields that the kind does not have.
func decodeConfig(kind connector.Kind, config json.RawMessage) (in configInput, err error) {
	unknown, err := kjson.UnmarshalStrict(config, &in)
	var typed *json.UnmarshalTypeError
	if errors.As(err, &typed) && strings.HasPrefix(typed.Value, "number ") {
		in = configInput{}
		unknown, err = kjson.UnmarshalStrict(rest.NormalizeIntegers(config), &in)
	}
	var (
		field kjson.FieldError
		given map[string]json.RawMessage
	)
	switch {
	case errors.As(err, &typed):
		return in, rest.InvalidField(strings.TrimSuffix("body.config."+jsonPath(typed.Field), "."), rest.TypeProblem(typed))
	case err != nil:
		return in, rest.InvalidField("body.config", "must be a JSON object")
	case len(unknown) > 0 && errors.As(unknown[0], &field):
		return in, rest.InvalidField("body.config."+field.FieldPath(), "is not a field of this type and mode")
	}
	if err := json.Unmarshal(config, &given); err != nil {
		return in, rest.InvalidField("body.config", "must be a JSON object")
	}
	known := configFields(kind)
	for _, name := range slices.Sorted(maps.Keys(given)) {
		i := slices.IndexFunc(known, func(f configField) bool { return f.Name == name })
		switch {
		case hasNullTimeout(kind) && name == "timeout_seconds" && string(given[name]) == "null": // as in responses
		case i < 0:
			return in, rest.InvalidField("body.config."+name, "is not a field of this type and mode")
		case known[i].Enum != nil && string(given[name]) == `""`:
			return in, rest.InvalidField("body.config."+name, "must be one of "+strings.Join(known[i].Enum, ", "))
		}
	}
	return in, nil
}

// jsonPath returns the path of a field in JSON. The path of a Go field contains embedded structs, which have no name there.
func jsonPath(field string) string {
	parts := strings.Split(field, ".")
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part != strings.ToLower(part) }), ".")
}

// showConfig returns the config with its defaults. Credentials are masked.
func showConfig(conn *v1alpha1.Connector) ConnectorConfig {
	kind := crd.KindOf(conn)
	out := crd.ConfigOf(conn).WithDefaults(kind).Values(kind)
	switch {
	case kind.HasCallers():
		out["secret"] = nil
		if conn.SealedSecret() != "" {
			out["secret"] = rest.Masked
		}
		if hasNullTimeout(kind) {
			out["timeout_seconds"] = nil
		}
	case kind.Sends():
		masked := map[string]string{}
		if w := conn.Spec.Webhook; w != nil {
			for _, headers := range []map[string]string{w.SealedHeaders, w.Headers} {
				for name := range headers {
					masked[name] = rest.Masked
				}
			}
		}
		out["headers"], out["headers_secret"] = masked, nil
		if ref := conn.Spec.HeadersSecretRef; ref != nil {
			out["headers_secret"] = string(ref.Name)
		}
	}
	return ConnectorConfig{out}
}

// keepCredentials splits the values of a credential field of a config into new values and values that stay as stored.
// sent has the values by name, at a location of the request. An empty or masked value keeps the stored value. Stored
// values without a name in sent are dropped. It returns 422 for each name that has no stored value to keep.
func keepCredentials[T any](location string, sent map[string]string, stored map[string]T) (fresh map[string]string, kept map[string]T, err error) {
	fresh, kept = map[string]string{}, map[string]T{}
	var missing []rest.FieldError
	for _, name := range slices.Sorted(maps.Keys(sent)) {
		value, there := stored[name]
		switch {
		case sent[name] != "" && sent[name] != rest.Masked:
			fresh[name] = sent[name]
		case there:
			kept[name] = value
		default:
			missing = append(missing, rest.FieldError{Location: location + "." + name, Message: "has no stored value to keep: send the value"})
		}
	}
	if len(missing) > 0 {
		return nil, nil, rest.Invalid(missing...)
	}
	return fresh, kept, nil
}
