// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/webhookapi"
)

// described is the description as a client reads it.
func described(t testing.TB) (document node, schemas node) {
	t.Helper()
	text, err := Document()
	require.NoError(t, err)
	document = decode[node](t, text)
	return document, document["components"].(node)["schemas"].(node)
}

// TestTheDescriptionIsThatOfTheRepository: `make generate` writes it.
func TestTheDescriptionIsThatOfTheRepository(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	served := w.send(t, "", http.MethodGet, "/v1/openapi.json", "")
	require.Equal(t, "application/json", served.Header().Get("Content-Type"))
	written, err := os.ReadFile("../docs/openapi.json")
	require.NoError(t, err)
	require.Equal(t, string(written), served.Body.String(), "run make generate")
	asYAML := w.send(t, "", http.MethodGet, "/v1/openapi.yaml", "")
	text, err := yaml.YAMLToJSON(asYAML.Body.Bytes())
	require.NoError(t, err)
	require.JSONEq(t, string(written), string(text))
}

// The description and the pages name the areas of permissions for which this release has no endpoint, and no others.
func TestPermissions_AreasWithoutEndpointsAreNamed(t *testing.T) {
	t.Parallel()
	used := map[string]bool{}
	for _, r := range served(t) {
		for _, g := range r.needs {
			used[permissionArea(g.permission)] = true
		}
	}
	var without, quoted []string
	for _, p := range v1alpha1.Permissions() {
		if area := permissionArea(string(p)); !used[area] && !slices.Contains(without, area) {
			without, quoted = append(without, area), append(quoted, "`"+area+"`")
		}
	}
	require.NotEmpty(t, without, "all areas have endpoints: remove the note")
	_, schemas := described(t)
	require.Contains(t, schemas["Permission"].(node)["description"], "no endpoint yet for "+listAnd(without)+":")
	for page, beginning := range map[string]string{
		"../docs/rest-api.md": "A key can have the permissions of ", "../docs/spec/apikey.md": "The permissions of ",
	} {
		t.Run(page, func(t *testing.T) {
			text, err := os.ReadFile(page)
			require.NoError(t, err)
			require.Contains(t, strings.Join(strings.Fields(string(text)), " "), beginning+listAnd(quoted))
		})
	}
}

// TestEverythingIsDescribed: every operation, parameter, object, field and answer.
func TestEverythingIsDescribed(t *testing.T) {
	t.Parallel()
	document, schemas := described(t)
	for _, r := range served(t) {
		require.NotEmpty(t, r.summary, r.id)
		require.NotEmpty(t, r.description, r.id)
		op := document["paths"].(node)[projectPath+r.path].(node)[strings.ToLower(r.method)].(node)
		for _, p := range op["parameters"].([]any) {
			require.NotEmpty(t, p.(node)["description"], "%s: %v", r.id, p)
		}
		for status, response := range op["responses"].(node) {
			require.NotEmpty(t, response.(node)["description"], "%s %s", r.id, status)
			require.Contains(t, response.(node)["headers"], "X-Request-Id", "%s %s", r.id, status)
			if content := response.(node)["content"].(node); status >= "400" {
				require.Contains(t, content, httpserver.ProblemType, "%s %s", r.id, status)
				require.NotEmpty(t, content[httpserver.ProblemType].(node)["example"], "%s %s", r.id, status)
			}
		}
	}
	for name, schema := range schemas {
		require.NotEmpty(t, schema.(node)["description"], name)
		properties, _ := schema.(node)["properties"].(node)
		for field, property := range properties {
			require.NotEmpty(t, property.(node)["description"], "%s.%s", name, field)
		}
	}
	for name := range aboutSchemas {
		require.Contains(t, schemas, name)
	}
}

// TestAnswersMayGrow: a client that is held to the description bears fields that are
// new, and no list is ever null.
func TestAnswersMayGrow(t *testing.T) {
	t.Parallel()
	_, schemas := described(t)
	closed := map[string]bool{}
	for name, schema := range schemas {
		if schema.(node)["additionalProperties"] == false {
			closed[name] = true
		}
		properties, _ := schema.(node)["properties"].(node)
		for field, property := range properties {
			if kinds, ok := property.(node)["type"].([]any); ok && kinds[0] == "array" {
				require.Equal(t, "Deployment", strings.TrimSuffix(name, "Item"), "%s.%s is a list or null", name, field)
				require.Equal(t, "test_results", field)
			}
		}
	}
	require.Equal(t, map[string]bool{
		"ConnectorCreate": true, "CronConfigInput": true, "InboundConfigInput": true, "SyncConfigInput": true, "OutboundConfigInput": true, "OutboundLinkInput": true, "DeliveryRetryInput": true, "LinkCreate": true, "ConnectorUpdate": true, "LinkUpdate": true, "ReplayCreate": true, "RotateSecret": true,
		"DeploymentCreate": true, "EnvironmentCreate": true, "EnvironmentUpdate": true, "EnvironmentSettingsInput": true, "RunnerSettingsInput": true, "VariableInput": true, "KeyOfInput": true, "TestSessionRequest": true,
	}, closed, "requests are held to their fields, answers are not")
}

// TestEnumerationsAreNamed: wherever a value is one of a few, by reference.
func TestEnumerationsAreNamed(t *testing.T) {
	t.Parallel()
	document, schemas := described(t)
	for _, name := range []string{"RunStatus", "ConnectorRunStatus", "DeploymentStatus", "ConnectorType", "ConnectorMode", "TriggerType", "Permission"} {
		require.NotEmpty(t, schemas[name].(node)["enum"], name)
	}
	var inline []string
	var walk func(at string, part any)
	walk = func(at string, part any) {
		switch part := part.(type) {
		case node:
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
		walk(name, schema.(node)["properties"])
	}
	require.Empty(t, inline)
}

// TestEveryPermissionOfARouteIsDescribed: also those that a parameter or a field asks for.
func TestEveryPermissionOfARouteIsDescribed(t *testing.T) {
	t.Parallel()
	document, _ := described(t)
	op := document["paths"].(node)[projectPath+"/connectors"].(node)["post"].(node)
	require.Equal(t, "connectors.create", op["x-permission"])
	require.Equal(t, []any{"connectors.link"}, op["x-permission-with-agent_name"])
	op = document["paths"].(node)[projectPath+"/environments"].(node)["post"].(node)
	require.Equal(t, []any{"variables.view", "variables.create"}, op["x-permission-with-copy_from_environment_id"])
}

// TestTheDescriptionOfWebhooksIsThatOfTheRepository: but for the URL of the gateway, which is
// that of the installation; what is in it is described.
func TestTheDescriptionOfWebhooksIsThatOfTheRepository(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	served := w.send(t, "", http.MethodGet, "/v1/webhooks.json", "")
	require.Equal(t, http.StatusOK, served.Code)
	require.Equal(t, "application/json", served.Header().Get("Content-Type"))
	written, err := os.ReadFile("../docs/webhooks.json")
	require.NoError(t, err)
	require.Equal(t, string(written), strings.ReplaceAll(served.Body.String(), `"`+gateway+`"`, `"`+exampleGateway+`"`), "run make generate")
	require.Contains(t, served.Body.String(), `"`+gateway+`"`)
	all := decode[node](t, written)["components"].(node)["schemas"].(node)
	for name, schema := range all {
		require.NotEmpty(t, schema.(node)["description"], name)
		for field, property := range schema.(node)["properties"].(node) {
			require.NotEmpty(t, property.(node)["description"], "%s.%s", name, field)
		}
	}
	require.Len(t, aboutWebhookSchemas, len(all))
	for status := range webhookapi.Problems {
		require.NotEmpty(t, aboutWebhookProblems[status], status)
	}
	require.Len(t, aboutWebhookProblems, len(webhookapi.Problems))
	for status := range webhookapi.PushProblems {
		require.NotEmpty(t, aboutPushProblems[status], status)
	}
	require.Len(t, aboutPushProblems, len(webhookapi.PushProblems))
}
