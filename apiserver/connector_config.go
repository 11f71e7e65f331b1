// SPDX-License-Identifier: Apache-2.0

package apiserver

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
	"github.com/agentplatform/agentplatform/internal/seal"
)

// WebhookConfig is what the configs of inbound and sync webhooks have in common.
type WebhookConfig struct {
	Authentication        Authentication `json:"authentication" doc:"How callers prove themselves."`
	RequireAuthentication bool           `json:"require_authentication" doc:"Whether they must: the same as authentication not being none."`
	Secret                *string        `json:"secret" doc:"******** where the secret is one's own, brought by the REST API; else null."`
	ContextHeaders        []string       `json:"context_headers" doc:"The headers of a request that runs see in their context." example:"[\"x-github-event\"]"`
	FilesRequired         bool           `json:"files_required" doc:"Whether runs fail of an event that has no attachment, or one that is omitted."`
}

// InboundConfig is the config of an inbound webhook.
type InboundConfig struct {
	WebhookConfig
	TimeoutSeconds *int `json:"timeout_seconds" doc:"Always null: an inbound webhook answers at once."`
}

// SyncConfig is the config of a sync webhook.
type SyncConfig struct {
	WebhookConfig
	TimeoutSeconds int `json:"timeout_seconds" doc:"How long a caller waits for the agent's result." example:"300"`
}

// InboundConfigInput is what the config of an inbound webhook is made of.
type InboundConfigInput struct {
	Authentication        *Authentication `json:"authentication,omitempty" doc:"How callers prove themselves; without it: secret."`
	RequireAuthentication *bool           `json:"require_authentication,omitempty" doc:"false is the same as authentication none; where both are given they must agree."`
	Secret                *string         `json:"secret,omitempty" doc:"One's own secret, such as Slack and Stripe issue, of at most 4096 bytes; without it one is generated. What is empty, ******** or left out of a change stays as it is stored; where the change is one to another authentication, what is left out is generated."`
	ContextHeaders        []string        `json:"context_headers,omitempty" maxItems:"16" doc:"Headers of a request that runs see in their context, by their names in lower case; none with credentials."`
	FilesRequired         *bool           `json:"files_required,omitempty" doc:"Whether runs fail of an event that has no attachment, or one that is omitted; without it: false."`
}

// SyncConfigInput is what the config of a sync webhook is made of.
type SyncConfigInput struct {
	InboundConfigInput
	TimeoutSeconds *int32 `json:"timeout_seconds,omitempty" minimum:"1" maximum:"900" doc:"How long a caller waits for the agent's result; without it: 300."`
}

// ConnectorConfig is the config of a connector: one of the types above.
type ConnectorConfig struct{ Value any }

// MarshalJSON is the config.
func (c ConnectorConfig) MarshalJSON() ([]byte, error) { return json.Marshal(c.Value) }

// UnmarshalJSON reads a config of any type.
func (c *ConnectorConfig) UnmarshalJSON(data []byte) error { return json.Unmarshal(data, &c.Value) }

// Schema names the component that describe fills in.
func (ConnectorConfig) Schema(r huma.Registry) *huma.Schema {
	return alternatives(r, "ConnectorConfig", reflect.TypeFor[InboundConfig](), reflect.TypeFor[SyncConfig](), reflect.TypeFor[OutboundConfig](), reflect.TypeFor[CronConfig]())
}

// ConnectorConfigInput is the config of a connector that is created. It is decoded
// once it is known which type it must have, so that errors name the field.
type ConnectorConfigInput json.RawMessage

// UnmarshalJSON keeps the config.
func (c *ConnectorConfigInput) UnmarshalJSON(data []byte) error {
	return (*json.RawMessage)(c).UnmarshalJSON(data)
}

// given says whether a request has a config: null is none.
func (c ConnectorConfigInput) given() bool { return len(c) > 0 && string(c) != "null" }

// Schema names the component that describe fills in.
func (ConnectorConfigInput) Schema(r huma.Registry) *huma.Schema {
	return alternatives(r, "ConnectorConfigInput", reflect.TypeFor[InboundConfigInput](), reflect.TypeFor[SyncConfigInput](), reflect.TypeFor[OutboundConfigInput](), reflect.TypeFor[CronConfigInput]())
}

// alternatives registers the types, and a component of which the description says
// that it is one of them; requests are judged by it as an object of any fields.
func alternatives(r huma.Registry, name string, types ...reflect.Type) *huma.Schema {
	for _, t := range types {
		r.Schema(t, true, t.Name())
	}
	if _, there := r.Map()[name]; !there {
		s := &huma.Schema{Type: huma.TypeObject, AdditionalProperties: true}
		s.PrecomputeMessages()
		r.Map()[name] = s
	}
	return &huma.Schema{Ref: schemas + name}
}

// applyConfig reads a config in its REST shape into the spec of a connector with an id.
func (s *Server) applyConfig(c *caller, id uuid.UUID, conn *v1alpha1.Connector, kind ConnectorType, config ConnectorConfigInput) error {
	switch {
	case kind == ConnectorType(v1alpha1.ConnectorCron):
		return applyCron(&conn.Spec, config)
	case conn.Spec.Mode == v1alpha1.ModeOutbound:
		return s.applyOutbound(c, id, &conn.Spec, config)
	}
	return s.applyWebhook(c, id, &conn.Spec, config)
}

// applyWebhook reads a config in its REST shape into the spec of an inbound or sync webhook
// with an id, for which its secret is sealed.
func (s *Server) applyWebhook(c *caller, id uuid.UUID, spec *v1alpha1.ConnectorSpec, config ConnectorConfigInput) error {
	var in SyncConfigInput
	if err := decodeConfig(json.RawMessage(config), &in); err != nil {
		return err
	}
	if t := in.TimeoutSeconds; t != nil {
		if spec.Mode == v1alpha1.ModeInbound {
			return wrong("body.config.timeout_seconds", "is for mode sync: an inbound webhook answers at once")
		}
		if *t < 1 || *t > 900 {
			return wrong("body.config.timeout_seconds", "must be 1 to 900")
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

// sealSecret is one's own secret as the object has it, "" for a generated one.
func (s *Server) sealSecret(
	c *caller, id uuid.UUID, spec *v1alpha1.ConnectorSpec, sent *string, authentication v1alpha1.WebhookAuthentication,
) (string, error) {
	const at = "body.config.secret"
	stored := map[string]string{}
	if w := spec.Webhook; w != nil && w.SealedSecret != "" {
		stored["secret"] = w.SealedSecret
		if sent == nil && cmp.Or(w.Authentication, v1alpha1.AuthenticationSecret) == authentication {
			sent = new(string) // what is left out stays
		}
	}
	switch {
	case sent == nil:
		return "", nil
	case spec.SecretRef != nil:
		return "", wrong(at, fmt.Sprintf("is that of the Secret %q: change it there", spec.SecretRef.Name))
	case authentication == v1alpha1.AuthenticationNone:
		return "", wrong(at, "is for callers that prove themselves: authentication is none")
	case *sent != "" && *sent != masked && seal.CheckBrought(*sent) != "":
		return "", wrong(at, seal.CheckBrought(*sent))
	}
	fresh, kept, err := keepCredentials("body.config", map[string]string{"secret": *sent}, stored)
	if err != nil {
		return "", err
	}
	field := seal.SecretField(c.projectID, id)
	value, anew := fresh["secret"]
	if !anew {
		if value, anew = s.outdated(field, kept["secret"]); !anew {
			return kept["secret"], nil
		}
	}
	sealed, _, err := s.platform.Seal(field, []byte(value))
	if err != nil {
		return "", fmt.Errorf("sealing the secret of a connector: %w", err)
	}
	return base64.StdEncoding.EncodeToString(sealed), nil
}

// authentication is what both fields say; 422 where they say different things.
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
		return "", wrong("body.config.authentication", "must be one of "+strings.Join(authentications(), ", "))
	case in.RequireAuthentication != nil && *in.RequireAuthentication == (named == v1alpha1.AuthenticationNone):
		return "", wrong("body.config.require_authentication", "contradicts authentication: leave one of both out")
	}
	return named, nil
}

// decodeConfig refuses fields that the type does not have.
func decodeConfig(config json.RawMessage, into any) error {
	unknown, err := kjson.UnmarshalStrict(config, into)
	var typed *json.UnmarshalTypeError
	if errors.As(err, &typed) && strings.HasPrefix(typed.Value, "number ") {
		unknown, err = kjson.UnmarshalStrict(plainIntegers(config), into)
	}
	var field kjson.FieldError
	switch {
	case errors.As(err, &typed):
		// The path of the field has those of embedded structs, which are in no JSON.
		var path []string
		for _, part := range strings.Split(typed.Field, ".") {
			if part == strings.ToLower(part) {
				path = append(path, part)
			}
		}
		name := strings.Join(path, ".")
		return wrong(strings.TrimSuffix("body.config."+name, "."), "must not be a JSON "+typed.Value)
	case err != nil:
		return wrong("body.config", "must be a JSON object")
	case len(unknown) > 0 && errors.As(unknown[0], &field):
		return wrong("body.config."+field.FieldPath(), "is not a field of this type and mode")
	}
	return nil
}

// showConfig is the config in its REST shape, defaults filled in.
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
		webhook.Secret = opt(masked)
	}
	if conn.Spec.Mode == v1alpha1.ModeSync {
		return ConnectorConfig{SyncConfig{WebhookConfig: webhook, TimeoutSeconds: int(conn.Timeout().Seconds())}}
	}
	return ConnectorConfig{InboundConfig{WebhookConfig: webhook}}
}
