// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// Each error response has a description and an example.
func TestDocument_ExplainsEachError(t *testing.T) {
	t.Parallel()
	document, _ := documentOf(t)
	for _, r := range apiservertest.SupportedEndpoints(t) {
		responses := document["paths"].(rest.Node)[rest.PathPrefix+r.Path].(rest.Node)[strings.ToLower(r.Method)].(rest.Node)["responses"].(rest.Node)
		for _, status := range r.Errors {
			response := responses[strconv.Itoa(status)].(rest.Node)
			require.NotEqual(t, http.StatusText(status), response["description"], "%s: %d", r.ID, status)
			require.NotEmpty(t, response["content"].(rest.Node)[httpserver.ProblemType].(rest.Node)["example"], "%s: %d", r.ID, status)
		}
	}
}

// Each reference resolves, and each schema and header is referenced.
func TestDocument_HasNoDanglingReferences(t *testing.T) {
	t.Parallel()
	document, _ := documentOf(t)
	used := map[string]bool{}
	var walk func(part any)
	walk = func(part any) {
		switch part := part.(type) {
		case rest.Node:
			if target, ok := part["$ref"].(string); ok {
				used[target] = true
			}
			for _, inner := range part {
				walk(inner)
			}
		case []any:
			for _, inner := range part {
				walk(inner)
			}
		}
	}
	walk(document)
	for target := range used {
		at := any(document)
		for _, token := range strings.Split(strings.TrimPrefix(target, "#/"), "/") {
			at = at.(rest.Node)[token]
			require.NotNil(t, at, target)
		}
	}
	components := document["components"].(rest.Node)
	for _, section := range []string{"schemas", "headers"} {
		for name := range components[section].(rest.Node) {
			require.True(t, used["#/components/"+section+"/"+name], "%s %s", section, name)
		}
	}
}

// Generators make up names for unnamed objects.
func TestDocument_NamesEachObject(t *testing.T) {
	t.Parallel()
	document, schemas := documentOf(t)
	named := 0
	var walk func(part any, at string)
	walk = func(part any, at string) {
		switch part := part.(type) {
		case rest.Node:
			require.NotContains(t, part, "x-named-as", at)
			if _, object := part["properties"].(rest.Node); object {
				require.Contains(t, schemas, strings.TrimPrefix(at, "/components/schemas/"))
				named++
			}
			for name, inner := range part {
				walk(inner, at+"/"+name)
			}
		case []any:
			for i, inner := range part {
				walk(inner, at+"/"+strconv.Itoa(i))
			}
		}
	}
	walk(document, "")
	require.Greater(t, named, 50)
}

// Generators treat a schema of type string as text.
func TestDocument_DescribesBinaryBodies(t *testing.T) {
	t.Parallel()
	document, _ := documentOf(t)
	tried := 0
	for _, r := range apiservertest.SupportedEndpoints(t) {
		op := document["paths"].(rest.Node)[rest.PathPrefix+r.Path].(rest.Node)[strings.ToLower(r.Method)].(rest.Node)
		if r.Upload != nil {
			for media, content := range op["requestBody"].(rest.Node)["content"].(rest.Node) {
				require.Empty(t, content, "%s %s", r.ID, media)
				tried++
			}
		}
		if r.File {
			require.Empty(t, op["responses"].(rest.Node)[strconv.Itoa(r.Status)].(rest.Node)["content"].(rest.Node)["*/*"], r.ID)
			tried++
		}
	}
	require.Equal(t, 4, tried)
}

func TestDocument_HasVersionLicenseAndServer(t *testing.T) {
	t.Parallel()
	document, _ := documentOf(t)
	info := document["info"].(rest.Node)
	require.Equal(t, "1.0.0", info["version"])
	require.Equal(t, "Apache-2.0", info["license"].(rest.Node)["identifier"])
	require.NotEmpty(t, info["description"])
	require.NotEmpty(t, document["servers"])
	tags := map[string]bool{}
	for _, tag := range document["tags"].([]any) {
		require.NotEmpty(t, tag.(rest.Node)["description"])
		tags[tag.(rest.Node)["name"].(string)] = true
	}
	for _, r := range apiservertest.SupportedEndpoints(t) {
		require.True(t, tags[r.Tag], "%s: %s", r.ID, r.Tag)
	}
}

// Each operation lists exactly the headers that it reads.
func TestDocument_DescribesHeadersOfEachCall(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	for _, r := range apiservertest.SupportedEndpoints(t) {
		var heeded []string
		for _, p := range rest.OperationOf(w.Server.OpenAPI(), &r).Parameters {
			if p.In == "header" {
				heeded = append(heeded, p.Name)
			}
			if r.Stream && p.Name == "Last-Event-ID" {
				heeded = nil // which goes on
			}
		}
		require.Equal(t, map[rest.Effect][]string{
			rest.EffectNone: nil, rest.EffectCreate: {"Idempotency-Key"}, rest.EffectAction: {"Idempotency-Key"}, rest.EffectUpdate: {"Idempotency-Key", "If-Match"},
		}[r.Effect], heeded, r.ID)
		require.Equal(t, r.Effect == rest.EffectUpdate, slices.Contains(r.Errors, http.StatusPreconditionFailed), r.ID)
		again := r.ID == "redeploy" || r.ID == "deployAnyway" // of which the contract says 200
		require.Equal(t, r.Effect == rest.EffectCreate && !again, r.Status == http.StatusCreated, r.ID)
	}
}

// The statuses, limits and unsupported endpoints in docs/rest-api.md match the code.
func TestDocument_MatchesRESTPage(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/rest-api.md")
	require.NoError(t, err)
	page := string(text)
	statuses := map[int]bool{}
	for _, r := range apiservertest.SupportedEndpoints(t) {
		for _, status := range r.Errors {
			statuses[status] = true
		}
	}
	for status := range statuses {
		if status == http.StatusRequestTimeout || status == http.StatusInternalServerError {
			continue // of which nobody needs to be told
		}
		require.Regexp(t, `\n\| [0-9, ]*`+strconv.Itoa(status)+`[0-9, ]* \|`, page)
	}
	require.Contains(t, page, "at most "+strconv.Itoa(rest.MaxIdempotencyKey)+" characters")
	require.Contains(t, page, "last "+strconv.Itoa(rest.MaxEarlierCalls)+" entries")
	require.Contains(t, page, "120 requests in any 60 seconds")
	for _, code := range []httpserver.Code{httpserver.CodeInvalid, httpserver.CodeKeyReused, httpserver.CodeNotImplemented} {
		require.Contains(t, page, string(code))
	}
	_, missing, ok := strings.Cut(page, "## Unsupported endpoints")
	require.True(t, ok)
	for _, r := range apiservertest.Endpoints {
		if r.IsSupported() {
			continue
		}
		word := regexp.MustCompile(`\{[a-z_]+\}`).ReplaceAllString(r.Path, "")
		parts := strings.FieldsFunc(word, func(c rune) bool { return c == '/' })
		last := parts[len(parts)-1]
		named := strings.Contains(missing, last) || strings.Contains(missing, "`"+parts[0]) ||
			strings.Contains(missing, "`"+r.Method+"`") || strings.Contains(missing, r.Method+" "+r.Path)
		require.True(t, named, "%s %s is not on the page", r.Method, r.Path)
	}
}
