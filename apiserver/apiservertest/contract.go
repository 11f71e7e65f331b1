// SPDX-License-Identifier: Apache-2.0

package apiservertest

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/apiserver"
	"github.com/agentplatform/agentplatform/apiserver/rest"
)

// Contract is the OpenAPI document that the facade serves. OpenAPI 3.1 schemas are JSON Schemas, so each response in a test
// is validated.
type Contract struct {
	Document any
	compiler *jsonschema.Compiler
}

// NewContract reads the OpenAPI document of a server.
func NewContract(t testing.TB, s *apiserver.Server) *Contract {
	t.Helper()
	recorder := httptest.NewRecorder()
	s.Handler().ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/openapi.json", nil))
	require.Equal(t, http.StatusOK, recorder.Code)
	document, err := jsonschema.UnmarshalJSON(recorder.Body)
	require.NoError(t, err)
	c := &Contract{Document: document, compiler: jsonschema.NewCompiler()}
	c.compiler.DefaultDraft(jsonschema.Draft2020)
	c.compiler.AssertFormat()
	require.NoError(t, c.compiler.AddResource("openapi.json", document))
	return c
}

// requireDescribed validates a response against the schema of its operation and status. Responses to paths without an
// endpoint have no schema.
func (c *Contract) requireDescribed(t testing.TB, request *http.Request, answer *httptest.ResponseRecorder) {
	t.Helper()
	for i := range Endpoints {
		r := &Endpoints[i]
		if !r.IsSupported() || r.Method != request.Method || !MatchesPath(rest.PathPrefix+r.Path, request.URL.Path) {
			continue
		}
		media := answer.Header().Get("Content-Type")
		pointer := strings.Join([]string{
			"#", "paths", escapeToken(rest.PathPrefix + r.Path), strings.ToLower(r.Method), "responses", strconv.Itoa(answer.Code),
			"content", escapeToken(media), "schema",
		}, "/")
		if (r.File || r.Stream) && answer.Code == r.Status {
			c.requireHeaders(t, r, answer)
			return
		}
		schema, err := c.compiler.Compile("openapi.json" + pointer)
		require.NoError(t, err, "%s returns %d, which is not described", r.ID, answer.Code)
		body, err := jsonschema.UnmarshalJSON(bytes.NewReader(answer.Body.Bytes()))
		require.NoError(t, err)
		require.NoError(t, schema.Validate(body), "%s: %s", r.ID, answer.Body)
		c.requireHeaders(t, r, answer)
		return
	}
}

// requireHeaders checks that a response has the described headers, and no other headers of ResponseHeaders.
func (c *Contract) requireHeaders(t testing.TB, r *rest.Endpoint, answer *httptest.ResponseRecorder) {
	t.Helper()
	at := c.Document.(map[string]any)
	for _, token := range []string{"paths", rest.PathPrefix + r.Path, strings.ToLower(r.Method), "responses", strconv.Itoa(answer.Code), "headers"} {
		at = at[token].(map[string]any)
	}
	for name := range rest.ResponseHeaders {
		_, described := at[name]
		has := answer.Header().Get(name) != ""
		require.True(t, described || !has, "%s returns %d with %s, which is not described", r.ID, answer.Code, name)
		if answer.Code != http.StatusServiceUnavailable { // the limit is unknown if the store is unavailable
			require.True(t, has || !described, "%s returns %d without %s", r.ID, answer.Code, name)
		}
	}
}

// escapeToken escapes a token of a JSON pointer in a URL.
func escapeToken(token string) string {
	return strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(token)
}

// MatchesPath reports whether a path matches a template.
func MatchesPath(template, path string) bool {
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
