// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/outbound"
	"github.com/agentplatform/agentplatform/internal/seal"
)

// OutboundConfig is the config of an outbound webhook.
type OutboundConfig struct {
	URL            string            `json:"url" doc:"Where results are sent." example:"https://example.com/results"`
	Headers        map[string]string `json:"headers" doc:"The headers that are sent beside those of the delivery; each value is ********."`
	HeadersSecret  *string           `json:"headers_secret" doc:"The Secret of the project's namespace that has the headers in place of these; null without one."`
	TimeoutSeconds int               `json:"timeout_seconds" doc:"How long an attempt may take." example:"15"`
	Retry          DeliveryRetry     `json:"retry" doc:"How often and when a delivery is tried."`
}

// DeliveryRetry says how often and when a delivery is tried.
type DeliveryRetry struct {
	MaxAttempts     int   `json:"max_attempts" doc:"How many attempts are made." example:"10"`
	ScheduleSeconds []int `json:"schedule_seconds" doc:"How long each attempt waits after the one before, up to a fifth shorter or longer; the first is made at once, and the last wait goes on."`
}

// OutboundConfigInput is what the config of an outbound webhook is made of.
type OutboundConfigInput struct {
	URL            string              `json:"url" maxLength:"2048" doc:"Where results are sent: https, or plain http where the operator has opened the range. Credentials belong in headers." example:"https://example.com/results"`
	Headers        map[string]string   `json:"headers,omitempty" doc:"Headers to send, at most 32. A value that is empty or ******** stays as it is stored; a header that is left out goes. X-Service-*, Webhook-*, Host, Content-* and those of the connection cannot be set."`
	HeadersSecret  *string             `json:"headers_secret,omitempty" maxLength:"253" doc:"What the connector has: it changes in the object alone."`
	TimeoutSeconds *int32              `json:"timeout_seconds,omitempty" minimum:"1" maximum:"60" doc:"How long an attempt may take; without it: 15."`
	Retry          *DeliveryRetryInput `json:"retry,omitempty" doc:"How often and when a delivery is tried; without it ten times in about three days."`
}

// DeliveryRetryInput says how often and when a delivery is to be tried.
type DeliveryRetryInput struct {
	MaxAttempts     *int32  `json:"max_attempts,omitempty" minimum:"1" maximum:"20" doc:"How many attempts are made; without it as many as the schedule has."`
	ScheduleSeconds []int32 `json:"schedule_seconds,omitempty" maxItems:"20" doc:"How long each attempt waits after the one before, at most 86400: 0 first, for the first attempt is made at once. The last wait goes on for attempts beyond it. Without it 0, 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h, 24 h."`
}

// applyOutbound reads a config in its REST shape into the spec of an outbound webhook with
// an id. Its headers are sealed for that.
func (s *Server) applyOutbound(c *caller, id uuid.UUID, spec *v1alpha1.ConnectorSpec, config ConnectorConfigInput) error {
	var in OutboundConfigInput
	if err := decodeConfig(json.RawMessage(config), &in); err != nil {
		return err
	}
	if t := in.TimeoutSeconds; t != nil && *t < 1 {
		return wrong("body.config.timeout_seconds", "must be 1 to 60")
	}
	if r := in.Retry; r != nil && r.MaxAttempts != nil && *r.MaxAttempts < 1 {
		return wrong("body.config.retry", "has at least one attempt")
	}
	if named := in.HeadersSecret; named != nil && (spec.HeadersSecretRef == nil || string(spec.HeadersSecretRef.Name) != *named) {
		return wrong("body.config.headers_secret", "is set by headersSecretRef of the Connector object alone")
	}
	if spec.HeadersSecretRef != nil && len(in.Headers) > 0 {
		return wrong("body.config.headers", fmt.Sprintf("are those of the Secret %q: change them there", spec.HeadersSecretRef.Name))
	}
	var problems []FieldError
	for _, w := range append(in.config().Check(), outbound.CheckHeaders(in.Headers)...) {
		problems = append(problems, FieldError{Location: "body.config." + string(w.Field), Message: w.Problem})
	}
	if len(problems) > 0 {
		return invalid(problems...)
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

// config is the config as the rules know it.
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

// sealHeaders are headers as the object has them: new values are sealed, and those that stay
// are sealed anew where an earlier key has sealed them, so that none hangs on it for ever.
func (s *Server) sealHeaders(c *caller, id uuid.UUID, sent, stored map[string]string) (map[string]string, error) {
	fresh, kept, err := keepCredentials("body.config.headers", sent, stored)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for name, sealed := range kept {
		out[name] = sealed
		if value, anew := s.outdated(seal.HeaderField(c.projectID, id, name), sealed); anew {
			fresh[name] = value
		}
	}
	for name, value := range fresh {
		sealed, _, err := s.platform.Seal(seal.HeaderField(c.projectID, id, name), []byte(value))
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

// outdated opens what another key than the one that serves now has sealed; anew is false for
// what is sealed with that, and for what cannot be opened.
func (s *Server) outdated(field seal.Field, sealed string) (value string, anew bool) {
	raw, err := base64.StdEncoding.DecodeString(sealed)
	if err != nil || s.platform.SealedNow(raw) {
		return "", false
	}
	plain, err := s.platform.Open(field, raw)
	return string(plain), err == nil
}

// resume ends the pause of an outbound connector.
func (s *Server) resume(ctx context.Context, c *caller, conn *v1alpha1.Connector) error {
	if !conn.Sends() || !conn.IsEnabled() {
		return nil
	}
	if err := s.store.ResumeDestination(ctx, c.keyOf(conn)); err != nil {
		return fmt.Errorf("resuming the deliveries of connector %q: %w", conn.Name, err)
	}
	return nil
}

// showOutbound is the config of an outbound webhook, defaults filled in.
func showOutbound(conn *v1alpha1.Connector) OutboundConfig {
	out := OutboundConfig{Headers: map[string]string{}, TimeoutSeconds: int(conn.Timeout().Seconds())}
	var config outbound.Config
	if w := conn.Spec.Webhook; w != nil {
		out.URL = w.URL
		for _, headers := range []map[string]string{w.SealedHeaders, w.Headers} {
			for name := range headers {
				out.Headers[name] = masked
			}
		}
		if w.Retry != nil {
			in := OutboundConfigInput{Retry: &DeliveryRetryInput{MaxAttempts: w.Retry.MaxAttempts, ScheduleSeconds: w.Retry.ScheduleSeconds}}
			config = in.config()
		}
	}
	if ref := conn.Spec.HeadersSecretRef; ref != nil {
		out.HeadersSecret = opt(string(ref.Name))
	}
	schedule := config.Schedule()
	out.Retry.MaxAttempts = len(schedule)
	for _, wait := range schedule[:min(len(schedule), cmp.Or(len(config.Retry.ScheduleSeconds), len(schedule)))] {
		out.Retry.ScheduleSeconds = append(out.Retry.ScheduleSeconds, int(wait.Seconds()))
	}
	return out
}
