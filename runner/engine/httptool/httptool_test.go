// SPDX-License-Identifier: Apache-2.0

package httptool

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
)

// received is a request that a service received.
type received struct {
	method, uri, body string
	header            http.Header
}

// service is an HTTP server that records its requests.
type service struct {
	*httptest.Server
	mu   sync.Mutex
	seen []received
}

// newService starts a server. It records each request before handle responds.
func newService(t *testing.T, handle http.HandlerFunc) *service {
	t.Helper()
	s := &service{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		s.mu.Lock()
		s.seen = append(s.seen, received{r.Method, r.RequestURI, string(body), r.Header.Clone()})
		s.mu.Unlock()
		handle(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

// requests returns the recorded requests.
func (s *service) requests() []received {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]received(nil), s.seen...)
}

// loopback allows the addresses of test servers.
var loopback = egress.Rules{Allowed: map[egress.Purpose][]netip.Prefix{egress.Tool: {netip.MustParsePrefix("127.0.0.0/8")}}}

// newClient returns a client for a service, whose URL is the variable URL. Variables are pairs of a name and a value;
// the name of a sensitive one begins with SECRET.
func newClient(t *testing.T, url string, variables ...string) *Client {
	t.Helper()
	all := []runnerconfig.Variable{{Name: "URL", Value: url}}
	for i := 0; i < len(variables); i += 2 {
		all = append(all, runnerconfig.Variable{Name: variables[i], Value: variables[i+1], Sensitive: strings.HasPrefix(variables[i], "SECRET")})
	}
	client := egress.New(loopback).Client(egress.Tool, egress.ClientOptions{MaxResponse: 8 << 20})
	t.Cleanup(client.CloseIdleConnections)
	return New(Config{Client: client, Variables: func() (runnerconfig.Variables, error) { return runnerconfig.Sorted(all), nil }})
}

// newTool returns a tool from the keys of a file and of the tool.
func newTool(t testing.TB, request, keys string) *bundle.HTTPTool {
	t.Helper()
	file := "base_url: ${URL}\ntools:\n  x:\n    description: X\n    request: " + request + "\n" + indent(keys)
	return toolIn(t, file, "t.x")
}

func indent(keys string) string {
	var out strings.Builder
	for line := range strings.Lines(keys) {
		out.WriteString("    " + line)
	}
	return out.String()
}

// toolIn returns a tool of a file.
func toolIn(t testing.TB, file, reference string) *bundle.HTTPTool {
	t.Helper()
	p, err := bundle.Parse(bundle.Files{"agents/a.yaml": []byte("name: a\nmodel: openai/x\ntools: ['t.*']\n"), "tools/t.yaml": []byte(file)})
	require.NoError(t, err)
	tools := p.HTTPTools(reference)
	require.Len(t, tools, 1)
	return tools[0]
}

// arguments decodes the arguments of a call.
func arguments(t testing.TB, text string) (args map[string]any) {
	t.Helper()
	require.NoError(t, exactjson.Decode([]byte(text), &args))
	return args
}

func respond(status int, contentType, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body) // the client may have gone
	}
}

// A request has the values of its arguments, escaped for their position.
func TestTool_RendersRequests(t *testing.T) {
	t.Parallel()
	text := "parameters: {a: {type: string}}\n"
	for name, c := range map[string]struct{ request, keys, args, uri, body, header string }{
		"path":             {"GET /o/{a}", text, `{"a":"x y"}`, "/v1/o/x%20y", "", ""},
		"slash":            {"GET /o/{a}/z", text, `{"a":"x/y"}`, "/v1/o/x%2Fy/z", "", ""},
		"question mark":    {"GET /o/{a}", text, `{"a":"x?admin=1"}`, "/v1/o/x%3Fadmin=1", "", ""},
		"hash":             {"GET /o/{a}/z", text, `{"a":"x#y"}`, "/v1/o/x%23y/z", "", ""},
		"escaped slash":    {"GET /o/{a}", text, `{"a":"x%2fy"}`, "/v1/o/x%252fy", "", ""},
		"escaped dots":     {"GET /o/{a}", text, `{"a":"%2e%2e"}`, "/v1/o/%252e%252e", "", ""},
		"unicode":          {"GET /o/{a}", text, `{"a":"größe/日本"}`, "/v1/o/gr%C3%B6%C3%9Fe%2F%E6%97%A5%E6%9C%AC", "", ""},
		"line break":       {"GET /o/{a}", text, `{"a":"x\r\nHost: evil"}`, "/v1/o/x%0D%0AHost:%20evil", "", ""},
		"number in a path": {"GET /o/{a}", "parameters: {a: {type: integer}}\n", `{"a":9007199254740993}`, "/v1/o/9007199254740993", "", ""},
		"query":            {"GET /o", text + "query: {q: 'is {a}'}\n", `{"a":"a&b=c d"}`, "/v1/o?q=is+a%26b%3Dc+d", "", ""},
		"list in a query":  {"GET /o", "parameters: {a: {type: array}}\nquery: {q: '{a}'}\n", `{"a":["x",2,true]}`, "/v1/o?q=x&q=2&q=true", "", ""},
		"list in a text":   {"GET /o", "parameters: {a: {type: array}}\nquery: {q: 'ids {a}'}\n", `{"a":["x",2]}`, "/v1/o?q=ids+x%2C2", "", ""},
		"missing":          {"GET /o", "parameters: {a: {type: string, optional: true}}\nquery: {q: '{a}', r: 'x{a}', s: z}\n", `{}`, "/v1/o?s=z", "", ""},
		"null":             {"GET /o", "parameters: {a: {type: [string, 'null']}}\nquery: {q: '{a}'}\n", `{"a":null}`, "/v1/o", "", ""},
		"default":          {"GET /o", "parameters: {a: {type: integer, default: 10}}\nquery: {q: '{a}'}\n", `{}`, "/v1/o?q=10", "", ""},
		"header":           {"GET /o", text + "headers: {x-a: 'id {a}'}\n", `{"a":" ü\t1 "}`, "/v1/o", "", "id  ü\t1"},
		"missing header":   {"GET /o", "parameters: {a: {type: string, optional: true}}\nheaders: {x-a: '{a}'}\n", `{}`, "/v1/o", "", ""},
		"json": {"POST /o", "parameters: {a: {type: integer}, b: {type: object}, c: {type: string, optional: true}}\njson: {id: '{a}', text: 'n {a}', in: ['{b}', '{c}'], c: '{c}', html: <>}\n",
			`{"a":9007199254740993,"b":{"x":1e2}}`, "/v1/o", `{"html":"<>","id":9007199254740993,"in":[{"x":1e2}],"text":"n 9007199254740993"}`, ""},
		"json of one argument": {"PUT /o", "parameters: {a: {}}\njson: '{a}'\n", `{"a":[1]}`, "/v1/o", `[1]`, ""},
		"form":                 {"POST /o", text + "form: {a: '{a}', b: c}\n", `{"a":"ä&="}`, "/v1/o", "a=%C3%A4%26%3D&b=c", ""},
		"no body":              {"POST /o/{a}", text, `{"a":"x"}`, "/v1/o/x", "", ""},
		"variable":             {"GET /o/${REGION}", "query: {r: '${REGION}'}\n", `{}`, "/v1/o/eu%2F1?r=eu%2F1", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, respond(200, "application/json", `{}`))
			tool := newTool(t, c.request, c.keys)
			_, err := newClient(t, s.URL+"/v1/", "REGION", "eu/1\n").runTool(t.Context(), tool, arguments(t, c.args), "run/1")
			require.NoError(t, err)
			requests := s.requests()
			require.Len(t, requests, 1)
			require.Equal(t, c.uri, requests[0].uri)
			require.Equal(t, c.body, requests[0].body)
			require.Equal(t, c.header, requests[0].header.Get("X-A"))
			if tool.IsRead() {
				require.Empty(t, requests[0].header.Get("Idempotency-Key"))
			} else {
				require.Equal(t, "run/1", requests[0].header.Get("Idempotency-Key"))
			}
		})
	}
}

// Arguments that would change the target of a request are rejected before anything is sent.
func TestTool_RejectsArguments(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ request, keys, args, want string }{
		"parent":                {"GET /o/{a}", "", `{"a":".."}`, "a: must not contain a part . or .., because it is part of the path"},
		"traversal":             {"GET /o/{a}", "", `{"a":"../admin"}`, "a: must not contain a part . or .."},
		"traversal inside":      {"GET /o/{a}", "", `{"a":"x/../../admin"}`, "a: must not contain a part . or .."},
		"backslashes":           {"GET /o/{a}", "", `{"a":"x\\..\\admin"}`, "a: must not contain a part . or .."},
		"dot beside a literal":  {"GET /o/{a}.", "", `{"a":"."}`, "must not contain a part . or .."},
		"dots of two arguments": {"GET /o/{a}{a}", "", `{"a":"."}`, "must not contain a part . or .."},
		"empty":                 {"GET /o/{a}", "", `{"a":""}`, "a: must not be empty, because it is part of the path"},
		"line break in header":  {"GET /o", "headers: {x-a: '{a}'}\n", `{"a":"x\r\nX-Admin: 1"}`, "a: the value of the header X-A has a line break or another control character"},
		"NUL in header":         {"GET /o", "headers: {x-a: '{a}'}\n", `{"a":"x\u0000"}`, "a: the value of the header X-A has a line break"},
		"long":                  {"GET /o", "query: {q: '{a}{a}{a}'}\n", `{"a":"` + strings.Repeat("x", 400<<10) + `"}`, "the request would have more than 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, respond(200, "application/json", `{}`))
			_, err := newClient(t, s.URL).runTool(t.Context(), newTool(t, c.request, "parameters: {a: {type: string}}\n"+c.keys), arguments(t, c.args), "run/1")
			require.ErrorContains(t, err, c.want)
			require.Empty(t, s.requests())
		})
	}
}

// A missing or unusable variable is named, and its value is not shown.
func TestTool_RejectsVariables(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		request, keys, url, want string
	}{
		"missing":               {"GET /o/${NONE}", "", "http://127.0.0.1", `the environment has no variable "NONE", which the tool needs`},
		"no URL":                {"GET /o", "", "SECRET-orders", "the base_url of the tool must be an http or https URL; correct the variable"},
		"password in the URL":   {"GET /o", "", "https://me:SECRET-1@a.example", "the base_url of the tool must not have a user name or password"},
		"line break in header":  {"GET /o", "headers: {x-a: '${BROKEN}'}\n", "http://127.0.0.1", "the value of the header X-A has a line break"},
		"URL that parses badly": {"GET /o", "", "http://[SECRET-1", "the base_url of the tool must be an http or https URL"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newClient(t, c.url, "BROKEN", "SECRET-a\nb").runTool(t.Context(), newTool(t, c.request, c.keys), nil, "run/1")
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "SECRET-")
		})
	}
	_, err := New(Config{}).runTool(t.Context(), newTool(t, "GET /o", ""), nil, "run/1")
	require.EqualError(t, err, "HTTP tools are not available here")
}

// A result is the value of the key result, or the status and the body.
func TestTool_ReturnsResults(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", 20<<10)
	for name, c := range map[string]struct {
		keys, contentType, body string
		status                  int
		want, err               string
	}{
		"json":                   {"", "application/json", `{"id":9007199254740993,"p":1.10}`, 200, `{"status":200,"body":{"id":9007199254740993,"p":1.10}}`, ""},
		"json without a type":    {"", "text/plain", ` [1]`, 200, `{"status":200,"body":[1]}`, ""},
		"text":                   {"", "text/html; charset=utf-8", "<p>123", 201, `{"status":201,"body":"<p>123"}`, ""},
		"number as text":         {"", "text/plain", "123", 200, `{"status":200,"body":"123"}`, ""},
		"broken json":            {"", "application/json", `{"a":`, 200, `{"status":200,"body":"{\"a\":"}`, ""},
		"huge number":            {"", "application/json", `{"a":1e999}`, 200, `{"status":200,"body":"{\"a\":1e999}"}`, ""},
		"empty":                  {"", "application/json", "", 200, `{"status":200,"body":null}`, ""},
		"binary":                 {"", "image/png", "\x89PNG\x00\xff", 200, `{"status":200,"body":"(6 bytes of the type \"image/png\", which is not text)"}`, ""},
		"result":                 {"result: '{\"id\": body.id, \"s\": status, \"t\": headers[\"content-type\"]}'\n", "application/json", `{"id":9007199254740993}`, 200, `{"id":9007199254740993,"s":200,"t":"application/json"}`, ""},
		"result that is no map":  {"result: body.a\n", "application/json", `{"a":[1]}`, 200, `{"result":[1]}`, ""},
		"result that fails":      {"result: body.a\n", "application/json", `{}`, 200, "", "the response of the service does not fit the result of the tool: no such key: a"},
		"error":                  {"result: body.a\n", "application/json", `{"error": "out  of\nstock"}`, 409, "", `the service responded with the status 409: {"error":"out of\nstock"}`},
		"error without a body":   {"", "text/plain", "", 500, "", "the service responded with the status 500"},
		"long error":             {"", "text/plain", strings.Repeat("x ", 5000), 500, "", "the service responded with the status 500: x x"},
		"on_status":              {"on_status: {404: There is no such order.}\n", "application/json", `{}`, 404, "", "There is no such order."},
		"on_status of a success": {"on_status: {202: Try again later.}\n", "application/json", `{}`, 202, "", "Try again later."},
		"long text":              {"", "text/plain", long, 200, `{"status":200,"truncated":true,"body":"` + long[:16<<10] + `"}`, ""},
		"long json":              {"", "application/json", `["` + long + `"]`, 200, `{"status":200,"truncated":true,"body":"[\"` + long[:16<<10-2] + `"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, respond(c.status, c.contentType, c.body))
			got, err := newClient(t, s.URL).runTool(t.Context(), newTool(t, "GET /o", c.keys), nil, "run/1")
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				require.Less(t, len(err.Error()), 2<<10)
				require.NotContains(t, err.Error(), "\n")
				return
			}
			require.NoError(t, err)
			text, err := json.Marshal(got)
			require.NoError(t, err)
			require.JSONEq(t, c.want, string(text))
			if strings.Contains(c.want, "9007199254740993") {
				require.Contains(t, string(text), "9007199254740993")
			}
		})
	}
}
