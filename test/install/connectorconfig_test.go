// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/agentplatform/agentplatform/apiserver/connectors"
	"github.com/agentplatform/agentplatform/bundle"
)

// crdFields are the fields of a webhook in the CRD by their names in the REST API,
// which has more than one name for some.
var crdFields = map[string][]string{
	"authentication":         {"authentication"},
	"require_authentication": {"authentication"},
	"timeout_seconds":        {"timeoutSeconds"},
	"files_required":         {"filesRequired"},
	"context_headers":        {"contextHeaders"},
	"secret":                 {"sealedSecret"},
	"url":                    {"url"},
	"headers":                {"sealedHeaders", "headers"}, // of the REST API, and of files
	"headers_secret":         {},                           // spec.headersSecretRef beside it
	"retry":                  {"retry"},
}

// notInRepository are the fields of the REST API, by mode, that files of a repository do
// not have yet.
var notInRepository = map[string][]string{"inbound": {"secret"}, "sync": {"secret"}, "outbound": {"headers_secret"}}

// The CRD, the REST API and the
// files of a repository have the same fields of a webhook, each for the same modes.
func TestConnectorConfig_AgreesBetweenForms(t *testing.T) {
	t.Parallel()
	crd, named := crdWebhook(t), map[string]bool{}
	for mode, input := range map[string]reflect.Type{
		"inbound": reflect.TypeFor[connectors.InboundConfigInput](), "sync": reflect.TypeFor[connectors.SyncConfigInput](),
		"outbound": reflect.TypeFor[connectors.OutboundConfigInput](),
	} {
		t.Run(mode, func(t *testing.T) {
			fields := tagged(input, "json")
			require.ElementsMatch(t, fields, slices.Collect(maps.Keys(restConfig(t, input.Name()).Properties)), "what is described")
			for _, field := range fields {
				require.Contains(t, crdFields, field, "how does the CRD name it?")
				for _, name := range crdFields[field] {
					named[name] = true
				}
			}
			var inFiles []string
			for _, key := range tagged(reflect.TypeFor[bundle.ConnectorConfig](), "yaml") {
				if takes(mode, key) {
					inFiles = append(inFiles, key)
				}
			}
			require.ElementsMatch(t, fields, slices.Concat(inFiles, notInRepository[mode]), "what files of a repository take")
		})
	}
	for field := range crd.Properties {
		require.True(t, named[field], "the REST API has no name for %s", field)
	}
	require.Len(t, crd.Properties, len(named), "the CRD has every field")
}

// The CRD, the REST API and the files of a
// repository have the same fields of a cron connector.
func TestCronConfig_AgreesBetweenForms(t *testing.T) {
	t.Parallel()
	fields := tagged(reflect.TypeFor[connectors.CronConfigInput](), "json")
	require.ElementsMatch(t, fields, slices.Collect(maps.Keys(restConfig(t, "CronConfigInput").Properties)))
	require.ElementsMatch(t, fields, slices.Collect(maps.Keys(restConfig(t, "CronConfig").Properties)))
	var inFiles, inCRD []string
	for _, key := range tagged(reflect.TypeFor[bundle.ConnectorConfig](), "yaml") {
		if _, err := bundle.Parse(bundle.Files{
			"agents/a.yaml":     []byte("version: \"1.0\"\nname: a\ntype: llm\nmodel: openai/x\nsystem_prompt: x\n"),
			"connectors/c.yaml": []byte("type: cron\nagents: [a]\nconfig: {schedule: '@daily', " + key + ": " + cronValues[key] + "}\n"),
		}); err == nil || key == "schedule" {
			inFiles = append(inFiles, key)
		}
	}
	require.ElementsMatch(t, fields, inFiles)
	for field := range crdConnector(t).Properties["cron"].Properties {
		inCRD = append(inCRD, field)
	}
	require.ElementsMatch(t, []string{"schedule", "timeZone", "missedTicks", "prompt", "payload"}, inCRD)
	require.Len(t, fields, len(inCRD))
}

// cronValues are values that fit; other keys have none that does.
var cronValues = map[string]string{"timezone": "UTC", "missed_ticks": "latest", "prompt": "Go", "payload": "{a: 1}"}

// A timeout has the same limits in the CRD and in a repository's file. The test tries a file at and beyond each limit.
func TestTimeout_AgreesBetweenForms(t *testing.T) {
	t.Parallel()
	rest, crd := restConfig(t, "SyncConfigInput").Properties["timeout_seconds"], crdWebhook(t).Properties["timeoutSeconds"]
	require.Equal(t, *crd.Minimum, rest.Minimum)
	require.Equal(t, *crd.Maximum, rest.Maximum)
	for seconds, valid := range map[float64]bool{
		*crd.Minimum - 1: false, *crd.Minimum: true, *crd.Maximum: true, *crd.Maximum + 1: false,
	} {
		t.Run(fmt.Sprint(seconds), func(t *testing.T) {
			require.Equal(t, valid, inRepository("sync", fmt.Sprintf("timeout_seconds: %v", seconds)) == nil, "%v seconds in a repository", seconds)
		})
	}
}

// tagged returns the names of a struct's fields, including the fields of nested structs.
func tagged(of reflect.Type, tag string) (names []string) {
	for i := range of.NumField() {
		field := of.Field(i)
		if field.Anonymous {
			names = append(names, tagged(field.Type, tag)...)
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get(tag), ",")
		names = append(names, name)
	}
	return names
}

// takes reports whether a connector of a mode may have a key in a repository's file, regardless of the value.
func takes(mode, key string) bool {
	for _, value := range []string{"true", "1", "a", "{}", "https://example.com", "github", "[a]"} {
		if inRepository(mode, key+": "+value) == nil {
			return true
		}
	}
	return false
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
	return crdConnector(t).Properties["webhook"]
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

// inRepository returns the validation error of a connector in a repository.
func inRepository(mode, config string) error {
	if mode == "outbound" && !strings.HasPrefix(config, "url:") {
		config += ", url: https://example.com" // without which there is none
	}
	_, err := bundle.Parse(bundle.Files{
		"agents/a.yaml":     []byte("version: \"1.0\"\nname: a\ntype: llm\nmodel: openai/x\nsystem_prompt: x\n"),
		"connectors/c.yaml": []byte("type: webhook\nmode: " + mode + "\nagents: [a]\nconfig: {" + config + "}\n"),
	})
	return err
}
