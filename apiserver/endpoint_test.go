// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"cmp"
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/unsupported"
)

var update = flag.Bool("update", false, "write "+endpointsFile)

// endpointsFile shows the endpoints for review.
const endpointsFile = "testdata/endpoints.txt"

// endpointTable lists method, path, operation, statuses and permissions of each endpoint. A
// permission that only a parameter requires names the parameter.
func endpointTable() string {
	var out strings.Builder
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, e := range slices.SortedFunc(slices.Values(apiservertest.Endpoints), func(a, b rest.Endpoint) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Method, b.Method))
	}) {
		var permissions []string
		for _, p := range e.Permissions {
			text := string(p.Permission)
			if p.With != "" {
				text += "(" + p.With + ")"
			}
			permissions = append(permissions, text)
		}
		statuses := slices.Clone(e.Errors)
		switch {
		case !e.IsSupported():
			statuses = []int{401, 403, 429, 501, 503}
		case e.AlsoStatus != 0:
			statuses = append(statuses, e.AlsoStatus, e.Status)
		default:
			statuses = append(statuses, e.Status)
		}
		slices.Sort(statuses)
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", e.Method, e.Path, e.ID, strings.Trim(fmt.Sprint(statuses), "[]"), strings.Join(permissions, " "))
	}
	_ = table.Flush() // a strings.Builder does not fail
	return out.String()
}

// The file of all endpoints is what reviewers read: go test ./apiserver -run TestEndpoints_MatchFile -update writes it.
func TestEndpoints_MatchFile(t *testing.T) {
	t.Parallel()
	if *update {
		require.NoError(t, os.WriteFile(endpointsFile, []byte(endpointTable()), 0o644))
	}
	text, err := os.ReadFile(endpointsFile)
	require.NoError(t, err)
	require.Equal(t, string(text), endpointTable(), "run this test with -update and review %s", endpointsFile)
}

// Each endpoint is complete, and no two endpoints share an operation or a path.
func TestEndpoints_AreComplete(t *testing.T) {
	t.Parallel()
	paths, ids := map[string]bool{}, map[string]bool{}
	for _, e := range apiservertest.Endpoints {
		t.Run(e.ID, func(t *testing.T) {
			require.False(t, paths[e.Method+e.Path], "another endpoint has the path")
			require.False(t, ids[e.ID], "another endpoint has the operation")
			paths[e.Method+e.Path], ids[e.ID] = true, true
			require.NotEmpty(t, e.Permissions)
			require.Empty(t, e.Permissions[0].With, "the first permission is required by each call")
			if !e.IsSupported() {
				return
			}
			require.Subset(t, e.Errors, rest.CommonErrors)
			path, _, _ := strings.Cut(e.Example.Path, "?")
			require.True(t, apiservertest.MatchesPath(e.Path, path), "the example has another path: %s", path)
		})
	}
}

// An unsupported endpoint returns 501 with its alternative, after the checks of key, project and permission.
func TestEndpoints_Return501IfUnsupported(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	for _, r := range apiservertest.Endpoints {
		if r.IsSupported() {
			continue
		}
		answer := w.Request(t, key, r.Method, withQuery(apiservertest.RandomPath(r), "whatever=1"), apiservertest.AcceptedBody(r), "Idempotency-Key", "k", "If-Match", "x")
		require.Equal(t, http.StatusNotImplemented, answer.Code, "%s: %s", r.ID, answer.Body)
		p := apiservertest.Decode[rest.Problem](t, answer.Body.Bytes())
		require.Equal(t, httpserver.CodeNotImplemented, p.Code)
		require.Contains(t, p.Detail, "not in this release")
		require.Contains(t, p.Detail, r.Alternative)
		other := w.Send(t, key, r.Method, "/v1/projects/"+uuid.NewString()+apiservertest.RandomPath(r), apiservertest.AcceptedBody(r))
		require.Equal(t, http.StatusForbidden, other.Code, r.ID)
		for _, g := range r.Permissions {
			lacking := w.CreateKey(t, func(k *v1alpha1.APIKeySpec) {
				k.Access = v1alpha1.AccessSelected
				for _, p := range v1alpha1.Permissions() {
					if p != g.Permission {
						k.Permissions = append(k.Permissions, p)
					}
				}
			})
			refused := w.Request(t, lacking, r.Method, apiservertest.RandomPath(r), apiservertest.AcceptedBody(r))
			require.Equal(t, http.StatusForbidden, refused.Code, r.ID)
			require.Contains(t, refused.Body.String(), string(g.Permission))
		}
	}
	require.NotContains(t, w.Send(t, "", http.MethodGet, "/v1/openapi.json", "").Body.String(), "retrieval/text")
}

// A query parameter can require a further permission.
func TestEndpoints_CheckPermissionsOfParameters(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	creating := w.CreateKey(t, func(k *v1alpha1.APIKeySpec) {
		k.Access, k.Permissions = v1alpha1.AccessSelected, []v1alpha1.Permission{"connectors.create"}
	})
	path := "/connectors?environment_id=" + w.IDs["environment"]
	status, answer := w.Call(t, creating, http.MethodPost, path+"&agent_name=hello", `{"name":"a","type":"webhook"}`)
	require.Equal(t, http.StatusForbidden, status, "%s", answer)
	require.Contains(t, apiservertest.Decode[rest.Problem](t, answer).Detail, "connectors.link")
	status, answer = w.Call(t, creating, http.MethodPost, path, `{"name":"a","type":"webhook"}`)
	require.Equal(t, http.StatusCreated, status, "%s", answer)
}

// Each unsupported parameter is rejected by name, and none is described.
func TestUnsupported_RejectsParameters(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	agent := "/agents/hello?environment_id={environment}&"
	takes := map[string][]string{
		"guardrail_outcome": {agent, "/runs?"}, "status_filter": {agent, "/runs?"},
	}
	names := unsupported.At(unsupported.Query)
	require.NotEmpty(t, names)
	for _, name := range names {
		require.NotEmpty(t, takes[name.Field], "where may %s be sent?", name)
		value := name.Value
		if value == "" {
			value = "CANARY"
		}
		for _, path := range takes[name.Field] {
			status, body := w.Call(t, key, http.MethodGet, apiservertest.FillPath(t, path+name.Field+"="+value, w.IDs), "")
			require.Equal(t, http.StatusUnprocessableEntity, status, "%s: %s", name, body)
			require.NotContains(t, string(body), "CANARY")
			found := apiservertest.Decode[rest.Problem](t, body).Errors
			require.Len(t, found, 1)
			require.Regexp(t, `^query\.`+name.Field+`(\[0\])?$`, found[0].Location)
			require.Equal(t, "is not supported in this release", found[0].Message)
		}
	}
}
