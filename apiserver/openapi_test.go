// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// documentOf is the description as a client reads it.
func documentOf(t testing.TB) (document rest.Node, schemas rest.Node) {
	t.Helper()
	text, err := apiserver.Document()
	require.NoError(t, err)
	document = apiservertest.Decode[rest.Node](t, text)
	return document, document["components"].(rest.Node)["schemas"].(rest.Node)
}

// `make generate` writes the file.
func TestDocument_MatchesFile(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	served := w.Send(t, "", http.MethodGet, "/v1/openapi.json", "")
	require.Equal(t, "application/json", served.Header().Get("Content-Type"))
	written, err := os.ReadFile("../docs/openapi.json")
	require.NoError(t, err)
	require.Equal(t, string(written), served.Body.String(), "run make generate")
	asYAML := w.Send(t, "", http.MethodGet, "/v1/openapi.yaml", "")
	text, err := yaml.YAMLToJSON(asYAML.Body.Bytes())
	require.NoError(t, err)
	require.JSONEq(t, string(written), string(text))
}

// The description and the page of the API name the areas of permissions for which this release has no endpoint, and no others.
func TestPermissions_AreasWithoutEndpointsAreNamed(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	for _, r := range apiservertest.SupportedEndpoints(t) {
		for _, g := range r.Permissions {
			used[g.Permission.Area()] = true
		}
	}
	var without, quoted []string
	for _, p := range v1alpha1.Permissions() {
		if area := p.Area(); !used[area] && !slices.Contains(without, area) {
			without, quoted = append(without, area), append(quoted, "`"+area+"`")
		}
	}
	require.NotEmpty(t, without, "all areas have endpoints: remove the note")
	_, schemas := documentOf(t)
	require.Contains(t, schemas["Permission"].(rest.Node)["description"], "no endpoint yet for "+sentence(without)+":")
	page, err := os.ReadFile("../docs/rest-api.md")
	require.NoError(t, err)
	require.Contains(t, strings.Join(strings.Fields(string(page)), " "), "A key can have the permissions of "+sentence(quoted))
}

// Each operation, parameter, object, field and response has a description.
func TestDocument_DescribesEverything(t *testing.T) {
	t.Parallel()
	document, schemas := documentOf(t)
	for _, r := range apiservertest.SupportedEndpoints(t) {
		require.NotEmpty(t, r.Summary, r.ID)
		require.NotEmpty(t, r.Doc, r.ID)
		op := document["paths"].(rest.Node)[rest.PathPrefix+r.Path].(rest.Node)[strings.ToLower(r.Method)].(rest.Node)
		for _, p := range op["parameters"].([]any) {
			require.NotEmpty(t, p.(rest.Node)["description"], "%s: %v", r.ID, p)
		}
		for status, response := range op["responses"].(rest.Node) {
			require.NotEmpty(t, response.(rest.Node)["description"], "%s %s", r.ID, status)
			require.Contains(t, response.(rest.Node)["headers"], "X-Request-Id", "%s %s", r.ID, status)
			if content := response.(rest.Node)["content"].(rest.Node); status >= "400" {
				require.Contains(t, content, httpserver.ProblemType, "%s %s", r.ID, status)
				require.NotEmpty(t, content[httpserver.ProblemType].(rest.Node)["example"], "%s %s", r.ID, status)
			}
		}
	}
	for name, schema := range schemas {
		require.NotEmpty(t, schema.(rest.Node)["description"], name)
		properties, _ := schema.(rest.Node)["properties"].(rest.Node)
		for field, property := range properties {
			require.NotEmpty(t, property.(rest.Node)["description"], "%s.%s", name, field)
		}
	}
}

// Generated clients accept new fields, and no list is null.
func TestDocument_AllowsNewFields(t *testing.T) {
	t.Parallel()
	_, schemas := documentOf(t)
	closed := map[string]bool{}
	for name, schema := range schemas {
		if schema.(rest.Node)["additionalProperties"] == false {
			closed[name] = true
		}
		properties, _ := schema.(rest.Node)["properties"].(rest.Node)
		for field, property := range properties {
			if kinds, ok := property.(rest.Node)["type"].([]any); ok && kinds[0] == "array" {
				require.Equal(t, "Deployment", strings.TrimSuffix(name, "Item"), "%s.%s is a list or null", name, field)
				require.Equal(t, "test_results", field)
			}
		}
	}
	want := map[string]bool{
		"ConnectorCreate": true, "OutboundLinkInput": true, "DeliveryRetryInput": true, "LinkCreate": true, "ConnectorUpdate": true, "LinkUpdate": true, "ReplayCreate": true, "RotateSecret": true,
		"DeploymentCreate": true, "EnvironmentCreate": true, "EnvironmentUpdate": true, "EnvironmentSettingsInput": true, "RunnerSettingsInput": true, "VariableInput": true, "KeyOfInput": true, "TestSessionRequest": true,
	}
	for _, of := range schemas["ConnectorConfigInput"].(rest.Node)["anyOf"].([]any) { // one per kind
		want[strings.TrimPrefix(of.(rest.Node)["$ref"].(string), rest.SchemaPrefix)] = true
	}
	require.Equal(t, want, closed, "requests are held to their fields, answers are not")
}

// Each enumeration is a named schema.
func TestDocument_NamesEnumerations(t *testing.T) {
	t.Parallel()
	document, schemas := documentOf(t)
	for _, name := range []string{"RunStatus", "ConnectorRunStatus", "DeploymentStatus", "ConnectorType", "ConnectorMode", "TriggerType", "Permission"} {
		require.NotEmpty(t, schemas[name].(rest.Node)["enum"], name)
	}
	var inline []string
	var walk func(at string, part any)
	walk = func(at string, part any) {
		switch part := part.(type) {
		case rest.Node:
			if _, there := part["enum"]; there {
				inline = append(inline, at)
			}
			for name, inner := range part {
				walk(at+"/"+name, inner)
			}
		case []any:
			for _, inner := range part {
				walk(at, inner)
			}
		}
	}
	walk("", document["paths"])
	for name, schema := range schemas {
		walk(name, schema.(rest.Node)["properties"])
	}
	require.Empty(t, inline)
}

// The description includes permissions that a parameter or a field requires.
func TestDocument_DescribesConditionalPermissions(t *testing.T) {
	t.Parallel()
	document, _ := documentOf(t)
	op := document["paths"].(rest.Node)[rest.PathPrefix+"/connectors"].(rest.Node)["post"].(rest.Node)
	require.Equal(t, "connectors.create", op["x-permission"])
	require.Equal(t, []any{"connectors.link"}, op["x-permission-with-agent_name"])
	op = document["paths"].(rest.Node)[rest.PathPrefix+"/environments"].(rest.Node)["post"].(rest.Node)
	require.Equal(t, []any{"variables.view", "variables.create"}, op["x-permission-with-copy_from_environment_id"])
}

// The served document has the public URL of the gateway.
func TestServer_ServesWebhookDocument(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	served := w.Send(t, "", http.MethodGet, "/v1/webhooks.json", "")
	require.Equal(t, http.StatusOK, served.Code)
	require.Equal(t, "application/json", served.Header().Get("Content-Type"))
	require.Contains(t, served.Body.String(), `"`+apiservertest.GatewayURL+`"`)
}

// sentence joins at least two words: a, b and c.
func sentence(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " and " + words[last]
}
