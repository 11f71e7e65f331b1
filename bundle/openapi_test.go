// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/openapi/openapitest"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/jsonschema"
)

// petAPI has the features of operations that agents can call, and some that they cannot.
const petAPI = `openapi: 3.0.3
servers: [{url: https://pets.example/v2}]
paths:
  /pets/{pet-id}:
    parameters: [{$ref: '#/components/parameters/Pet'}]
    get:
      operationId: getPet
      summary: Get a pet
      description: With its owner.
      parameters:
        - {name: fields, in: query, schema: {type: array, items: {type: string}}}
        - {name: 'filter[name]', in: query, style: deepObject, schema: {type: object}}
        - {name: tags, in: query, explode: false, schema: {type: array}}
        - {name: x-trace, in: header, required: true, schema: {type: string, nullable: true, pattern: '^(?=a)'}}
        - {name: Idempotency-Key, in: header, required: true, schema: {type: string}}
        - {name: Accept, in: header, required: true, schema: {type: string}}
        - {name: session, in: cookie, schema: {type: string}}
    put:
      operationId: pets/put
      requestBody:
        required: true
        content: {application/json; charset=utf-8: {schema: {$ref: '#/components/schemas/Pet'}}}
    patch:
      operationId: patchPet
      requestBody:
        content:
          application/merge-patch+json: {schema: {type: object}}
          text/plain: {schema: {type: string}}
    delete:
      parameters: [{name: pet-id, in: path, required: true, schema: {type: string}}]
  /pets/search:
    post:
      operationId: search
      parameters: [{name: body, in: query, required: true, schema: {}}]
      requestBody: {required: true, content: {application/x-www-form-urlencoded: {schema: {type: object, required: [q], properties: {q: {type: string}, n: {type: integer}}}}}}
  /pets/upload:
    post: {operationId: upload, requestBody: {required: true, content: {multipart/form-data: {schema: {type: object}}}}}
    get: {operationId: cookie, parameters: [{name: a, in: cookie, required: true, schema: {type: string}}]}
  /pets/{unknown}:
    get: {operationId: unknown}
components:
  parameters:
    Pet: {name: pet-id, in: path, required: true, description: ID of the pet, schema: {type: integer, minimum: 0, exclusiveMinimum: true}}
  schemas:
    Pet:
      type: object
      required: [id, name]
      properties:
        id: {type: integer, readOnly: true}
        name: {type: string, example: Rex, x-order: 1}
        parent: {$ref: '#/components/schemas/Pet'}
`

// petTools returns the tools of petAPI that a reference names.
func petTools(t *testing.T, reference string) []*bundle.HTTPTool {
	t.Helper()
	p, err := bundle.Parse(toolRepository("['"+reference+"']", "apis/pets.yaml", petAPI))
	require.NoError(t, err)
	return p.HTTPTools(reference)
}

// petOperation is an operation of petAPI and its tool.
type petOperation struct {
	operation, model, method, parameters string
	path                                 bundle.Template
	query, headers, form                 []bundle.HTTPField
	body                                 any
}

// petOperations are operations by what they show.
var petOperations = map[string]petOperation{
	"parameters": {
		operation: "getPet", model: "pets_getPet", method: "GET",
		parameters: `{"type":"object","additionalProperties":false,"required":["pet-id","x-trace"],"properties":{
			"pet-id":{"type":"integer","exclusiveMinimum":0,"description":"ID of the pet"},"fields":{"type":"array","items":{"type":"string"}},
			"filter_name_":{"type":"object"},"tags":{"type":"array"},"x-trace":{"type":["string","null"]}}}`,
		path: bundle.Template{{Text: "/pets/"}, {Argument: "pet-id"}},
		query: []bundle.HTTPField{
			{Name: "fields", Value: bundle.Template{{Argument: "fields"}}},
			{Name: "filter[name]", Value: bundle.Template{{Argument: "filter_name_"}}, Style: bundle.StyleDeepObject},
			{Name: "tags", Value: bundle.Template{{Argument: "tags"}}, Style: bundle.StyleJoined},
		},
		headers: []bundle.HTTPField{{Name: "X-Trace", Value: bundle.Template{{Argument: "x-trace"}}}},
	},
	"body": {
		operation: "pets/put", model: "pets_pets_put", method: "PUT",
		parameters: `{"type":"object","additionalProperties":false,"required":["pet-id","body"],"properties":{
			"pet-id":{"type":"integer","exclusiveMinimum":0,"description":"ID of the pet"},
			"body":{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"parent":{}}}}}`,
		path: bundle.Template{{Text: "/pets/"}, {Argument: "pet-id"}}, body: bundle.Template{{Argument: "body"}},
	},
	"other JSON": {
		operation: "patchPet", model: "pets_patchPet", method: "PATCH",
		parameters: `{"type":"object","additionalProperties":false,"required":["pet-id"],"properties":{
			"pet-id":{"type":"integer","exclusiveMinimum":0,"description":"ID of the pet"},"body":{"type":"object"}}}`,
		path: bundle.Template{{Text: "/pets/"}, {Argument: "pet-id"}}, body: bundle.Template{{Argument: "body"}},
		headers: []bundle.HTTPField{{Name: "Content-Type", Value: bundle.Template{{Text: "application/merge-patch+json"}}}},
	},
	"no operationId": {
		operation: "delete_pets__pet-id", model: "pets_delete_pets__pet-id", method: "DELETE",
		parameters: `{"type":"object","additionalProperties":false,"required":["pet-id"],"properties":{"pet-id":{"type":"string"}}}`,
		path:       bundle.Template{{Text: "/pets/"}, {Argument: "pet-id"}},
	},
	"form": {
		operation: "search", model: "pets_search", method: "POST",
		parameters: `{"type":"object","additionalProperties":false,"required":["body","q"],"properties":{"body":{},"q":{"type":"string"},"n":{"type":"integer"}}}`,
		path:       bundle.Template{{Text: "/pets/search"}}, query: []bundle.HTTPField{{Name: "body", Value: bundle.Template{{Argument: "body"}}}},
		form: []bundle.HTTPField{{Name: "n", Value: bundle.Template{{Argument: "n"}}}, {Name: "q", Value: bundle.Template{{Argument: "q"}}}},
	},
}

func TestParse_OpenAPI(t *testing.T) {
	t.Parallel()
	for name, c := range petOperations {
		t.Run(name, func(t *testing.T) {
			tools := petTools(t, "api:pets."+c.operation)
			require.Len(t, tools, 1)
			tool := tools[0]
			require.Equal(t, "api:pets."+c.operation, tool.Reference)
			require.Equal(t, c.model, tool.Name)
			require.Equal(t, c.method, tool.Method)
			require.Equal(t, c.method == "GET", tool.Idempotent)
			require.Equal(t, c.path, tool.Path)
			require.Equal(t, c.query, tool.Query)
			require.Equal(t, c.headers, tool.Headers)
			require.Equal(t, c.form, tool.Form)
			require.Equal(t, c.body, tool.Body)
			require.Equal(t, bundle.Template{{Text: "https://pets.example/v2"}}, tool.BaseURL)
			schema, err := json.Marshal(tool.Parameters)
			require.NoError(t, err)
			require.JSONEq(t, c.parameters, string(schema))
		})
	}
	require.Equal(t, "Get a pet\n\nWith its owner.", petTools(t, "api:pets.getPet")[0].Description)
	require.Equal(t, "DELETE /pets/{pet-id}", petTools(t, "api:pets.delete_pets__pet-id")[0].Description)
}

// A wildcard names the operations that agents can call.
func TestHTTPTools_ResolveAPIReferences(t *testing.T) {
	t.Parallel()
	for reference, want := range map[string]string{
		"api:pets.*":       "delete_pets__pet-id getPet patchPet pets/put search",
		"api:pets.p*":      "patchPet pets/put",
		"api:pets.getPet*": "getPet",
	} {
		t.Run(reference, func(t *testing.T) {
			var got []string
			for _, tool := range petTools(t, reference) {
				got = append(got, strings.TrimPrefix(tool.Reference, "api:pets."))
			}
			require.Equal(t, want, strings.Join(got, " "))
		})
	}
}

// The key apis has the base URL and the credentials of an agent, also from a file of defaults.
func TestHTTPTool_ForAgent(t *testing.T) {
	t.Parallel()
	files := newFiles("apis/pets.yaml", petAPI,
		"agents/_defaults.yaml", "model: openai/x\napis: {pets: {base_url: '${PETS_URL}'}}\ntools: ['api:pets.getPet']\n",
		"agents/plain.yaml", "name: plain\n",
		"agents/bearer.yaml", "name: bearer\napis: {pets: {auth: {bearer: '${PETS_TOKEN}'}}}\n",
		"agents/header.yaml", "name: header\napis: {pets: {base_url: https://a.example, auth: {header: {x-key: 'Key ${PETS_KEY}'}}}}\n",
		"agents/basic.yaml", "name: basic\napis: {pets: {auth: {basic: {username: me, password: '${PETS_PASSWORD}'}}}}\n",
		"agents/app.yaml", "name: app\napis: {pets: {auth: {oauth_app: pets}}}\n")
	p, err := bundle.Parse(files)
	require.NoError(t, err)
	trace := bundle.HTTPField{Name: "X-Trace", Value: bundle.Template{{Argument: "x-trace"}}}
	for agent, c := range map[string]struct {
		base    bundle.Template
		headers []bundle.HTTPField
		basic   *[2]bundle.Template
		app     string
	}{
		"plain":  {bundle.Template{{Variable: "PETS_URL"}}, []bundle.HTTPField{trace}, nil, ""},
		"bearer": {bundle.Template{{Variable: "PETS_URL"}}, []bundle.HTTPField{trace, {Name: "Authorization", Value: bundle.Template{{Text: "Bearer "}, {Variable: "PETS_TOKEN"}}}}, nil, ""},
		"header": {bundle.Template{{Text: "https://a.example"}}, []bundle.HTTPField{trace, {Name: "X-Key", Value: bundle.Template{{Text: "Key "}, {Variable: "PETS_KEY"}}}}, nil, ""},
		"basic":  {bundle.Template{{Variable: "PETS_URL"}}, []bundle.HTTPField{trace}, &[2]bundle.Template{{{Text: "me"}}, {{Variable: "PETS_PASSWORD"}}}, ""},
		"app":    {bundle.Template{{Variable: "PETS_URL"}}, []bundle.HTTPField{trace}, nil, "pets"},
	} {
		t.Run(agent, func(t *testing.T) {
			tool := p.HTTPTools("api:pets.getPet")[0].ForAgent(p.Agent(agent))
			require.Equal(t, c.base, tool.BaseURL)
			require.Equal(t, c.headers, tool.Headers)
			require.Equal(t, c.basic, tool.BasicAuth)
			require.Equal(t, c.app, tool.OAuthApp)
		})
	}
}

func TestParse_ReportsProblemsOfAPIs(t *testing.T) {
	t.Parallel()
	noServer := strings.Replace(petAPI, "https://pets.example/v2", "/v2", 1)
	agent := func(keys string) bundle.Files {
		return newFiles("agents/a.yaml", "name: a\nmodel: openai/x\ntools: ['api:pets.*']\n"+keys, "apis/pets.yaml", petAPI)
	}
	for name, c := range map[string]struct {
		files bundle.Files
		want  string
	}{
		"unknown operation": {toolRepository("['api:pets.get']", "apis/pets.yaml", petAPI), `agents/a.yaml:3:1: tool "api:pets.get": apis/pets.yaml has no such operation`},
		"unknown document":  {toolRepository("['api:dogs.*']", "apis/pets.yaml", petAPI), `tool "api:dogs.*" needs the file apis/dogs.yaml or apis/dogs.json, which does not exist`},
		"no operation":      {toolRepository("['api:pets']", "apis/pets.yaml", petAPI), `"api:pets" is not a tool; write api:<name>.<operationId>`},
		"body":              {toolRepository("['api:pets.upload']", "apis/pets.yaml", petAPI), `apis/pets.yaml has the operation, but agents cannot call it: its body is neither JSON nor a form`},
		"cookie":            {toolRepository("['api:pets.cookie']", "apis/pets.yaml", petAPI), `agents cannot call it: its parameter a is in cookie`},
		"path":              {toolRepository("['api:pets.unknown']", "apis/pets.yaml", petAPI), `agents cannot call it: its path has {unknown}, which is no parameter in path`},
		"no server":         {toolRepository("['api:pets.getPet']", "apis/pets.yaml", noServer), `needs a base URL, because apis/pets.yaml names no server with an http or https URL; add apis: {pets: {base_url: …}}`},
		"version":           {toolRepository("[]", "apis/pets.yaml", "swagger: '2.0'\n"), `apis/pets.yaml:1:1: "openapi" must be a version 3.0 or 3.1, as text`},
		"no paths":          {toolRepository("[]", "apis/pets.yaml", "openapi: 3.1.0\n"), `the document has no operation under paths`},
		"list":              {toolRepository("[]", "apis/pets.yaml", "[1]\n"), `the file must hold an OpenAPI document`},
		"JSON":              {toolRepository("[]", "apis/pets.json", "{\n \"a\": x}"), `apis/pets.json:2:7: the file is not JSON`},
		"size":              {toolRepository("[]", "apis/pets.json", strings.Repeat(" ", bundle.MaxAPISize+1)), `at most 1048576 are allowed`},
		"same name":         {toolRepository("[]", "apis/pets.json", "{}", "apis/pets.yaml", petAPI), `apis/pets.json`},
		"folder":            {toolRepository("[]", "apis/x/pets.yaml", petAPI), `apis/x/pets.yaml: nothing reads this file; move it to apis/`},
		"two operations":    {toolRepository("[]", "apis/p.yaml", "openapi: 3.1.0\npaths: {/a: {get: {operationId: x}, put: {operationId: x}}}\n"), `two operations have the operationId x; rename one`},
		"unused key":        {agent("apis: {dogs: {base_url: https://a.example}}\n"), `agents/a.yaml:4:8: "apis.dogs" needs the file apis/dogs.yaml or apis/dogs.json`},
		"base URL":          {agent("apis: {pets: {base_url: 'https://{host}'}}\n"), `"apis.pets.base_url" has {host}`},
		"two credentials":   {agent("apis: {pets: {auth: {bearer: a, basic: {username: a, password: b}}}}\n"), `"apis.pets.auth" needs one of "bearer", "header", "basic" and "oauth_app"`},
		"app and password":  {agent("apis: {pets: {auth: {oauth_app: pets, basic: {username: a, password: b}}}}\n"), `"apis.pets.auth" needs one of "bearer", "header", "basic" and "oauth_app"`},
		"name of an app":    {agent("apis: {pets: {auth: {oauth_app: 'a b'}}}\n"), `"apis.pets.auth.oauth_app"`},
		"no credentials":    {agent("apis: {pets: {auth: {}}}\n"), `"apis.pets.auth" needs one of "bearer", "header", "basic" and "oauth_app"`},
		"header":            {agent("apis: {pets: {auth: {header: {host: a}}}}\n"), `"apis.pets.auth.header.host": the platform sets this header; remove it`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := bundle.Parse(c.files)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// The names of operations for models have at most 64 characters and differ.
func TestModelToolName_ShortensOperations(t *testing.T) {
	t.Parallel()
	long := "api:shop." + strings.Repeat("getVeryLong", 10)
	first, second := bundle.ModelToolName(long+"A"), bundle.ModelToolName(long+"B")
	require.Len(t, first, 64)
	require.Len(t, second, 64)
	require.NotEqual(t, first, second)
	require.Equal(t, "shop_repos_list-for-org", bundle.ModelToolName("api:shop.repos/list-for-org"))
}

// Each operation of the platform's own REST API is a tool, except for the upload, whose body is an archive.
func TestParse_OwnOpenAPI(t *testing.T) {
	t.Parallel()
	document, err := os.ReadFile("../docs/openapi.json")
	require.NoError(t, err)
	var own struct {
		Paths map[string]map[string]struct{ OperationID string }
	}
	require.NoError(t, json.Unmarshal(document, &own))
	count := 0
	for _, path := range own.Paths {
		count += len(path)
	}
	count-- // uploadDeployment
	p, err := bundle.Parse(toolRepository("['api:platform.*']\napis: {platform: {base_url: '${PLATFORM_URL}', auth: {bearer: '${PLATFORM_KEY}'}}}", "apis/platform.json", string(document)))
	require.NoError(t, err)
	tools := p.HTTPTools("api:platform.*")
	require.Len(t, tools, count)
	require.Greater(t, count, 40)
	names := map[string]bool{}
	for _, tool := range tools {
		names[tool.Name] = true
		require.NotEmpty(t, tool.Description, tool.Reference)
		_, err := jsonschema.Compile(tool.Parameters)
		require.NoError(t, err, tool.Reference)
	}
	require.Len(t, names, count)
	_, err = bundle.Parse(toolRepository("['api:platform.uploadDeployment']\napis: {platform: {base_url: '${PLATFORM_URL}'}}", "apis/platform.json", string(document)))
	require.ErrorContains(t, err, "its body is neither JSON nor a form")
}

func FuzzOpenAPI(f *testing.F) {
	f.Add(petAPI, true)
	f.Add(`{"openapi":"3.1.0","paths":{"/a/{b}":{"get":{"parameters":[{"name":"b","in":"path","schema":{"$ref":"#/paths"}}]}}}}`, false)
	f.Fuzz(func(t *testing.T, document string, yaml bool) {
		file := "apis/t.json"
		if yaml {
			file = "apis/t.yaml"
		}
		files := toolRepository("['api:t.*']\napis: {t: {base_url: 'https://a.example'}}", file, document)
		requireProjectOrProblems(t, files)
		p, err := bundle.Parse(files)
		if err != nil {
			return
		}
		for _, tool := range p.HTTPTools("api:t.*") {
			_, err := jsonschema.Compile(tool.Parameters)
			require.NoError(t, err)
			require.Regexp(t, `^[A-Za-z0-9_-]{1,64}$`, tool.Name)
		}
	})
}

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
