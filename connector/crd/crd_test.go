// SPDX-License-Identifier: Apache-2.0

package crd_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/connector"
	"github.com/agentplatform/agentplatform/connector/crd"
)

// kube-apiserver escapes <, > and & in a payload. The escapes do not count in the size of a tick's input.
func TestConfigOf_RemovesHTMLEscapesOfPayload(t *testing.T) {
	t.Parallel()
	raw := `{"b":1,"a":"` + strings.Repeat(`\u003c`, 11_000) + `"}`
	c := &v1alpha1.Connector{Spec: v1alpha1.ConnectorSpec{Cron: &v1alpha1.CronConnector{Schedule: "@daily", Payload: &runtime.RawExtension{Raw: []byte(raw)}}}}
	config := crd.ConfigOf(c)
	require.Equal(t, `{"a":"`+strings.Repeat("<", 11_000)+`","b":1}`, string(config.Payload))
	require.Empty(t, connector.Cron.Check(config))
}

// Settings are the same after a conversion to fields of an object and back.
func TestSetConfig_KeepsSettings(t *testing.T) {
	t.Parallel()
	number, yes := 7, true
	for _, c := range []struct {
		kind   connector.Kind
		mode   v1alpha1.ConnectorMode
		config connector.Config
	}{
		{connector.Inbound, v1alpha1.ModeInbound, connector.Config{Authentication: "standard_webhooks", RequireAuthentication: &yes, ContextHeaders: []string{"X-A"}, FilesRequired: &yes}},
		{connector.Sync, v1alpha1.ModeSync, connector.Config{Authentication: "secret", RequireAuthentication: &yes, TimeoutSeconds: &number}},
		{connector.Outbound, v1alpha1.ModeOutbound, connector.Config{
			URL: "https://example.com", Headers: map[string]string{"X-A": "b"}, TimeoutSeconds: &number,
			Retry: &connector.Retry{MaxAttempts: &number, ScheduleSeconds: []int{0, 5}},
		}},
		{connector.Cron, v1alpha1.ModeInbound, connector.Config{
			Schedule: "@daily", Timezone: "Europe/Paris", MissedTicks: "latest", Prompt: "Go", Payload: []byte(`{"a":1}`),
		}},
	} {
		t.Run(string(c.kind), func(t *testing.T) {
			conn := &v1alpha1.Connector{Spec: v1alpha1.ConnectorSpec{Mode: c.mode}}
			crd.SetConfig(&conn.Spec, c.kind, c.config)
			require.Equal(t, c.kind, crd.KindOf(conn))
			require.Equal(t, c.config, crd.ConfigOf(conn))
		})
	}
}

// Each enum value is the same after a conversion to an object and back.
func TestSetConfig_KeepsEnumValues(t *testing.T) {
	t.Parallel()
	for _, kind := range connector.Kinds() {
		for _, f := range kind.Fields() {
			for _, value := range f.Enum {
				t.Run(string(kind)+" "+f.Name+" "+value, func(t *testing.T) {
					var config connector.Config
					f.In(&config).SetString(value)
					conn := &v1alpha1.Connector{Spec: v1alpha1.ConnectorSpec{Mode: v1alpha1.ConnectorModeOf(kind.Mode())}}
					crd.SetConfig(&conn.Spec, kind, config)
					config = crd.ConfigOf(conn)
					require.Equal(t, value, f.In(&config).String())
				})
			}
		}
	}
}

// A later release may have more values. This one must not read them as missing.
func TestConfigOf_RejectsUnknownEnumValues(t *testing.T) {
	t.Parallel()
	c := &v1alpha1.Connector{Spec: v1alpha1.ConnectorSpec{Cron: &v1alpha1.CronConnector{Schedule: "@daily", MissedTicks: "All"}}}
	require.Equal(t, []connector.FieldError{{Field: "missed_ticks", Problem: "must be skip or latest"}}, connector.Cron.Check(crd.ConfigOf(c)))
}

// Connectors with callers that authenticate have a secret, and connectors that sign what they send. The platform generates the
// secret unless the user has one.
func TestHasSecret_OfEachKind(t *testing.T) {
	t.Parallel()
	own := &v1alpha1.WebhookConnector{SealedSecret: "sealed"}
	for name, c := range map[string]struct {
		spec           v1alpha1.ConnectorSpec
		has, generates bool
	}{
		"inbound":           {v1alpha1.ConnectorSpec{Mode: v1alpha1.ModeInbound}, true, true},
		"signed by Stripe":  {v1alpha1.ConnectorSpec{Mode: v1alpha1.ModeSync, Webhook: &v1alpha1.WebhookConnector{Authentication: v1alpha1.AuthenticationStripe}}, true, true},
		"no authentication": {v1alpha1.ConnectorSpec{Mode: v1alpha1.ModeSync, Webhook: &v1alpha1.WebhookConnector{Authentication: v1alpha1.AuthenticationNone}}, false, false},
		"outbound":          {v1alpha1.ConnectorSpec{Mode: v1alpha1.ModeOutbound, Webhook: &v1alpha1.WebhookConnector{}}, true, true},
		"cron":              {v1alpha1.ConnectorSpec{Mode: v1alpha1.ModeInbound, Cron: &v1alpha1.CronConnector{}}, false, false},
		"sealed secret":     {v1alpha1.ConnectorSpec{Mode: v1alpha1.ModeInbound, Webhook: own}, true, false},
		"secret of a user":  {v1alpha1.ConnectorSpec{Mode: v1alpha1.ModeInbound, SecretRef: &v1alpha1.SecretReference{Name: "own"}}, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			conn := &v1alpha1.Connector{Spec: c.spec}
			require.Equal(t, c.has, crd.HasSecret(conn))
			require.Equal(t, c.generates, crd.GeneratesSecret(conn))
		})
	}
}
