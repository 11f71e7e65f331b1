// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/connector"
	"github.com/agentplatform/agentplatform/connector/crd"
)

// Each setting of a connector has a field in the CRD, with the same bounds, and the CRD has no others.
func TestConnectorConfig_AgreesWithCRD(t *testing.T) {
	t.Parallel()
	spec := crdConnector(t)
	named := map[string][]string{connector.TypeWebhook: {"sealedSecret", "sealedHeaders"}} // the REST API's own
	for _, kind := range connector.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			parent := kind.Type()
			for _, f := range kind.Fields() {
				name := crd.FieldName(f.Name)
				if f.Name == "require_authentication" {
					name = "authentication" // the value None
				}
				require.Contains(t, spec.Properties[parent].Properties, name)
				named[parent] = append(named[parent], name)
				requireBounds(t, f, spec.Properties[parent].Properties[name])
			}
		})
	}
	retry := spec.Properties["webhook"].Properties["retry"].Properties
	for _, f := range connector.RetryFields() {
		t.Run("retry."+f.Name, func(t *testing.T) { requireBounds(t, f, retry[crd.FieldName(f.Name)]) })
	}
	require.Len(t, retry, len(connector.RetryFields()))
	for parent, names := range named {
		t.Run(parent+" has no other fields", func(t *testing.T) {
			require.Subset(t, names, slices.Collect(maps.Keys(spec.Properties[parent].Properties)))
		})
	}
}

// requireBounds compares the bounds of a setting with those of its field in the CRD. The CRD has one bound for all modes.
func requireBounds(t *testing.T, f connector.Field, field apiextensionsv1.JSONSchemaProps) {
	t.Helper()
	if f.Min > 0 {
		require.EqualValues(t, f.Min, *field.Minimum, f.Name)
		require.GreaterOrEqual(t, *field.Maximum, float64(f.Max), f.Name)
	}
	if f.MaxLength > 0 {
		require.EqualValues(t, f.MaxLength, *field.MaxLength, f.Name)
	}
	if f.MaxItems > 0 {
		require.EqualValues(t, f.MaxItems, *field.MaxItems, f.Name)
	}
	if f.Enum != nil {
		var inCRD []string
		for _, value := range field.Enum {
			inCRD = append(inCRD, strings.Trim(string(value.Raw), `"`))
		}
		var converted []string
		for _, value := range f.Enum {
			converted = append(converted, crd.EnumName(value))
		}
		require.ElementsMatch(t, converted, inCRD, f.Name)
	}
}

// A timeout has the same limits in a repository's file. The test tries a file at and beyond each limit.
func TestTimeout_AgreesBetweenForms(t *testing.T) {
	t.Parallel()
	field := crdConnector(t).Properties["webhook"].Properties["timeoutSeconds"]
	for seconds, valid := range map[float64]bool{
		*field.Minimum - 1: false, *field.Minimum: true, *field.Maximum: true, *field.Maximum + 1: false,
	} {
		t.Run(fmt.Sprint(seconds), func(t *testing.T) {
			err := inRepository("sync", fmt.Sprintf("timeout_seconds: %v", seconds))
			require.Equal(t, valid, err == nil, "%v seconds in a repository: %v", seconds, err)
		})
	}
}

// crdConnector returns the schema of a connector's spec.
func crdConnector(t *testing.T) apiextensionsv1.JSONSchemaProps {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../config/crd/bases", "agentplatform.dev_connectors.yaml"))
	require.NoError(t, err)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	require.NoError(t, yaml.UnmarshalStrict(text, crd))
	return crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"]
}

func crdWebhook(t *testing.T) apiextensionsv1.JSONSchemaProps {
	t.Helper()
	return crdConnector(t).Properties["webhook"]
}

// inRepository returns the validation error of a connector in a repository.
func inRepository(mode, config string) error {
	_, err := bundle.Parse(bundle.Files{
		"agents/a.yaml":     []byte("version: \"1.0\"\nname: a\ntype: llm\nmodel: openai/x\nsystem_prompt: x\n"),
		"connectors/c.yaml": []byte("type: webhook\nmode: " + mode + "\nagents: [a]\nconfig: {" + config + "}\n"),
	})
	return err
}
