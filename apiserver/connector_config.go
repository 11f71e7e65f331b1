// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// listenConfig configures an inbound or sync webhook.
type listenConfig struct {
	RequireAuthentication *bool  `json:"require_authentication"`
	FilesRequired         *bool  `json:"files_required"`
	TimeoutSeconds        *int32 `json:"timeout_seconds"`
}

// sendConfig configures an outbound webhook.
type sendConfig struct {
	URL            string            `json:"url"`
	Headers        map[string]string `json:"headers"`
	TimeoutSeconds *int32            `json:"timeout_seconds"`
	Retry          *struct {
		MaxAttempts     *int32  `json:"max_attempts"`
		ScheduleSeconds []int32 `json:"schedule_seconds"`
	} `json:"retry"`
	Bridge string `json:"bridge"`
}

// cronConfig configures a schedule.
type cronConfig struct {
	Schedule string          `json:"schedule"`
	Timezone string          `json:"timezone"`
	Prompt   string          `json:"prompt"`
	Payload  json.RawMessage `json:"payload"`
}

// applyConfig reads a config in its REST shape into the spec and returns the
// headers, which are credentials.
func applyConfig(spec *v1alpha1.ConnectorSpec, kind string, config json.RawMessage) (headers map[string]string, err error) {
	if len(config) == 0 {
		config = json.RawMessage("{}")
	}
	switch {
	case kind == string(v1alpha1.ConnectorCron):
		return nil, applyCron(spec, config)
	case spec.Mode == v1alpha1.ModeOutbound:
		return applySend(spec, config)
	default:
		return nil, applyListen(spec, config)
	}
}

// decodeConfig refuses fields that the type does not have.
func decodeConfig(config json.RawMessage, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(config))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	if err == nil {
		return nil
	}
	if unknown, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return invalid(FieldError{Location: "body.config." + strings.Trim(unknown, `"`), Message: "is no field of this type and mode"})
	}
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) {
		return invalid(FieldError{Location: strings.TrimSuffix("body.config."+wrong.Field, "."), Message: "must not be a JSON " + wrong.Value})
	}
	return invalid(FieldError{Location: "body.config", Message: "is no JSON object"})
}

func applyListen(spec *v1alpha1.ConnectorSpec, config json.RawMessage) error {
	var in listenConfig
	if err := decodeConfig(config, &in); err != nil {
		return err
	}
	if t := in.TimeoutSeconds; t != nil {
		if spec.Mode == v1alpha1.ModeInbound {
			return invalid(FieldError{Location: "body.config.timeout_seconds", Message: "is for mode sync: an inbound webhook answers at once"})
		}
		if *t < 1 || *t > 900 {
			return invalid(FieldError{Location: "body.config.timeout_seconds", Message: "must be 1 to 900"})
		}
	}
	spec.Webhook = &v1alpha1.WebhookConnector{
		RequireAuthentication: in.RequireAuthentication, FilesRequired: in.FilesRequired, TimeoutSeconds: in.TimeoutSeconds,
	}
	return nil
}

func applySend(spec *v1alpha1.ConnectorSpec, config json.RawMessage) (map[string]string, error) {
	var in sendConfig
	if err := decodeConfig(config, &in); err != nil {
		return nil, err
	}
	if in.URL == "" {
		return nil, invalid(FieldError{Location: "body.config.url", Message: "is needed: the address to send to"})
	}
	for name := range in.Headers {
		lower := strings.ToLower(name)
		if name == "" || strings.Trim(lower, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
			return nil, invalid(FieldError{Location: "body.config.headers", Message: "names must be letters, digits, '-', '_' and '.'"})
		}
		if lower == "host" || strings.HasPrefix(lower, "x-service-") || strings.HasPrefix(lower, "webhook-") || strings.HasPrefix(lower, "content-") {
			return nil, invalid(FieldError{Location: "body.config.headers." + name, Message: "is set by the platform itself"})
		}
	}
	spec.Webhook = &v1alpha1.WebhookConnector{URL: in.URL, TimeoutSeconds: in.TimeoutSeconds, Bridge: in.Bridge}
	if in.Retry != nil {
		spec.Webhook.Retry = &v1alpha1.WebhookRetry{MaxAttempts: in.Retry.MaxAttempts, ScheduleSeconds: in.Retry.ScheduleSeconds}
	}
	return in.Headers, nil
}

func applyCron(spec *v1alpha1.ConnectorSpec, config json.RawMessage) error {
	var in cronConfig
	if err := decodeConfig(config, &in); err != nil {
		return err
	}
	if in.Schedule == "" {
		return invalid(FieldError{Location: "body.config.schedule", Message: "is needed: five fields, or @hourly and the like"})
	}
	spec.Cron = &v1alpha1.CronConnector{Schedule: in.Schedule, Timezone: cmp.Or(in.Timezone, "UTC"), Prompt: in.Prompt}
	if len(in.Payload) > 0 && string(in.Payload) != "null" {
		if in.Payload[0] != '{' {
			return invalid(FieldError{Location: "body.config.payload", Message: "must be an object"})
		}
		spec.Cron.Payload = &runtime.RawExtension{Raw: in.Payload}
	}
	return nil
}

// showConfig is the config in its REST shape, defaults filled in and
// credentials masked.
func (s *Server) showConfig(ctx context.Context, conn *v1alpha1.Connector) (map[string]any, error) {
	if cron := conn.Spec.Cron; cron != nil {
		out := map[string]any{"schedule": cron.Schedule, "timezone": cmp.Or(cron.Timezone, "UTC"), "prompt": cron.Prompt, "payload": nil}
		if cron.Payload != nil {
			out["payload"] = json.RawMessage(cron.Payload.Raw)
		}
		return out, nil
	}
	w := conn.Spec.Webhook
	if w == nil {
		return map[string]any{}, nil
	}
	if conn.Spec.Mode != v1alpha1.ModeOutbound {
		out := map[string]any{"require_authentication": conn.RequiresAuthentication(), "files_required": conn.RequiresFiles()}
		if conn.Spec.Mode == v1alpha1.ModeSync {
			out["timeout_seconds"] = int(conn.Timeout().Seconds())
		}
		return out, nil
	}
	names, err := s.headerNames(ctx, conn)
	if err != nil {
		return nil, err
	}
	headers := map[string]string{}
	for _, name := range names {
		headers[name] = masked
	}
	out := map[string]any{
		"url": w.URL, "headers": headers, "timeout_seconds": int(conn.Timeout().Seconds()), "retry": nil, "bridge": opt(w.Bridge),
	}
	if w.Retry != nil {
		out["retry"] = map[string]any{"max_attempts": w.Retry.MaxAttempts, "schedule_seconds": w.Retry.ScheduleSeconds}
	}
	return out, nil
}

// headerNames are the names of the headers that an outbound webhook sends.
func (s *Server) headerNames(ctx context.Context, conn *v1alpha1.Connector) ([]string, error) {
	ref := conn.Spec.HeadersSecretRef
	if ref == nil {
		return nil, nil
	}
	secret := &corev1.Secret{}
	err := s.client.Get(ctx, client.ObjectKey{Namespace: conn.Namespace, Name: string(ref.Name)}, secret)
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the headers of connector %q: %w", conn.Name, err)
	}
	return slices.Sorted(maps.Keys(secret.Data)), nil
}
