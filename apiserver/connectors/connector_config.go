// SPDX-License-Identifier: Apache-2.0

package connectors

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"
	kjson "sigs.k8s.io/json"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/seal"
)

// WebhookConfig has the common fields of inbound and sync webhooks.
type WebhookConfig struct {
	Authentication        Authentication `json:"authentication" doc:"How callers authenticate."`
	RequireAuthentication bool           `json:"require_authentication" doc:"Whether callers must authenticate: false if authentication is none."`
	Secret                *string        `json:"secret" doc:"******** if the project set its own secret with the REST API; else null."`
	ContextHeaders        []string       `json:"context_headers" doc:"Request headers that runs see in their context." example:"[\"x-github-event\"]"`
	FilesRequired         bool           `json:"files_required" doc:"Whether runs of an event fail if it has no attachment or if an attachment is omitted."`
}

// InboundConfig is the config of an inbound webhook.
type InboundConfig struct {
	WebhookConfig
	TimeoutSeconds *int `json:"timeout_seconds" doc:"Always null: an inbound webhook responds at once."`
}

// Doc describes the type.
func (InboundConfig) Doc() string { return "The configuration of a webhook of mode inbound." }

// SyncConfig is the config of a sync webhook.
type SyncConfig struct {
	WebhookConfig
	TimeoutSeconds int `json:"timeout_seconds" doc:"How long a caller waits for the agent's result, in seconds." example:"300"`
}

// Doc describes the type.
func (SyncConfig) Doc() string { return "The configuration of a webhook of mode sync." }

// InboundConfigInput is the config of an inbound webhook in a request.
type InboundConfigInput struct {
	Authentication        *Authentication `json:"authentication,omitempty" doc:"How callers authenticate. Default: secret."`
	RequireAuthentication *bool           `json:"require_authentication,omitempty" doc:"false is the same as authentication none. If both are given, they must agree."`
	Secret                *string         `json:"secret,omitempty" doc:"The project's own secret of at most 4096 bytes, as Slack and Stripe issue it. Default: a generated secret. In an update, an empty, masked or omitted value keeps the stored secret. If the update changes authentication, an omitted secret is generated."`
	ContextHeaders        []string        `json:"context_headers,omitempty" maxItems:"16" doc:"Request headers that runs see in their context, by their lower-case names. Headers with credentials are not allowed."`
	FilesRequired         *bool           `json:"files_required,omitempty" doc:"Whether runs of an event fail if it has no attachment or if an attachment is omitted. Default: false."`
}

// Doc describes the type.
func (InboundConfigInput) Doc() string {
	return "The configuration of a webhook of mode inbound to set."
}

// SyncConfigInput is the config of a sync webhook in a request.
type SyncConfigInput struct {
	InboundConfigInput
	TimeoutSeconds *int32 `json:"timeout_seconds,omitempty" minimum:"1" maximum:"900" doc:"How long a caller waits for the agent's result, in seconds. Default: 300."`
}

// Doc describes the type.
func (SyncConfigInput) Doc() string { return "The configuration of a webhook of mode sync to set." }

// ConnectorConfig is the config of a connector: one of the types above.
type ConnectorConfig struct{ Value any }

// MarshalJSON writes the config.
func (c ConnectorConfig) MarshalJSON() ([]byte, error) { return json.Marshal(c.Value) }

// UnmarshalJSON reads a config of any type.
func (c *ConnectorConfig) UnmarshalJSON(data []byte) error { return json.Unmarshal(data, &c.Value) }

// Schema refers to the component of describeConfigs.
func (ConnectorConfig) Schema(r huma.Registry) *huma.Schema {
	return alternatives(r, "ConnectorConfig", reflect.TypeFor[InboundConfig](), reflect.TypeFor[SyncConfig](), reflect.TypeFor[OutboundConfig](), reflect.TypeFor[CronConfig]())
}

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
	return alternatives(r, "ConnectorConfigInput", reflect.TypeFor[InboundConfigInput](), reflect.TypeFor[SyncConfigInput](), reflect.TypeFor[OutboundConfigInput](), reflect.TypeFor[CronConfigInput]())
}

// alternatives registers the types, and a component that describeConfigs describes as one of them. huma validates
// requests against the component, an object with any fields.
func alternatives(r huma.Registry, name string, types ...reflect.Type) *huma.Schema {
	for _, t := range types {
		r.Schema(t, true, t.Name())
	}
	if _, there := r.Map()[name]; !there {
		s := &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}
		s.PrecomputeMessages()
		r.Map()[name] = s
	}
	return &huma.Schema{Ref: rest.SchemaPrefix + name}
}

// applyConfig writes a config into the spec of the connector with an ID.
func (s *API) applyConfig(c *rest.Caller, id uuid.UUID, conn *v1alpha1.Connector, kind rest.ConnectorType, config ConnectorConfigInput) error {
	switch {
	case kind == rest.ConnectorType(v1alpha1.ConnectorCron):
		return applyCron(&conn.Spec, config)
	case conn.Spec.Mode == v1alpha1.ModeOutbound:
		return s.applyOutbound(c, id, &conn.Spec, config)
	}
	return s.applyWebhook(c, id, &conn.Spec, config)
}

// applyWebhook writes a config into the spec of an inbound or sync webhook. The secret is sealed for the connector with
// the ID.
func (s *API) applyWebhook(c *rest.Caller, id uuid.UUID, spec *v1alpha1.ConnectorSpec, config ConnectorConfigInput) error {
	var in SyncConfigInput
	if err := decodeConfig(json.RawMessage(config), &in); err != nil {
		return err
	}
	if t := in.TimeoutSeconds; t != nil {
		if spec.Mode == v1alpha1.ModeInbound {
			return rest.InvalidField("body.config.timeout_seconds", "is a field of mode sync: an inbound webhook responds at once")
		}
		if *t < 1 || *t > 900 {
			return rest.InvalidField("body.config.timeout_seconds", "must be 1 to 900")
		}
	}
	authentication, err := in.authentication()
	if err != nil {
		return err
	}
	sealed, err := s.sealSecret(c, id, spec, in.Secret, authentication)
	if err != nil {
		return err
	}
	if authentication == v1alpha1.AuthenticationNone {
		spec.SecretRef = nil
	}
	spec.Webhook = &v1alpha1.WebhookConnector{Authentication: authentication, SealedSecret: sealed, TimeoutSeconds: in.TimeoutSeconds, FilesRequired: in.FilesRequired != nil && *in.FilesRequired}
	for _, name := range in.ContextHeaders {
		spec.Webhook.ContextHeaders = append(spec.Webhook.ContextHeaders, v1alpha1.HeaderName(name))
	}
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
	case *sent != "" && *sent != rest.Masked && seal.CheckBrought(*sent) != "":
		return "", rest.InvalidField(at, seal.CheckBrought(*sent))
	}
	fresh, kept, err := keepCredentials("body.config", map[string]string{"secret": *sent}, stored)
	if err != nil {
		return "", err
	}
	field := seal.SecretField(c.ProjectID, id)
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

// authentication returns the authentication of two fields, or 422 if they contradict each other.
func (in InboundConfigInput) authentication() (v1alpha1.WebhookAuthentication, error) {
	implied := v1alpha1.AuthenticationSecret
	if in.RequireAuthentication != nil && !*in.RequireAuthentication {
		implied = v1alpha1.AuthenticationNone
	}
	if in.Authentication == nil {
		return implied, nil
	}
	named := v1alpha1.WebhookAuthenticationOf(string(*in.Authentication))
	switch {
	case named == "":
		return "", rest.InvalidField("body.config.authentication", "must be one of "+strings.Join(authentications(), ", "))
	case in.RequireAuthentication != nil && *in.RequireAuthentication == (named == v1alpha1.AuthenticationNone):
		return "", rest.InvalidField("body.config.require_authentication", "contradicts authentication: leave out one of the two fields")
	}
	return named, nil
}

// decodeConfig rejects fields that the type does not have.
func decodeConfig(config json.RawMessage, into any) error {
	unknown, err := kjson.UnmarshalStrict(config, into)
	var typed *json.UnmarshalTypeError
	if errors.As(err, &typed) && strings.HasPrefix(typed.Value, "number ") {
		unknown, err = kjson.UnmarshalStrict(rest.NormalizeIntegers(config), into)
	}
	var field kjson.FieldError
	switch {
	case errors.As(err, &typed):
		// The path of the field contains embedded structs, which have no name in JSON.
		var path []string
		for _, part := range strings.Split(typed.Field, ".") {
			if part == strings.ToLower(part) {
				path = append(path, part)
			}
		}
		name := strings.Join(path, ".")
		return rest.InvalidField(strings.TrimSuffix("body.config."+name, "."), "must not be a JSON "+typed.Value)
	case err != nil:
		return rest.InvalidField("body.config", "must be a JSON object")
	case len(unknown) > 0 && errors.As(unknown[0], &field):
		return rest.InvalidField("body.config."+field.FieldPath(), "is not a field of this type and mode")
	}
	return nil
}

// showConfig returns the config with its defaults.
func showConfig(conn *v1alpha1.Connector) ConnectorConfig {
	if conn.Spec.Cron != nil {
		return ConnectorConfig{showCron(conn.Spec.Cron)}
	}
	if conn.Sends() {
		return ConnectorConfig{showOutbound(conn)}
	}
	webhook := WebhookConfig{
		Authentication: Authentication(conn.Authentication().Word()), RequireAuthentication: conn.RequiresAuthentication(),
		ContextHeaders: append([]string{}, conn.ContextHeaders()...), FilesRequired: conn.RequiresFiles(),
	}
	if conn.SealedSecret() != "" {
		webhook.Secret = rest.Optional(rest.Masked)
	}
	if conn.Spec.Mode == v1alpha1.ModeSync {
		return ConnectorConfig{SyncConfig{WebhookConfig: webhook, TimeoutSeconds: int(conn.Timeout().Seconds())}}
	}
	return ConnectorConfig{InboundConfig{WebhookConfig: webhook}}
}

// describeConfigs describes the types of a connector's config.
func describeConfigs(all rest.Node) {
	all["ConnectorConfig"] = rest.Node{
		"description": "The configuration of a connector: InboundConfig, SyncConfig or OutboundConfig for a webhook of that mode, CronConfig for a cron " +
			"connector. Only SyncConfig and OutboundConfig have a number as timeout_seconds.",
		"oneOf": []any{rest.RefNode("schemas", "InboundConfig"), rest.RefNode("schemas", "SyncConfig"), rest.RefNode("schemas", "OutboundConfig"), rest.RefNode("schemas", "CronConfig")},
	}
	// This makes the types exclusive, although responses can get new fields.
	never := all["InboundConfig"].(rest.Node)["properties"].(rest.Node)["timeout_seconds"].(rest.Node)
	never["type"] = "null"
	delete(never, "format")
	all["ConnectorConfigInput"] = rest.Node{
		"description": "The configuration of a connector to set: InboundConfigInput, SyncConfigInput or OutboundConfigInput for a webhook of that mode, " +
			"CronConfigInput for a cron connector.",
		"anyOf": []any{rest.RefNode("schemas", "InboundConfigInput"), rest.RefNode("schemas", "SyncConfigInput"), rest.RefNode("schemas", "OutboundConfigInput"), rest.RefNode("schemas", "CronConfigInput")},
	}
}
