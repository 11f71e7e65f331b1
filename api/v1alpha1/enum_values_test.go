// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// There and back, for every value that the CRDs have.
func TestEnums_HaveStoreValues(t *testing.T) {
	t.Parallel()
	back := map[string]func(value string) (converted, again string){
		"Connector.mode": func(value string) (string, string) {
			converted := v1alpha1.ConnectorMode(value).EnumValue()
			return converted, string(v1alpha1.ConnectorModeOf(converted))
		},
		"Connector.webhook.authentication": func(value string) (string, string) {
			converted := v1alpha1.WebhookAuthentication(value).EnumValue()
			return converted, string(v1alpha1.WebhookAuthenticationOf(converted))
		},
		"Connector.cron.missedTicks": func(value string) (string, string) {
			converted := v1alpha1.MissedTicks(value).EnumValue()
			return converted, string(v1alpha1.MissedTicksOf(converted))
		},
	}
	tried := 0
	for _, crd := range crds(t) {
		walk(crd, func(path string, node apiextensionsv1.JSONSchemaProps) {
			field := crd.Spec.Names.Kind + "." + strings.TrimPrefix(path, ".spec.")
			if back[field] == nil {
				return
			}
			for _, of := range node.Enum {
				value := strings.Trim(string(of.Raw), `"`)
				converted, again := back[field](value)
				require.Equal(t, strings.ToLower(value), strings.ReplaceAll(converted, "_", ""), field)
				require.Equal(t, value, again, "%s: no value is converted from %s", field, converted)
				tried++
			}
		})
	}
	require.Equal(t, 12, tried)
	require.Empty(t, v1alpha1.ConnectorModeOf("Sync"), "enum values are in lower case")
	require.Empty(t, v1alpha1.ConnectorModeOf(""))
}
