// SPDX-License-Identifier: Apache-2.0

package connectors

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/outbound"
	"github.com/agentplatform/agentplatform/internal/seal"
)

// OutboundConfig is the config of an outbound webhook.
type OutboundConfig struct {
	URL            string            `json:"url" doc:"The URL to which results are sent." example:"https://example.com/results"`
	Headers        map[string]string `json:"headers" doc:"The connector's own request headers; each value is ********."`
	HeadersSecret  *string           `json:"headers_secret" doc:"The Secret in the project's namespace that holds the headers instead of headers; null if there is none."`
	TimeoutSeconds int               `json:"timeout_seconds" doc:"Timeout of an attempt, in seconds." example:"15"`
	Retry          DeliveryRetry     `json:"retry" doc:"The retry policy."`
}

// Doc describes the type.
func (OutboundConfig) Doc() string { return "The configuration of a webhook of mode outbound." }

// DeliveryRetry is the retry policy of deliveries.
type DeliveryRetry struct {
	MaxAttempts     int   `json:"max_attempts" doc:"Maximum number of attempts." example:"10"`
	ScheduleSeconds []int `json:"schedule_seconds" doc:"Delay before each attempt in seconds, give or take a fifth. The first attempt has no delay, and the last delay repeats."`
}

// Doc describes the type.
func (DeliveryRetry) Doc() string { return "The retry policy of deliveries." }

// OutboundConfigInput is the config of an outbound webhook in a request.
type OutboundConfigInput struct {
	URL            string              `json:"url" maxLength:"2048" doc:"The URL to which results are sent: https, or http if the platform operator allows the address range. Put credentials into headers." example:"https://example.com/results"`
	Headers        map[string]string   `json:"headers,omitempty" doc:"Request headers, at most 32. An empty or masked value keeps the stored value; an omitted header is removed. X-Service-*, Webhook-*, Host, Content-* and connection headers cannot be set."`
	HeadersSecret  *string             `json:"headers_secret,omitempty" maxLength:"253" doc:"The connector's current value: only the Kubernetes object can change it."`
	TimeoutSeconds *int32              `json:"timeout_seconds,omitempty" minimum:"1" maximum:"60" doc:"Timeout of an attempt, in seconds. Default: 15."`
	Retry          *DeliveryRetryInput `json:"retry,omitempty" doc:"The retry policy. Default: ten attempts in about three days."`
}

// Doc describes the type.
func (OutboundConfigInput) Doc() string {
	return "The configuration of a webhook of mode outbound to set."
}

// DeliveryRetryInput is the retry policy of deliveries in a request.
type DeliveryRetryInput struct {
	MaxAttempts     *int32  `json:"max_attempts,omitempty" minimum:"1" maximum:"20" doc:"Maximum number of attempts. Default: the length of the schedule."`
	ScheduleSeconds []int32 `json:"schedule_seconds,omitempty" maxItems:"20" doc:"Delay before each attempt in seconds, at most 86400. The first delay must be 0, because the first attempt is immediate. The last delay repeats. Default: 0, 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h, 24 h."`
}

// Doc describes the type.
func (DeliveryRetryInput) Doc() string { return "The retry policy of deliveries to set." }

// applyOutbound writes a config into the spec of an outbound webhook. The headers are sealed for the connector with the
// ID.
func (s *API) applyOutbound(c *rest.Caller, id uuid.UUID, spec *v1alpha1.ConnectorSpec, config ConnectorConfigInput) error {
	var in OutboundConfigInput
	if err := decodeConfig(json.RawMessage(config), &in); err != nil {
		return err
	}
	if t := in.TimeoutSeconds; t != nil && *t < 1 {
		return rest.InvalidField("body.config.timeout_seconds", "must be 1 to 60")
	}
	if r := in.Retry; r != nil && r.MaxAttempts != nil && *r.MaxAttempts < 1 {
		return rest.InvalidField("body.config.retry", "must have max_attempts of at least 1")
	}
	if named := in.HeadersSecret; named != nil && (spec.HeadersSecretRef == nil || string(spec.HeadersSecretRef.Name) != *named) {
		return rest.InvalidField("body.config.headers_secret", "can be set only by headersSecretRef of the Connector object")
	}
	if spec.HeadersSecretRef != nil && len(in.Headers) > 0 {
		return rest.InvalidField("body.config.headers", fmt.Sprintf("come from the Secret %q: change them there", spec.HeadersSecretRef.Name))
	}
	var problems []rest.FieldError
	for _, w := range append(in.config().Check(), outbound.CheckHeaders(in.Headers)...) {
		problems = append(problems, rest.FieldError{Location: "body.config." + string(w.Field), Message: w.Problem})
	}
	if len(problems) > 0 {
		return rest.Invalid(problems...)
	}
	webhook := &v1alpha1.WebhookConnector{URL: in.URL, TimeoutSeconds: in.TimeoutSeconds}
	if in.Retry != nil {
		webhook.Retry = &v1alpha1.DeliveryRetry{MaxAttempts: in.Retry.MaxAttempts, ScheduleSeconds: in.Retry.ScheduleSeconds}
	}
	var stored map[string]string
	if spec.Webhook != nil {
		stored = spec.Webhook.SealedHeaders
	}
	var err error
	if webhook.SealedHeaders, err = s.sealHeaders(c, id, in.Headers, stored); err != nil {
		return err
	}
	spec.Webhook = webhook
	return nil
}

// config returns the config for the shared rules.
func (in OutboundConfigInput) config() outbound.Config {
	config := outbound.Config{URL: in.URL}
	if in.TimeoutSeconds != nil {
		config.TimeoutSeconds = int(*in.TimeoutSeconds)
	}
	if in.Retry != nil {
		if in.Retry.MaxAttempts != nil {
			config.Retry.MaxAttempts = int(*in.Retry.MaxAttempts)
		}
		for _, seconds := range in.Retry.ScheduleSeconds {
			config.Retry.ScheduleSeconds = append(config.Retry.ScheduleSeconds, int(seconds))
		}
	}
	return config
}

// sealHeaders returns the sealed headers of the object. It seals new values, and seals unchanged values again if they
// have an earlier key, so that the key can be removed.
func (s *API) sealHeaders(c *rest.Caller, id uuid.UUID, sent, stored map[string]string) (map[string]string, error) {
	fresh, kept, err := keepCredentials("body.config.headers", sent, stored)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for name, sealed := range kept {
		out[name] = sealed
		if value, anew := s.Keys.OpenOutdated(seal.HeaderField(c.ProjectID, id, name), sealed); anew {
			fresh[name] = value
		}
	}
	for name, value := range fresh {
		sealed, _, err := s.Keys.Seal(seal.HeaderField(c.ProjectID, id, name), []byte(value))
		if err != nil {
			return nil, fmt.Errorf("sealing the header %q: %w", name, err)
		}
		out[name] = base64.StdEncoding.EncodeToString(sealed)
	}
	if len(out) == 0 {
		return nil, nil
	}
	return out, nil
}

// resume ends the pause of an outbound connector.
func (s *API) resume(ctx context.Context, c *rest.Caller, conn *v1alpha1.Connector) error {
	if !conn.Sends() || !conn.IsEnabled() {
		return nil
	}
	if err := s.Store.ResumeDestination(ctx, c.ObjectKey(conn)); err != nil {
		return fmt.Errorf("resuming the deliveries of connector %q: %w", conn.Name, err)
	}
	return nil
}

// showOutbound returns the config of an outbound webhook with its defaults.
func showOutbound(conn *v1alpha1.Connector) OutboundConfig {
	out := OutboundConfig{Headers: map[string]string{}, TimeoutSeconds: int(conn.Timeout().Seconds())}
	var config outbound.Config
	if w := conn.Spec.Webhook; w != nil {
		out.URL = w.URL
		for _, headers := range []map[string]string{w.SealedHeaders, w.Headers} {
			for name := range headers {
				out.Headers[name] = rest.Masked
			}
		}
		if w.Retry != nil {
			in := OutboundConfigInput{Retry: &DeliveryRetryInput{MaxAttempts: w.Retry.MaxAttempts, ScheduleSeconds: w.Retry.ScheduleSeconds}}
			config = in.config()
		}
	}
	if ref := conn.Spec.HeadersSecretRef; ref != nil {
		out.HeadersSecret = rest.Optional(string(ref.Name))
	}
	schedule := config.Schedule()
	out.Retry.MaxAttempts = len(schedule)
	for _, wait := range schedule[:min(len(schedule), cmp.Or(len(config.Retry.ScheduleSeconds), len(schedule)))] {
		out.Retry.ScheduleSeconds = append(out.Retry.ScheduleSeconds, int(wait.Seconds()))
	}
	return out
}
