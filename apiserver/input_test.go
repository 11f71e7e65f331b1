// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// requireField says that a request was refused for one field.
func requireField(t testing.TB, status int, answer []byte, location string) FieldError {
	t.Helper()
	require.Equal(t, http.StatusUnprocessableEntity, status, "%s", answer)
	p := decode[Problem](t, answer)
	require.Equal(t, httpserver.CodeInvalid, p.Code)
	require.Len(t, p.Errors, 1, "%s", answer)
	require.Equal(t, location, p.Errors[0].Location, "%s", answer)
	return p.Errors[0]
}

// with adds a parameter to a path.
func with(path, query string) string {
	if strings.Contains(path, "?") {
		return path + "&" + query
	}
	return path + "?" + query
}

// TestNoRouteIgnoresAParameter: whatever it is called, however often it comes.
func TestNoRouteIgnoresAParameter(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	for _, r := range served(t) {
		path := samples[r.id].fill(t, w.ids)
		for _, name := range []string{"nonsense", "Limit", "environment_ids", "project_id", "environment_id[]"} {
			status, answer := w.call(t, key, r.method, with(path, name+"=CANARY"), samples[r.id].body)
			requireField(t, status, answer, "query."+name)
			require.NotContains(t, string(answer), "CANARY")
		}
		for _, p := range operationOf(t, w.world, r).Parameters {
			if p.In != "query" {
				continue
			}
			status, answer := w.call(t, key, r.method, with(samples[r.id].without(p.Name).fill(t, w.ids), p.Name+"="), samples[r.id].body)
			requireField(t, status, answer, "query."+p.Name)
			status, answer = w.call(t, key, r.method, with(samples[r.id].without(p.Name).fill(t, w.ids), p.Name+"=1&"+p.Name+"="), samples[r.id].body)
			requireField(t, status, answer, "query."+p.Name)
			if p.Explode != nil && *p.Explode {
				continue // a list
			}
			status, answer = w.call(t, key, r.method, with(samples[r.id].without(p.Name).fill(t, w.ids), p.Name+"=1&"+p.Name+"=2"), samples[r.id].body)
			requireField(t, status, answer, "query."+p.Name)
		}
		status, answer := w.call(t, key, r.method, with(path, "a=%zz"), samples[r.id].body)
		requireField(t, status, answer, "query")
	}
}

// without is the sample without its query, which has one parameter.
func (s sample) without(name string) sample {
	if path, query, ok := strings.Cut(s.path, "?"); ok && strings.HasPrefix(query, name+"=") {
		s.path = path
	}
	return s
}

// fieldNames matches the names in a body, with their quotes.
var fieldNames = regexp.MustCompile(`"[a-z_]+"(?:: ?)`)

// TestNoRouteIgnoresAField: whatever it is called, at every depth.
func TestNoRouteIgnoresAField(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	tried := 0
	for _, r := range served(t) {
		s := samples[r.id]
		if s.body == "" || r.takes != nil {
			continue
		}
		tried++
		path := s.fill(t, w.ids)
		status, answer := w.call(t, key, r.method, path, strings.Replace(s.body, "{", `{"nonsense":"CANARY",`, 1))
		within := "body"
		if strings.HasPrefix(s.body, "[") {
			within = "body[0]"
		}
		requireField(t, status, answer, within+".nonsense")
		require.NotContains(t, string(answer), "CANARY")
		for _, name := range fieldNames.FindAllString(s.body, -1) {
			status, answer = w.call(t, key, r.method, path, strings.Replace(s.body, name, strings.ToUpper(name), 1))
			require.Equal(t, http.StatusUnprocessableEntity, status, "%s takes %s: %s", r.id, strings.ToUpper(name), answer)
		}
		if strings.Contains(s.body, `"config":{`) {
			status, answer = w.call(t, key, r.method, path, strings.Replace(s.body, `"config":{`, `"config":{"nonsense":"CANARY",`, 1))
			requireField(t, status, answer, "body.config.nonsense")
			require.NotContains(t, string(answer), "CANARY")
		}
	}
	require.NotZero(t, tried)
}

// TestIDsAreTakenInEitherCaseOfLetters: in every place of every route.
func TestIDsAreTakenInEitherCaseOfLetters(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	for _, r := range served(t) {
		ids := w.idsFor(t, r)
		for noun, id := range ids {
			ids[noun] = strings.ToUpper(id)
		}
		path := "/v1/projects/" + strings.ToUpper(w.projectID.String()) + samples[r.id].fill(t, ids)
		answer := w.send(t, key, r.method, path, bodyFor(r))
		require.Equal(t, r.status, answer.Code, "%s: %s", r.id, answer.Body)
		require.NotContains(t, answer.Body.String(), strings.ToUpper(w.projectID.String()))
		for noun, id := range ids {
			require.NotContains(t, answer.Body.String(), id, "%s shows the id of the %s as ids are shown", r.id, noun)
			ids[noun] = strings.ToLower(id)
		}
	}
	listed := "/runs?environment_id="
	_, body := w.call(t, key, http.MethodGet, listed+strings.ToUpper(w.ids["environment"]), "")
	_, same := w.call(t, key, http.MethodGet, listed+w.ids["environment"], "")
	require.NotEmpty(t, idsOfRuns(t, body))
	require.Equal(t, idsOfRuns(t, same), idsOfRuns(t, body))
}

// TestWhatIsNotAnIDIsRefused: in every place of every route, by its name.
func TestWhatIsNotAnIDIsRefused(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	places := 0
	for _, r := range served(t) {
		for _, p := range operationOf(t, w.world, r).Parameters {
			if p.Schema.Format != "uuid" || p.Name == "project_id" {
				continue
			}
			for _, bad := range []string{"CANARY", "1", strings.ReplaceAll(w.ids["connector"], "-", ""), "urn:uuid:" + w.ids["connector"]} {
				var path string
				if p.In == "path" {
					path = strings.ReplaceAll(r.path, "{"+p.Name+"}", bad)
					path = strings.ReplaceAll(path, "{number}", "0")
					path = placeholder.ReplaceAllString(path, w.ids["connector"])
					if _, query, ok := strings.Cut(samples[r.id].fill(t, w.ids), "?"); ok {
						path += "?" + query
					}
				} else {
					path = with(samples[r.id].without(p.Name).fill(t, w.ids), p.Name+"="+bad)
				}
				status, answer := w.call(t, key, r.method, path, samples[r.id].body)
				require.Equal(t, "must be a UUID", requireField(t, status, answer, p.In+"."+p.Name).Message)
				require.NotContains(t, string(answer), "CANARY")
				places++
			}
		}
	}
	require.Greater(t, places, 40)
	var id ID
	require.True(t, id.IsZero())
	require.NoError(t, id.UnmarshalText([]byte(w.projectID.String())))
	require.False(t, id.IsZero())
	require.Error(t, id.UnmarshalText([]byte("{"+uuid.NewString()+"}")))
}

// TestABodyThatIsNotJSONSaysWhere: line, column and cause.
func TestABodyThatIsNotJSONSaysWhere(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	for body, want := range map[string]string{
		`{"name":`:                           "the body is not valid JSON: line 1, column 8: unexpected end of JSON input",
		"{\n  \"name\": \"a\",\n}":           "the body is not valid JSON: line 3, column 1: invalid character '}' looking for beginning of object key string",
		"{\n\"näme\": x}":                    "the body is not valid JSON: line 2, column 9: invalid character 'x' looking for beginning of value",
		`{} {}`:                              "the body is not valid JSON: line 1, column 4: invalid character '{' after top-level value",
		`{"name":"a","name":"b"}`:            `the body has the field "name" twice`,
		`{"a":[{"b":1},{"b":1,"b"` + `:2}]}`: `the body has the field "a[1].b" twice`,
	} {
		for _, r := range served(t) {
			if samples[r.id].body == "" || r.takes != nil {
				continue
			}
			answer := w.ask(t, key, r.method, samples[r.id].fill(t, w.ids), body)
			require.Equal(t, http.StatusBadRequest, answer.Code, "%s: %s", body, answer.Body)
			p := decode[Problem](t, answer.Body.Bytes())
			require.Equal(t, httpserver.CodeMalformed, p.Code)
			require.Equal(t, want, p.Detail)
		}
	}
	status, answer := w.call(t, key, http.MethodPost, "/connectors?environment_id="+w.ids["environment"], "")
	require.Equal(t, http.StatusBadRequest, status, "%s", answer)
	r := w.ask(t, key, http.MethodPost, "/connectors?environment_id="+w.ids["environment"], "name=a", "Content-Type", "text/plain")
	require.Equal(t, http.StatusUnsupportedMediaType, r.Code, "%s", r.Body)
	require.Equal(t, httpserver.CodeUnsupportedMedia, decode[Problem](t, r.Body.Bytes()).Code)
	r = w.ask(t, key, http.MethodPost, "/connectors?environment_id="+w.ids["environment"], strings.Repeat(" ", 1<<20)+"{}")
	require.Equal(t, http.StatusRequestEntityTooLarge, r.Code, "%s", r.Body)
	require.Equal(t, httpserver.CodeRequestTooLarge, decode[Problem](t, r.Body.Bytes()).Code)
}

// TestFieldsOfTheWrongTypeAreNamed: at every depth.
func TestFieldsOfTheWrongTypeAreNamed(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	connectors, links := "/connectors?environment_id="+w.ids["environment"], "/connectors/"+w.ids["connector"]+"/links"
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
		status, answer := w.call(t, key, http.MethodPost, c.path, c.body)
		requireField(t, status, answer, c.location)
	}
	status, answer := w.call(t, key, http.MethodGet, "/connectors", "")
	requireField(t, status, answer, "query.environment_id")
	status, answer = w.call(t, key, http.MethodGet, "/agents?include_variants=perhaps&environment_id="+w.ids["environment"], "")
	requireField(t, status, answer, "query.include_variants")
}

// TestAuthenticationIsSaidInOneOfTwoWays: or in both, as long as they agree.
func TestAuthenticationIsSaidInOneOfTwoWays(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key, path := w.key(t, nil), "/connectors?environment_id="+w.ids["environment"]
	for config, want := range map[string]string{
		`{}`:                               "secret",
		`{"authentication":"secret"}`:      "secret",
		`{"authentication":"none"}`:        "none",
		`{"require_authentication":true}`:  "secret",
		`{"require_authentication":false}`: "none",
		`{"authentication":"none","require_authentication":false}`:             "none",
		`{"authentication":"secret","require_authentication":true}`:            "secret",
		`{"authentication":"none","require_authentication":true}`:              "body.config.require_authentication",
		`{"authentication":"secret","require_authentication":false}`:           "body.config.require_authentication",
		`{"authentication":"github"}`:                                          "github",
		`{"authentication":"standard_webhooks","require_authentication":true}`: "standard_webhooks",
		`{"authentication":"slack","require_authentication":false}`:            "body.config.require_authentication",
		`{"authentication":"StandardWebhooks"}`:                                "body.config.authentication",
		`{"context_headers":["Authorization"]}`:                                "body.config.context_headers",
		`{"context_headers":["a b"]}`:                                          "body.config.context_headers",
		`{"context_headers":"a"}`:                                              "body.config.context_headers",
		`{"authentication":"Secret"}`:                                          "body.config.authentication",
	} {
		status, answer := w.call(t, key, http.MethodPost, path, `{"name":"`+uuid.NewString()+`","type":"webhook","config":`+config+`}`)
		if strings.HasPrefix(want, "body.") {
			requireField(t, status, answer, want)
			continue
		}
		require.Equal(t, http.StatusCreated, status, "%s: %s", config, answer)
		conn := decode[Connector](t, answer)
		shown := conn.Config.Value.(map[string]any)
		require.Equal(t, want, shown["authentication"], config)
		require.Equal(t, want != "none", shown["require_authentication"], config)
		require.Equal(t, want != "none", conn.Secret != nil, config)
	}
}
