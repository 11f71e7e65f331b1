// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
)

// contract is the description that the facade serves. OpenAPI 3.1 schemas are
// JSON Schemas, so that every answer of the tests can be held against it.
type contract struct {
	document any
	compiler *jsonschema.Compiler
}

func newContract(t testing.TB, s *Server) *contract {
	t.Helper()
	recorder := httptest.NewRecorder()
	s.Handler().ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/openapi.json", nil))
	require.Equal(t, http.StatusOK, recorder.Code)
	document, err := jsonschema.UnmarshalJSON(recorder.Body)
	require.NoError(t, err)
	c := &contract{document: document, compiler: jsonschema.NewCompiler()}
	c.compiler.DefaultDraft(jsonschema.Draft2020)
	c.compiler.AssertFormat()
	require.NoError(t, c.compiler.AddResource("openapi.json", document))
	return c
}

// requireDescribed holds an answer against the schema of its operation and
// status. Paths that are not endpoints have none.
func (c *contract) requireDescribed(t testing.TB, request *http.Request, answer *httptest.ResponseRecorder) {
	t.Helper()
	for i := range routes {
		r := &routes[i]
		if r.mount == nil || r.method != request.Method || !fits(projectPath+r.path, request.URL.Path) {
			continue
		}
		media := answer.Header().Get("Content-Type")
		pointer := strings.Join([]string{
			"#", "paths", escaped(projectPath + r.path), strings.ToLower(r.method), "responses", strconv.Itoa(answer.Code),
			"content", escaped(media), "schema",
		}, "/")
		if (r.file || r.stream) && answer.Code == r.status {
			c.requireHeaders(t, r, answer)
			return
		}
		schema, err := c.compiler.Compile("openapi.json" + pointer)
		require.NoError(t, err, "%s answers %d, which is not described", r.id, answer.Code)
		body, err := jsonschema.UnmarshalJSON(bytes.NewReader(answer.Body.Bytes()))
		require.NoError(t, err)
		require.NoError(t, schema.Validate(body), "%s: %s", r.id, answer.Body)
		c.requireHeaders(t, r, answer)
		return
	}
}

// requireHeaders says that an answer has the headers that its description names, as
// far as they come with every such answer, and none of ours that it does not name.
func (c *contract) requireHeaders(t testing.TB, r *route, answer *httptest.ResponseRecorder) {
	t.Helper()
	at := c.document.(map[string]any)
	for _, token := range []string{"paths", projectPath + r.path, strings.ToLower(r.method), "responses", strconv.Itoa(answer.Code), "headers"} {
		at = at[token].(map[string]any)
	}
	for name := range headers {
		_, described := at[name]
		has := answer.Header().Get(name) != ""
		require.True(t, described || !has, "%s answers %d with %s, which is not described", r.id, answer.Code, name)
		if answer.Code != http.StatusServiceUnavailable { // where the limit could not be asked nothing is known of it
			require.True(t, has || !described, "%s answers %d without %s", r.id, answer.Code, name)
		}
	}
}

// escaped is a token of a JSON pointer in a URL.
func escaped(token string) string {
	return strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(token)
}

// fits says whether a path is one of a template.
func fits(template, path string) bool {
	want, have := strings.Split(template, "/"), strings.Split(path, "/")
	if len(want) != len(have) {
		return false
	}
	for i := range want {
		if want[i] != have[i] && !strings.HasPrefix(want[i], "{") {
			return false
		}
	}
	return true
}
