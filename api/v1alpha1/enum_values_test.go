// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// The CRD has all modes, and each converts to its enum value and back.
func TestConnectorModes_ConvertBothWays(t *testing.T) {
	t.Parallel()
	var modes []v1alpha1.ConnectorMode
	for _, crd := range crds(t) {
		walk(crd, func(path string, node apiextensionsv1.JSONSchemaProps) {
			if crd.Spec.Names.Kind != "Connector" || path != ".spec.mode" {
				return
			}
			for _, of := range node.Enum {
				modes = append(modes, v1alpha1.ConnectorMode(strings.Trim(string(of.Raw), `"`)))
			}
		})
	}
	require.Equal(t, v1alpha1.ConnectorModes, modes)
	for _, mode := range modes {
		t.Run(string(mode), func(t *testing.T) {
			require.Equal(t, strings.ToLower(string(mode)), mode.EnumValue())
			require.Equal(t, mode, v1alpha1.ConnectorModeOf(mode.EnumValue()))
		})
	}
	require.Empty(t, v1alpha1.ConnectorModeOf("Sync"), "enum values are in lower case")
	require.Empty(t, v1alpha1.ConnectorModeOf(""))
}
