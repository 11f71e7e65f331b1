// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/agentplatform/agentplatform/bundle"
)

// TestAConnectorsConfigurationIsTheSameEverywhere: the CRD, the REST API and the
// files of a repository take the same values for the same field of a webhook.
func TestAConnectorsConfigurationIsTheSameEverywhere(t *testing.T) {
	t.Parallel()
	rest, crd := restConfig(t, "SyncConfigInput"), crdWebhook(t)
	var fields []string
	for name := range rest.Properties {
		fields = append(fields, name)
	}
	slices.Sort(fields)
	require.Equal(t, []string{"authentication", "files_required", "require_authentication", "timeout_seconds"}, fields)

	timeout, inCRD := rest.Properties["timeout_seconds"], crd.Properties["timeoutSeconds"]
	require.Equal(t, *inCRD.Minimum, timeout.Minimum)
	require.Equal(t, *inCRD.Maximum, timeout.Maximum)
	for seconds, valid := range map[float64]bool{
		timeout.Minimum - 1: false, timeout.Minimum: true, timeout.Maximum: true, timeout.Maximum + 1: false,
	} {
		require.Equal(t, valid, inRepository("sync", fmt.Sprintf("timeout_seconds: %v", seconds)) == nil, "%v seconds in a repository", seconds)
	}
	require.NotContains(t, restConfig(t, "InboundConfigInput").Properties, "timeout_seconds", "an inbound webhook answers at once")
	require.ErrorContains(t, inRepository("inbound", "timeout_seconds: 30"), "timeout_seconds")
	for _, field := range []string{"require_authentication", "files_required"} {
		require.NoError(t, inRepository("sync", field+": true"), field)
	}
}

// schema is as much as this test reads of an OpenAPI schema.
type schema struct {
	Properties       map[string]schema
	Minimum, Maximum float64
}

func restConfig(t *testing.T, name string) schema {
	t.Helper()
	text, err := os.ReadFile("../../docs/openapi.json")
	require.NoError(t, err)
	var document struct {
		Components struct{ Schemas map[string]schema }
	}
	require.NoError(t, json.Unmarshal(text, &document))
	require.Contains(t, document.Components.Schemas, name)
	return document.Components.Schemas[name]
}

func crdWebhook(t *testing.T) apiextensionsv1.JSONSchemaProps {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../config/crd/bases", "agentplatform.dev_connectors.yaml"))
	require.NoError(t, err)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	require.NoError(t, yaml.UnmarshalStrict(text, crd))
	return crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["webhook"]
}

// inRepository says what is wrong with a connector of a repository.
func inRepository(mode, config string) error {
	_, err := bundle.Parse(bundle.Files{
		"agents/a.yaml":     []byte("version: \"1.0\"\nname: a\ntype: llm\nmodel: openai/x\nsystem_prompt: x\n"),
		"connectors/c.yaml": []byte("type: webhook\nmode: " + mode + "\nagents: [a]\nconfig: {" + config + "}\n"),
	})
	return err
}
