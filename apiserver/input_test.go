// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"cmp"
	"fmt"
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/environments"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// withQuery adds a parameter to a path.
func withQuery(path, query string) string {
	if strings.Contains(path, "?") {
		return path + "&" + query
	}
	return path + "?" + query
}

// Each endpoint rejects unknown and repeated parameters.
func TestQuery_RejectsUnknownParameters(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	for _, r := range apiservertest.SupportedEndpoints(t) {
		path := apiservertest.FillPath(t, r.Example.Path, w.IDs)
		for _, name := range []string{"nonsense", "Limit", "environment_ids", "project_id", "environment_id[]"} {
			status, answer := w.Call(t, key, r.Method, withQuery(path, name+"=CANARY"), apiservertest.ExampleBody(r))
			apiservertest.RequireField(t, status, answer, "query."+name)
			require.NotContains(t, string(answer), "CANARY")
		}
		for _, p := range rest.OperationOf(w.Server.OpenAPI(), &r).Parameters {
			if p.In != "query" {
				continue
			}
			if p.Name != "time_range" {
				status, answer := w.Call(t, key, r.Method, withQuery(apiservertest.FillPath(t, withoutParameter(r.Example.Path, p.Name), w.IDs), p.Name+"="), apiservertest.ExampleBody(r))
				apiservertest.RequireField(t, status, answer, "query."+p.Name)
			}
			status, answer := w.Call(t, key, r.Method, withQuery(apiservertest.FillPath(t, withoutParameter(r.Example.Path, p.Name), w.IDs), p.Name+"=1&"+p.Name+"="), apiservertest.ExampleBody(r))
			apiservertest.RequireField(t, status, answer, "query."+p.Name)
			if p.Explode != nil && *p.Explode {
				continue // a list
			}
			status, answer = w.Call(t, key, r.Method, withQuery(apiservertest.FillPath(t, withoutParameter(r.Example.Path, p.Name), w.IDs), p.Name+"=1&"+p.Name+"=2"), apiservertest.ExampleBody(r))
			apiservertest.RequireField(t, status, answer, "query."+p.Name)
		}
		status, answer := w.Call(t, key, r.Method, withQuery(path, "a=%zz"), apiservertest.ExampleBody(r))
		apiservertest.RequireField(t, status, answer, "query")
	}
}

// withoutParameter returns the path of an example without its query, which has one parameter.
func withoutParameter(example, name string) string {
	if path, query, ok := strings.Cut(example, "?"); ok && strings.HasPrefix(query, name+"=") {
		return path
	}
	return example
}

// fieldNames matches the names in a body, with their quotes.
var fieldNames = regexp.MustCompile(`"[a-z_]+"(?:: ?)`)

// Each endpoint rejects unknown fields at every depth.
func TestBody_RejectsUnknownFields(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	tried := 0
	for _, r := range apiservertest.SupportedEndpoints(t) {
		s := rest.Example{Path: r.Example.Path, Body: apiservertest.ExampleBody(r)}
		if s.Body == "" || r.Upload != nil {
			continue
		}
		tried++
		path := apiservertest.FillPath(t, s.Path, w.IDs)
		status, answer := w.Call(t, key, r.Method, path, strings.Replace(s.Body, "{", `{"nonsense":"CANARY",`, 1))
		within := "body"
		if strings.HasPrefix(s.Body, "[") {
			within = "body[0]"
		}
		apiservertest.RequireField(t, status, answer, within+".nonsense")
		require.NotContains(t, string(answer), "CANARY")
		for _, name := range fieldNames.FindAllString(s.Body, -1) {
			status, answer = w.Call(t, key, r.Method, path, strings.Replace(s.Body, name, strings.ToUpper(name), 1))
			require.Equal(t, http.StatusUnprocessableEntity, status, "%s takes %s: %s", r.ID, strings.ToUpper(name), answer)
		}
		if strings.Contains(s.Body, `"config":{`) {
			status, answer = w.Call(t, key, r.Method, path, strings.Replace(s.Body, `"config":{`, `"config":{"nonsense":"CANARY",`, 1))
			apiservertest.RequireField(t, status, answer, "body.config.nonsense")
			require.NotContains(t, string(answer), "CANARY")
		}
	}
	require.NotZero(t, tried)
}

// Each endpoint accepts upper and lower case in each ID.
func TestID_AcceptsBothCases(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	for _, r := range apiservertest.SupportedEndpoints(t) {
		ids := idsForExample(t, w, r)
		for noun, id := range ids {
			ids[noun] = strings.ToUpper(id)
		}
		path := "/v1/projects/" + strings.ToUpper(w.ProjectID.String()) + apiservertest.FillPath(t, r.Example.Path, ids)
		answer := w.Send(t, key, r.Method, path, bodyFor(r))
		require.Equal(t, r.Status, answer.Code, "%s: %s", r.ID, answer.Body)
		require.NotContains(t, answer.Body.String(), strings.ToUpper(w.ProjectID.String()))
		for noun, id := range ids {
			require.NotContains(t, answer.Body.String(), id, "%s shows the id of the %s as ids are shown", r.ID, noun)
			ids[noun] = strings.ToLower(id)
		}
	}
	listed := "/runs?environment_id="
	_, body := w.Call(t, key, http.MethodGet, listed+strings.ToUpper(w.IDs["environment"]), "")
	_, same := w.Call(t, key, http.MethodGet, listed+w.IDs["environment"], "")
	require.NotEmpty(t, apiservertest.RunIDs(t, body))
	require.Equal(t, apiservertest.RunIDs(t, same), apiservertest.RunIDs(t, body))
}

// The error names the parameter or field.
func TestID_RejectsInvalidValues(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	places := 0
	for _, r := range apiservertest.SupportedEndpoints(t) {
		for _, p := range rest.OperationOf(w.Server.OpenAPI(), &r).Parameters {
			if p.Schema.Format != "uuid" || p.Name == "project_id" {
				continue
			}
			for _, bad := range []string{"CANARY", "1", strings.ReplaceAll(w.IDs["connector"], "-", ""), "urn:uuid:" + w.IDs["connector"]} {
				var path string
				if p.In == "path" {
					path = strings.ReplaceAll(r.Path, "{"+p.Name+"}", bad)
					path = strings.NewReplacer("{number}", "0", "{file_id}", apiservertest.SavedFileID).Replace(path)
					path = apiservertest.Placeholder.ReplaceAllString(path, w.IDs["connector"])
					if _, query, ok := strings.Cut(apiservertest.FillPath(t, r.Example.Path, w.IDs), "?"); ok {
						path += "?" + query
					}
				} else {
					path = withQuery(apiservertest.FillPath(t, withoutParameter(r.Example.Path, p.Name), w.IDs), p.Name+"="+bad)
				}
				status, answer := w.Call(t, key, r.Method, path, apiservertest.ExampleBody(r))
				require.Equal(t, "must be a UUID", apiservertest.RequireField(t, status, answer, p.In+"."+p.Name).Message)
				require.NotContains(t, string(answer), "CANARY")
				places++
			}
		}
	}
	require.Greater(t, places, 40)
	var id rest.ID
	require.True(t, id.IsZero())
	require.NoError(t, id.UnmarshalText([]byte(w.ProjectID.String())))
	require.False(t, id.IsZero())
	require.Error(t, id.UnmarshalText([]byte("{"+uuid.NewString()+"}")))
}

// The error has line, column and cause.
func TestBody_ShowsPositionOfSyntaxError(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	for body, want := range map[string]string{
		`{"name":`:                           "the body is not valid JSON: line 1, column 9: unexpected end",
		"{\n  \"name\": \"a\",\n}":           "the body is not valid JSON: line 3, column 1: unexpected character",
		"{\n\"näme\": x}":                    "the body is not valid JSON: line 2, column 9: unexpected character",
		`{} {}`:                              "the body is not valid JSON: line 1, column 4: unexpected character",
		`{"name":"a","name":"b"}`:            `the body has the field "name" twice`,
		`{"a":[{"b":1},{"b":1,"b"` + `:2}]}`: `the body has the field "a[1].b" twice`,
	} {
		t.Run(body, func(t *testing.T) {
			for _, r := range apiservertest.SupportedEndpoints(t) {
				if apiservertest.ExampleBody(r) == "" || r.Upload != nil {
					continue
				}
				answer := w.Request(t, key, r.Method, apiservertest.FillPath(t, r.Example.Path, w.IDs), body)
				require.Equal(t, want, apiservertest.RequireField(t, answer.Code, answer.Body.Bytes(), "body").Message)
			}
		})
	}
	status, answer := w.Call(t, key, http.MethodPost, "/connectors?environment_id="+w.IDs["environment"], "")
	require.Equal(t, "is required", apiservertest.RequireField(t, status, answer, "body").Message)
	r := w.Request(t, key, http.MethodPost, "/connectors?environment_id="+w.IDs["environment"], "name=a", "Content-Type", "text/plain")
	require.Equal(t, http.StatusUnsupportedMediaType, r.Code, "%s", r.Body)
	require.Equal(t, httpserver.CodeUnsupportedMedia, apiservertest.Decode[rest.Problem](t, r.Body.Bytes()).Code)
	r = w.Request(t, key, http.MethodPost, "/connectors?environment_id="+w.IDs["environment"], strings.Repeat(" ", 1<<20)+"{}")
	require.Equal(t, http.StatusRequestEntityTooLarge, r.Code, "%s", r.Body)
	require.Equal(t, httpserver.CodeRequestTooLarge, apiservertest.Decode[rest.Problem](t, r.Body.Bytes()).Code)
}

// A body is UTF-8, or it is refused and nothing of it is changed.
func TestBody_RejectsWhatIsNotUTF8(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, path := w.CreateKey(t, nil), "/environments"
	for name, c := range map[string]struct{ body, wrong string }{
		"latin1":                  {"{\"name\":\n\"caf\xe9\"}", "line 2, column 5: "},
		"a lone surrogate":        {`{"name":"a\ud800"}`, "line 1, column 11: an escape is half of a surrogate pair"},
		"a lone second surrogate": {`{"name":"\udc00a"}`, "line 1, column 10: an escape is half of a surrogate pair"},
		"a name in invalid UTF-8": {"{\"\xff\":1}", "line 1, column 3: "},
		"a number too large":      {`{"name":"a","n":1e400}`, "line 1, column 17: the number is too large"},
	} {
		t.Run(name, func(t *testing.T) {
			status, answer := w.Call(t, key, http.MethodPost, path, c.body)
			require.Contains(t, apiservertest.RequireField(t, status, answer, "body").Message, "the body is not valid JSON: "+c.wrong)
		})
	}
	for _, charset := range []string{"iso-8859-1", "utf-16"} {
		answer := w.Request(t, key, http.MethodPost, path, `{"name":"a"}`, "Content-Type", "application/json; charset="+charset)
		require.Equal(t, http.StatusUnsupportedMediaType, answer.Code, "%s: %s", charset, answer.Body)
		require.Equal(t, httpserver.CodeUnsupportedMedia, apiservertest.Decode[rest.Problem](t, answer.Body.Bytes()).Code)
	}
	for body, want := range map[string]string{"\ufeff{\"name\":\"mark\"}": "mark", `{"name":"\ud83d\ude00 \\ud800"}`: "\U0001F600 \\ud800"} {
		t.Run(body, func(t *testing.T) {
			answer := w.Request(t, key, http.MethodPost, path, body, "Content-Type", "application/json; charset=utf8")
			require.Equal(t, http.StatusCreated, answer.Code, "%s", answer.Body)
			require.Equal(t, want, apiservertest.Decode[environments.Environment](t, answer.Body.Bytes()).Name)
		})
	}
}

// JSON has one number, however it is written: 60.0 and 6e1 are integers. A parameter is text.
func TestBody_TakesIntegersInEachForm(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	for _, number := range []string{"60", "60.0", "6e1", "0.6E+2", "600e-1"} {
		body := `{"name":"n` + number + `","type":"webhook","mode":"sync","config":{"timeout_seconds":` + number + `}}`
		status, answer := w.Call(t, key, http.MethodPost, "/connectors?environment_id="+w.IDs["environment"], body)
		require.Equal(t, http.StatusCreated, status, "%s: %s", number, answer)
		require.Contains(t, string(answer), `"timeout_seconds":60`)
		status, answer = w.Call(t, key, http.MethodPost, "/environments", `{"name":"e`+number+`","settings":{"runner":{"max_replicas":`+number+`}}}`)
		require.Equal(t, http.StatusCreated, status, "%s: %s", number, answer)
	}
	status, answer := w.Call(t, key, http.MethodGet, "/runs?limit=60.0", "")
	apiservertest.RequireField(t, status, answer, "query.limit")
}

func TestPlainInteger_Parses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`[1.0, 1e2, -2.50e1, 0.0, -0e5, 1e18]`: `[1, 100, -25, 0, 0, 1000000000000000000]`,
		`[1.5, 1e-1, 1e19, 1e999999999999]`:    `[1.5, 1e-1, 1e19, 1e999999999999]`,
		`{"1.0":"a 1.0 \" 2e1 \\\\","b":3.0}`:  `{"1.0":"a 1.0 \" 2e1 \\\\","b":3}`,
		`[007.0e0, 60.00000000000000000001]`:   `[7, 60.00000000000000000001]`,
	} {
		t.Run(text, func(t *testing.T) {
			require.Equal(t, want, string(rest.NormalizeIntegers([]byte(text))))
		})
	}
}

// A parameter that is nullable is left out where it is empty or null.
func TestQuery_TakesNullAsDefault(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, asked := w.CreateKey(t, nil), 0
	for _, r := range apiservertest.SupportedEndpoints(t) {
		for _, p := range rest.OperationOf(w.Server.OpenAPI(), &r).Parameters {
			if p.In != "query" || p.Name != "time_range" {
				continue
			}
			asked++
			plain := apiservertest.FillPath(t, withoutParameter(r.Example.Path, p.Name), w.IDs)
			_, want := w.Call(t, key, r.Method, plain, "")
			for _, value := range []string{"", "null"} {
				status, answer := w.Call(t, key, r.Method, withQuery(plain, p.Name+"="+value), "")
				require.Equal(t, http.StatusOK, status, "%s: %s", r.ID, answer)
				require.JSONEq(t, string(want), string(answer), r.ID)
			}
		}
	}
	require.GreaterOrEqual(t, asked, 3)
}

// What is wrong with a value is said in one way, with what it must be.
func TestProblem_SaysWhatAValueMustBe(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, connectors := w.CreateKey(t, nil), "/connectors?environment_id="+w.IDs["environment"]
	for _, c := range []struct{ method, path, body, location, message string }{
		{http.MethodGet, "/agents?include_variants=perhaps&environment_id=" + w.IDs["environment"], "", "query.include_variants", "must be true or false"},
		{http.MethodGet, "/runs?limit=x", "", "query.limit", "must be an integer"},
		{http.MethodGet, "/runs?limit=1000", "", "query.limit", "must be at most 100"},
		{http.MethodGet, "/runs?environment_id=abc", "", "query.environment_id", "must be a UUID"},
		{http.MethodGet, "/agents", "", "query.environment_id", "is required"},
		{http.MethodPost, connectors, `{"name":"","type":"webhook"}`, "body.name", "must not be empty"},
		{http.MethodPost, connectors, `{"name":1,"type":"webhook"}`, "body.name", "must be a string"},
		{http.MethodPost, connectors, `{"name":"a","type":"webhook","enabled":"yes"}`, "body.enabled", "must be true or false"},
		{http.MethodPost, connectors, `{"name":"a","type":"webhook","colour":1}`, "body.colour", "is not a field of this call: remove it"},
		{http.MethodPost, "/environments", `{"name":"a","copy_from_environment_id":"abc"}`, "body.copy_from_environment_id", "must be a UUID"},
	} {
		t.Run(c.method+" "+c.path+" "+c.body, func(t *testing.T) {
			status, answer := w.Call(t, key, c.method, c.path, c.body)
			require.Equal(t, c.message, apiservertest.RequireField(t, status, answer, c.location).Message, c.path)
		})
	}
}

// The error names the field at every depth.
func TestBody_NamesFieldsOfWrongType(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	connectors, links := "/connectors?environment_id="+w.IDs["environment"], "/connectors/"+w.IDs["connector"]+"/links"
	for _, c := range []struct{ path, body, location string }{
		{connectors, `[]`, "body"},
		{connectors, `{"type":"webhook"}`, "body.name"},
		{connectors, `{"name":1,"type":"webhook"}`, "body.name"},
		{connectors, `{"name":"","type":"webhook"}`, "body.name"},
		{connectors, `{"name":"` + strings.Repeat("a", 64) + `","type":"webhook"}`, "body.name"},
		{connectors, `{"name":null,"type":"webhook"}`, "body.name"},
		{connectors, `{"name":"a","type":"fax"}`, "body.type"},
		{connectors, `{"name":"a","type":"webhook","mode":"Sync"}`, "body.mode"},
		{connectors, `{"name":"a","type":"webhook","enabled":"yes"}`, "body.enabled"},
		{connectors, `{"name":"a","type":"webhook","config":[]}`, "body.config"},
		{connectors, `{"name":"a","type":"webhook","config":{"require_authentication":1}}`, "body.config.require_authentication"},
		{connectors, `{"name":"a","type":"webhook","mode":"sync","config":{"timeout_seconds":"1"}}`, "body.config.timeout_seconds"},
		{connectors, `{"name":"a","type":"webhook","mode":"sync","config":{"timeout_seconds":1.5}}`, "body.config.timeout_seconds"},
		{connectors, `{"name":"a","type":"webhook","mode":"sync","config":{"timeout_seconds":0}}`, "body.config.timeout_seconds"},
		{connectors, `{"name":"a","type":"webhook","mode":"inbound","config":{"timeout_seconds":1}}`, "body.config.timeout_seconds"},
		{connectors + "&agent_name=Not%20an%20agent", `{"name":"a","type":"webhook"}`, "query.agent_name"},
		{links, `{"agent_name":"Not an agent"}`, "body.agent_name"},
		{links, `{"agent_name":["hello"]}`, "body.agent_name"},
		{links, `{}`, "body.agent_name"},
	} {
		t.Run(c.path+" "+c.body, func(t *testing.T) {
			status, answer := w.Call(t, key, http.MethodPost, c.path, c.body)
			apiservertest.RequireField(t, status, answer, c.location)
		})
	}
	status, answer := w.Call(t, key, http.MethodGet, "/connectors", "")
	apiservertest.RequireField(t, status, answer, "query.environment_id")
	status, answer = w.Call(t, key, http.MethodGet, "/agents?include_variants=perhaps&environment_id="+w.IDs["environment"], "")
	apiservertest.RequireField(t, status, answer, "query.include_variants")
}

// Every list that has status_filter takes it repeatedly, and has it of one declaration.
func TestStatusFilter_RepeatsInEveryList(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, doc := w.CreateKey(t, nil), ""
	var lists []string
	for _, r := range apiservertest.SupportedEndpoints(t) {
		for _, p := range rest.OperationOf(w.Server.OpenAPI(), &r).Parameters {
			if p.Name != "status_filter" {
				continue
			}
			lists = append(lists, r.ID)
			doc = cmp.Or(doc, p.Description)
			require.Equal(t, doc, p.Description, "%s declares its own: embed StatusFilter", r.ID)
			require.Equal(t, "array", p.Schema.Type, r.ID)
			query := "status_filter=completed&status_filter=failed&status_filter=completed"
			status, body := w.Call(t, key, r.Method, withQuery(apiservertest.FillPath(t, r.Example.Path, w.IDs), query), apiservertest.ExampleBody(r))
			require.Equal(t, http.StatusOK, status, "%s: %s", r.ID, body)
		}
	}
	require.ElementsMatch(t, []string{"getAgent", "listRuns", "listConnectorRuns"}, lists)
}

// distinctFields returns a JSON object with n fields that no call has.
func distinctFields(n int) string {
	var fields []string
	for i := range n {
		fields = append(fields, fmt.Sprintf(`"x%d":0`, i))
	}
	return "{" + strings.Join(fields, ",") + "}"
}

// The cost of an invalid body depends on its bytes, not on its number of errors.
func TestBody_BoundsCostOfErrors(t *testing.T) { // not parallel, because the memory of other tests would count
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	variables := "/environments/" + w.EnvironmentID("staging") + "/variables"
	for name, c := range map[string]struct{ method, path, body string }{
		"list of empty objects": {http.MethodPut, variables, "[" + strings.Repeat("{},", 330_000) + "{}]"},
		"list of lists":         {http.MethodPut, variables, "[" + strings.Repeat("[],", 330_000) + "[]]"},
		"list of unknown names": {http.MethodPut, variables, "[" + distinctFields(80_000) + "]"},
		"unknown names":         {http.MethodPost, "/environments", distinctFields(80_000)},
		"list in a field":       {http.MethodPost, "/environments", `{"name":[` + strings.Repeat("{},", 330_000) + `{}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			got := w.Request(t, key, c.method, c.path, c.body)
			runtime.ReadMemStats(&after)
			require.Equal(t, http.StatusUnprocessableEntity, got.Code)
			require.Less(t, got.Body.Len(), 8<<10)
			require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(24*len(c.body)))
		})
	}
}
