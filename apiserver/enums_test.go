// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/rest"
)

// constantsOf are the values of all constants of a type in the sources of a package.
func constantsOf(t *testing.T, dir, typeName string) (values []string) {
	t.Helper()
	packages, err := parser.ParseDir(token.NewFileSet(), dir, nil, 0) //nolint:staticcheck // build tags do not matter here
	require.NoError(t, err)
	for _, p := range packages {
		ast.Inspect(p, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			if named, ok := spec.Type.(*ast.Ident); ok && named.Name == typeName && len(spec.Values) == 1 {
				if literal, ok := spec.Values[0].(*ast.BasicLit); ok {
					text, err := strconv.Unquote(literal.Value)
					require.NoError(t, err)
					values = append(values, text)
				}
			}
			return true
		})
	}
	require.NotEmpty(t, values, typeName)
	slices.Sort(values)
	return slices.Compact(values)
}

// Each value of the store is described.
func TestEnumerations_MatchStore(t *testing.T) {
	t.Parallel()
	_, schemas := documentOf(t)
	for name, typeName := range map[string]string{
		"RunStatus": "RunStatus", "ConnectorRunStatus": "ConnectorRunStatus", "DeploymentStatus": "DeploymentStatus",
		"DeploymentPhase": "DeploymentPhase", "FailureReason": "FailureReason", "TriggerType": "TriggerType",
		"AuditActorKind": "AuditActorKind",
	} {
		t.Run(name, func(t *testing.T) {
			var described []string
			for _, v := range schemas[name].(rest.Node)["enum"].([]any) {
				described = append(described, v.(string))
			}
			slices.Sort(described)
			require.Equal(t, constantsOf(t, "../store", typeName), described)
		})
	}
}

// Values convert in both directions.
func TestEnumerations_MatchKubernetes(t *testing.T) {
	t.Parallel()
	_, schemas := documentOf(t)
	for _, value := range schemas["ConnectorMode"].(rest.Node)["enum"].([]any) {
		mode := v1alpha1.ConnectorModeOf(value.(string))
		require.NotEmpty(t, mode, value)
		require.Equal(t, value, mode.EnumValue())
	}
	for _, kind := range []v1alpha1.EnvironmentKind{v1alpha1.EnvironmentStandard, v1alpha1.EnvironmentTest} {
		require.Contains(t, schemas["EnvironmentKind"].(rest.Node)["enum"], kind.EnumValue())
	}
	var permissions []any
	for _, p := range v1alpha1.Permissions() {
		permissions = append(permissions, string(p))
	}
	require.Equal(t, permissions, schemas["Permission"].(rest.Node)["enum"])
}
