// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/openapi/openapitest"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/jsonschema"
)

// Agents can call the operations of a public description that another project writes: the API of Kubernetes. Operations
// whose body is a complete workload have too many parameters, and a wildcard leaves them out.
func TestParse_PublicOpenAPI(t *testing.T) {
	t.Parallel()
	paths, err := openapitest.NewEmbeddedFileClient().Paths()
	require.NoError(t, err)
	for name, wildcardError := range map[string]string{"apis/batch/v1": "", "apis/apps/v1": "", "apis/discovery.k8s.io/v1": ""} {
		t.Run(name, func(t *testing.T) {
			document, err := paths[name].Schema("application/json")
			require.NoError(t, err)
			for reference, minimum := range map[string]int{"api:k8s.list*": 2, "api:k8s.read*": 1, "api:k8s.delete*": 2, "api:k8s.patch*": 1} {
				t.Run(reference, func(t *testing.T) {
					files := toolRepository("['"+reference+"']\napis: {k8s: {base_url: https://k8s.example, auth: {bearer: '${TOKEN}'}}}", "apis/k8s.json", string(document))
					p, err := bundle.Parse(files)
					require.NoError(t, err)
					tools := p.HTTPTools(reference)
					require.GreaterOrEqual(t, len(tools), minimum, reference)
					for _, tool := range tools {
						require.LessOrEqual(t, len(tool.Name), 64)
						require.NotEmpty(t, tool.Description)
						_, err := jsonschema.Compile(tool.Parameters)
						require.NoError(t, err, tool.Reference)
					}
				})
			}
			_, err = bundle.Parse(toolRepository("['api:k8s.*']\napis: {k8s: {base_url: https://k8s.example}}", "apis/k8s.json", string(document)))
			if wildcardError != "" {
				require.ErrorContains(t, err, wildcardError)
			} else {
				require.NoError(t, err)
			}
		})
	}
}
