// SPDX-License-Identifier: Apache-2.0

// Package crd converts the settings of connectors from and to the fields of Connector and ConnectorLink
// objects.
package crd

import (
	"bytes"
	"encoding/json"
	"maps"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/connector"
)

// KindOf returns the kind of a connector.
func KindOf(c *v1alpha1.Connector) connector.Kind {
	return connector.KindOf(string(c.Type()), c.Spec.Mode.EnumValue())
}

// HasSecret reports whether a connector has a secret, for callers or for signatures.
func HasSecret(c *v1alpha1.Connector) bool {
	kind := KindOf(c)
	return kind.Sends() || connector.Config{Authentication: c.Authentication().EnumValue()}.RequiresAuthentication(kind)
}

// GeneratesSecret reports whether the platform generates the secret of a connector.
func GeneratesSecret(c *v1alpha1.Connector) bool {
	return HasSecret(c) && c.Spec.SecretRef == nil && c.SealedSecret() == ""
}

// ConfigOf returns the settings of a connector, without sealed values.
func ConfigOf(c *v1alpha1.Connector) (out connector.Config) {
	if spec := c.Spec.Cron; spec != nil {
		out = connector.Config{Schedule: spec.Schedule, Timezone: spec.TimeZone, MissedTicks: spec.MissedTicks.EnumValue(), Prompt: spec.Prompt}
		if spec.Payload != nil {
			out.Payload = CanonicalJSON(spec.Payload.Raw)
		}
		return out
	}
	w := c.Spec.Webhook
	if w == nil {
		return out
	}
	out.TimeoutSeconds = convertPointer[int](w.TimeoutSeconds)
	if c.Sends() {
		out.URL, out.Headers = w.URL, maps.Clone(w.Headers)
		if w.Retry != nil {
			out.Retry = &connector.Retry{
				MaxAttempts: convertPointer[int](w.Retry.MaxAttempts), ScheduleSeconds: convertNumbers[int](w.Retry.ScheduleSeconds),
			}
		}
		return out
	}
	out.Authentication = c.Authentication().EnumValue()
	for _, name := range w.ContextHeaders {
		out.ContextHeaders = append(out.ContextHeaders, string(name))
	}
	out.RequireAuthentication = ptr.To(out.RequiresAuthentication(KindOf(c)))
	if w.FilesRequired {
		out.FilesRequired = ptr.To(true)
	}
	return out
}

// SetConfig writes the settings of a kind into the spec of a connector, with the defaults of kube-apiserver.
func SetConfig(spec *v1alpha1.ConnectorSpec, kind connector.Kind, config connector.Config) {
	if kind == connector.Cron {
		config = config.WithDefaults(kind)
		spec.Cron = &v1alpha1.CronConnector{
			Schedule: config.Schedule, TimeZone: config.Timezone, MissedTicks: v1alpha1.MissedTicksOf(config.MissedTicks), Prompt: config.Prompt,
		}
		if string(config.Payload) != "{}" && string(config.Payload) != "null" {
			spec.Cron.Payload = &runtime.RawExtension{Raw: bytes.Clone(config.Payload)}
		}
		return
	}
	w := &v1alpha1.WebhookConnector{
		Authentication: v1alpha1.AuthenticationSecret, TimeoutSeconds: convertPointer[int32](config.TimeoutSeconds),
		FilesRequired: ptr.Deref(config.FilesRequired, false), URL: config.URL, Headers: maps.Clone(config.Headers),
	}
	if r := config.Retry; r != nil {
		w.Retry = &v1alpha1.DeliveryRetry{
			MaxAttempts: convertPointer[int32](r.MaxAttempts), ScheduleSeconds: convertNumbers[int32](r.ScheduleSeconds),
		}
	}
	if kind.HasCallers() {
		w.Authentication = v1alpha1.WebhookAuthenticationOf(config.WithDefaults(kind).Authentication)
	}
	for _, name := range config.ContextHeaders {
		w.ContextHeaders = append(w.ContextHeaders, v1alpha1.HeaderName(name))
	}
	spec.Webhook = w
}

// OutboundLink returns the fields of a link with these settings, whose source connectors are names of objects.
func OutboundLink(policy connector.Policy) *v1alpha1.OutboundLink {
	out := &v1alpha1.OutboundLink{Mode: v1alpha1.LinkAutomatic, ActionName: v1alpha1.ActionName(policy.ActionName)}
	if policy.Mode != "" {
		out.Mode = v1alpha1.LinkModeOf(policy.Mode)
	}
	for _, name := range policy.SourceConnectors {
		out.SourceConnectors = append(out.SourceConnectors, v1alpha1.ConnectorName(name))
	}
	for _, status := range policy.Statuses {
		out.Statuses = append(out.Statuses, v1alpha1.LinkStatusOf(status))
	}
	return out
}

// FieldName returns the name of a setting in the spec of a connector.
func FieldName(setting string) string {
	if setting == "timezone" {
		return "timeZone"
	}
	words := strings.Split(setting, "_")
	for i, word := range words[1:] {
		words[i+1] = strings.ToUpper(word[:1]) + word[1:]
	}
	return strings.Join(words, "")
}

// convertPointer converts a number whose bounds the settings' tags keep within 32 bits.
func convertPointer[To, From int | int32](n *From) *To {
	if n == nil {
		return nil
	}
	return ptr.To(To(*n))
}

func convertNumbers[To, From int | int32](numbers []From) (out []To) {
	for _, n := range numbers {
		out = append(out, To(n))
	}
	return out
}

// CanonicalJSON returns a JSON document with sorted keys, without spaces and without escapes that only HTML needs, because
// kube-apiserver does not keep the format of documents.
func CanonicalJSON(document []byte) []byte {
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	var value any
	if decoder.Decode(&value) != nil {
		return document
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if encoder.Encode(value) != nil {
		return document
	}
	return bytes.TrimRight(out.Bytes(), "\n")
}
