// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"cmp"
	"net/http"
	"regexp"
	"slices"
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
			if !slices.Contains(nullable, p.Name) {
				status, answer := w.call(t, key, r.method, with(samples[r.id].without(p.Name).fill(t, w.ids), p.Name+"="), samples[r.id].body)
				requireField(t, status, answer, "query."+p.Name)
			}
			status, answer := w.call(t, key, r.method, with(samples[r.id].without(p.Name).fill(t, w.ids), p.Name+"=1&"+p.Name+"="), samples[r.id].body)
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
		`{"name":`:                           "the body is not valid JSON: line 1, column 9: unexpected end",
		"{\n  \"name\": \"a\",\n}":           "the body is not valid JSON: line 3, column 1: unexpected character",
		"{\n\"näme\": x}":                    "the body is not valid JSON: line 2, column 9: unexpected character",
		`{} {}`:                              "the body is not valid JSON: line 1, column 4: unexpected character",
		`{"name":"a","name":"b"}`:            `the body has the field "name" twice`,
		`{"a":[{"b":1},{"b":1,"b"` + `:2}]}`: `the body has the field "a[1].b" twice`,
	} {
		t.Run(body, func(t *testing.T) {
			for _, r := range served(t) {
				if samples[r.id].body == "" || r.takes != nil {
					continue
				}
				answer := w.ask(t, key, r.method, samples[r.id].fill(t, w.ids), body)
				require.Equal(t, want, requireField(t, answer.Code, answer.Body.Bytes(), "body").Message)
			}
		})
	}
	status, answer := w.call(t, key, http.MethodPost, "/connectors?environment_id="+w.ids["environment"], "")
	require.Equal(t, "is required", requireField(t, status, answer, "body").Message)
	r := w.ask(t, key, http.MethodPost, "/connectors?environment_id="+w.ids["environment"], "name=a", "Content-Type", "text/plain")
	require.Equal(t, http.StatusUnsupportedMediaType, r.Code, "%s", r.Body)
	require.Equal(t, httpserver.CodeUnsupportedMedia, decode[Problem](t, r.Body.Bytes()).Code)
	r = w.ask(t, key, http.MethodPost, "/connectors?environment_id="+w.ids["environment"], strings.Repeat(" ", 1<<20)+"{}")
	require.Equal(t, http.StatusRequestEntityTooLarge, r.Code, "%s", r.Body)
	require.Equal(t, httpserver.CodeRequestTooLarge, decode[Problem](t, r.Body.Bytes()).Code)
}

// A body is UTF-8, or it is refused and nothing of it is changed.
func TestBody_RejectsWhatIsNotUTF8(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key, path := w.key(t, nil), "/environments"
	for name, c := range map[string]struct{ body, wrong string }{
		"latin1":              {"{\"name\":\n\"caf\xe9\"}", "line 2, column 5: "},
		"a lone surrogate":    {`{"name":"a\ud800"}`, "line 1, column 11: an escape is half of a surrogate pair"},
		"the second half":     {`{"name":"\udc00a"}`, "line 1, column 10: an escape is half of a surrogate pair"},
		"a name that is none": {"{\"\xff\":1}", "line 1, column 3: "},
		"a number too large":  {`{"name":"a","n":1e400}`, "line 1, column 17: the number is too large"},
	} {
		t.Run(name, func(t *testing.T) {
			status, answer := w.call(t, key, http.MethodPost, path, c.body)
			require.Contains(t, requireField(t, status, answer, "body").Message, "the body is not valid JSON: "+c.wrong)
		})
	}
	for _, charset := range []string{"iso-8859-1", "utf-16"} {
		answer := w.ask(t, key, http.MethodPost, path, `{"name":"a"}`, "Content-Type", "application/json; charset="+charset)
		require.Equal(t, http.StatusUnsupportedMediaType, answer.Code, "%s: %s", charset, answer.Body)
		require.Equal(t, httpserver.CodeUnsupportedMedia, decode[Problem](t, answer.Body.Bytes()).Code)
	}
	for body, want := range map[string]string{"\ufeff{\"name\":\"mark\"}": "mark", `{"name":"\ud83d\ude00 \\ud800"}`: "\U0001F600 \\ud800"} {
		t.Run(body, func(t *testing.T) {
			answer := w.ask(t, key, http.MethodPost, path, body, "Content-Type", "application/json; charset=utf8")
			require.Equal(t, http.StatusCreated, answer.Code, "%s", answer.Body)
			require.Equal(t, want, decode[Environment](t, answer.Body.Bytes()).Name)
		})
	}
}

// JSON has one number, however it is written: 60.0 and 6e1 are integers. A parameter is text.
func TestBody_TakesIntegersInEachForm(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	for _, number := range []string{"60", "60.0", "6e1", "0.6E+2", "600e-1"} {
		body := `{"name":"n` + number + `","type":"webhook","mode":"sync","config":{"timeout_seconds":` + number + `}}`
		status, answer := w.call(t, key, http.MethodPost, "/connectors?environment_id="+w.ids["environment"], body)
		require.Equal(t, http.StatusCreated, status, "%s: %s", number, answer)
		require.Contains(t, string(answer), `"timeout_seconds":60`)
		status, answer = w.call(t, key, http.MethodPost, "/environments", `{"name":"e`+number+`","settings":{"runner":{"max_replicas":`+number+`}}}`)
		require.Equal(t, http.StatusCreated, status, "%s: %s", number, answer)
	}
	status, answer := w.call(t, key, http.MethodGet, "/runs?limit=60.0", "")
	requireField(t, status, answer, "query.limit")
}

func TestPlainIntegers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`[1.0, 1e2, -2.50e1, 0.0, -0e5, 1e18]`: `[1, 100, -25, 0, 0, 1000000000000000000]`,
		`[1.5, 1e-1, 1e19, 1e999999999999]`:    `[1.5, 1e-1, 1e19, 1e999999999999]`,
		`{"1.0":"a 1.0 \" 2e1 \\\\","b":3.0}`:  `{"1.0":"a 1.0 \" 2e1 \\\\","b":3}`,
		`[007.0e0, 60.00000000000000000001]`:   `[7, 60.00000000000000000001]`,
	} {
		t.Run(text, func(t *testing.T) {
			require.Equal(t, want, string(plainIntegers([]byte(text))))
		})
	}
}

// A parameter that is nullable is left out where it is empty or null.
func TestQuery_TakesNullAsDefault(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key, asked := w.key(t, nil), 0
	for _, r := range served(t) {
		for _, p := range operationOf(t, w.world, r).Parameters {
			if p.In != "query" || !slices.Contains(nullable, p.Name) {
				continue
			}
			asked++
			plain := samples[r.id].without(p.Name).fill(t, w.ids)
			_, want := w.call(t, key, r.method, plain, "")
			for _, value := range []string{"", "null"} {
				status, answer := w.call(t, key, r.method, with(plain, p.Name+"="+value), "")
				require.Equal(t, http.StatusOK, status, "%s: %s", r.id, answer)
				require.JSONEq(t, string(want), string(answer), r.id)
			}
		}
	}
	require.GreaterOrEqual(t, asked, 3)
}

// What is wrong with a value is said in one way, with what it must be.
func TestProblem_SaysWhatAValueMustBe(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key, connectors := w.key(t, nil), "/connectors?environment_id="+w.ids["environment"]
	for _, c := range []struct{ method, path, body, location, message string }{
		{http.MethodGet, "/agents?include_variants=perhaps&environment_id=" + w.ids["environment"], "", "query.include_variants", "must be true or false"},
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
			status, answer := w.call(t, key, c.method, c.path, c.body)
			require.Equal(t, c.message, requireField(t, status, answer, c.location).Message, c.path)
		})
	}
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
		t.Run(c.path+" "+c.body, func(t *testing.T) {
			status, answer := w.call(t, key, http.MethodPost, c.path, c.body)
			requireField(t, status, answer, c.location)
		})
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
		t.Run(config, func(t *testing.T) {
			status, answer := w.call(t, key, http.MethodPost, path, `{"name":"`+uuid.NewString()+`","type":"webhook","config":`+config+`}`)
			if strings.HasPrefix(want, "body.") {
				requireField(t, status, answer, want)
				return
			}
			require.Equal(t, http.StatusCreated, status, "%s", answer)
			conn := decode[Connector](t, answer)
			shown := conn.Config.Value.(map[string]any)
			require.Equal(t, want, shown["authentication"])
			require.Equal(t, want != "none", shown["require_authentication"])
			require.Equal(t, want != "none", conn.Secret != nil)
		})
	}
}

// Every list that has status_filter takes it repeatedly, and has it of one declaration.
func TestStatusFilter_RepeatsInEveryList(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key, doc := w.key(t, nil), ""
	var lists []string
	for _, r := range served(t) {
		for _, p := range operationOf(t, w.world, r).Parameters {
			if p.Name != "status_filter" {
				continue
			}
			lists = append(lists, r.id)
			doc = cmp.Or(doc, p.Description)
			require.Equal(t, doc, p.Description, "%s declares its own: embed StatusFilter", r.id)
			require.Equal(t, "array", p.Schema.Type, r.id)
			query := "status_filter=completed&status_filter=failed&status_filter=completed"
			status, body := w.call(t, key, r.method, with(samples[r.id].fill(t, w.ids), query), samples[r.id].body)
			require.Equal(t, http.StatusOK, status, "%s: %s", r.id, body)
		}
	}
	require.ElementsMatch(t, []string{"getAgent", "listRuns", "listConnectorRuns"}, lists)
}
