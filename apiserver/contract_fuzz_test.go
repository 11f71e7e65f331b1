// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/apiserver"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/testenv"
	"github.com/agentplatform/agentplatform/store/postgres"
)

var (
	fuzzRequests = flag.Int("contract.requests", 20, "requests a route and engine of the fuzz from the description")
	fuzzSeed     = flag.Uint64("contract.seed", 1, "where that fuzz begins")
)

// junk are values that no parameter or field expects, or only at its bounds. They are
// made anew each time, since those with something in them are spoilt in turn.
func junk() []any {
	return []any{
		nil, true, false, "", " ", "\x00", "null", "********", "../../etc/passwd", "%00", "\u202e", "é\u0301", strings.Repeat("a", 10_000), "😀",
		strings.Repeat("[", 64), `{"a":`, "2026-13-45T99:99:99Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999999Z", "00000000-0000-0000-0000-000000000000",
		0, -1, 1, 0.5, 1e308, 9007199254740993, json.Number("1e400"), json.Number("-0"), []any{}, []any{nil}, map[string]any{}, map[string]any{"": nil},
	}
}

// generator makes requests from the description: for the most part as it says, and then
// something about them is spoilt.
type generator struct {
	*rand.Rand
	registry huma.Registry
	ids      []string
}

func pick[T any](g *generator, from []T) T { return from[g.IntN(len(from))] }

// value is one that fits a schema, more or less.
func (g *generator) value(s *huma.Schema, depth int) any {
	if s == nil || depth > 6 {
		return nil
	}
	if s.Ref != "" {
		return g.value(g.registry.SchemaFromRef(s.Ref), depth)
	}
	for _, alternatives := range [][]*huma.Schema{s.OneOf, s.AnyOf} {
		if len(alternatives) > 0 {
			return g.value(pick(g, alternatives), depth+1)
		}
	}
	if len(s.Enum) > 0 {
		return pick(g, s.Enum)
	}
	switch s.Type {
	case huma.TypeObject:
		out := map[string]any{}
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			if slices.Contains(s.Required, name) || g.IntN(2) == 0 {
				out[name] = g.value(s.Properties[name], depth+1)
			}
		}
		return out
	case huma.TypeArray:
		out := make([]any, g.IntN(4))
		for i := range out {
			out[i] = g.value(s.Items, depth+1)
		}
		return out
	case huma.TypeInteger, huma.TypeNumber:
		return g.number(s)
	case huma.TypeBoolean:
		return g.IntN(2) == 0
	}
	return g.text(s)
}

// number is at a bound of a schema, or beside it.
func (g *generator) number(s *huma.Schema) any {
	around := []float64{0, 1, 25}
	for _, bound := range []*float64{s.Minimum, s.Maximum} {
		if bound != nil {
			around = append(around, *bound-1, *bound, *bound+1)
		}
	}
	return pick(g, around)
}

func (g *generator) text(s *huma.Schema) any {
	switch s.Format {
	case "uuid":
		return pick(g, g.ids)
	case "date-time":
		return pick(g, []string{"2026-01-01T00:00:00Z", "2026-01-01T00:00:00+02:00", "2030-02-29T00:00:00Z"})
	case "uri":
		return pick(g, []string{"https://example.com/hook", "http://169.254.169.254/", "ftp://x", "//"})
	}
	if s.MaxLength != nil && g.IntN(4) == 0 {
		return strings.Repeat("b", *s.MaxLength+g.IntN(2))
	}
	return pick(g, []string{"CRM", "hello", "eu-west-1", "0 7 * * 1", "REGION", "main", uuid.NewString()[:8]})
}

// spoil changes something somewhere in a value.
func (g *generator) spoil(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 || g.IntN(6) == 0 {
			v[pick(g, []string{"nonsense", "", "$ref", "__proto__"})] = pick(g, junk())
			return v
		}
		name := pick(g, slices.Sorted(maps.Keys(v)))
		if g.IntN(5) == 0 {
			delete(v, name)
			return v
		}
		v[name] = g.spoil(v[name])
		return v
	case []any:
		if len(v) == 0 || g.IntN(3) == 0 {
			return append(v, pick(g, junk()))
		}
		i := g.IntN(len(v))
		v[i] = g.spoil(v[i])
		return v
	}
	return pick(g, junk())
}

// body is one of an operation: from its sample or its schema, whole, spoilt, or torn.
func (g *generator) body(t testing.TB, r rest.Endpoint, op *huma.Operation) string {
	if op.RequestBody == nil {
		return pick(g, []string{"", "", "", "{}", "null", "x"})
	}
	if r.Upload != nil {
		return pick(g, []string{apiservertest.Upload, apiservertest.Upload[:1], apiservertest.Upload[:2], "{}", ""})
	}
	var value any
	if sample := bodyFor(r); sample != "" && g.IntN(2) == 0 {
		require.NoError(t, json.Unmarshal([]byte(sample), &value))
	} else {
		value = g.value(op.RequestBody.Content["application/json"].Schema, 0)
	}
	for range g.IntN(3) {
		value = g.spoil(value)
	}
	text, err := json.Marshal(value)
	if err != nil {
		return `{"number":1e400}` // which no number of Go is
	}
	switch g.IntN(20) {
	case 0:
		return string(text[:g.IntN(len(text)+1)])
	case 1:
		return string(text) + string(text)
	case 2:
		return strings.Repeat(`{"a":`, 5_000) + "1" + strings.Repeat("}", 5_000)
	}
	return string(text)
}

// path is the path of a sample with parameters of the description.
func (g *generator) path(t testing.TB, r rest.Endpoint, op *huma.Operation, ids map[string]string) string {
	path, query, _ := strings.Cut(apiservertest.FillPath(t, r.Example.Path, ids), "?")
	if g.IntN(4) == 0 {
		parts := strings.Split(path, "/")
		parts[len(parts)-1-g.IntN(len(parts)-1)] = url.PathEscape(fmt.Sprint(g.spoil(pick(g, g.ids))))
		path = strings.Join(parts, "/")
	}
	values, err := url.ParseQuery(query)
	require.NoError(t, err)
	for _, p := range op.Parameters {
		if p.In == "query" && g.IntN(3) == 0 {
			value := g.value(p.Schema, 0)
			if g.IntN(3) == 0 {
				value = pick(g, junk())
			}
			values.Add(p.Name, fmt.Sprint(value))
		}
	}
	return path + "?" + values.Encode()
}

func (g *generator) headers() (out []string) {
	all := [][2]string{
		{"If-Match", `"x"`}, {"If-Match", "*"}, {"If-Match", "W/\"" + strings.Repeat("1", 300) + `"`}, {"Idempotency-Key", "k"}, {"Idempotency-Key", strings.Repeat("k", 300)},
		{"Content-Type", "text/plain"}, {"Content-Type", "application/json; charset=latin1"}, {"Content-Type", ""}, {"Accept", "application/cbor"}, {"Accept", "nonsense"},
		{"Last-Event-ID", "-1"}, {"Last-Event-ID", "x"}, {"Prefer", "respond-async"}, {"Accept-Encoding", "br"},
	}
	for range g.IntN(3) {
		h := pick(g, all)
		out = append(out, h[0], h[1])
	}
	return out
}

// The test sends valid and invalid requests to each endpoint on a real kube-apiserver and both stores. No response is a
// 500, and each response matches its schema.
func TestContract_HoldsForRandomRequests(t *testing.T) {
	t.Parallel()
	for engine, open := range map[string]func(testing.TB) *apiservertest.Project{"sqlite": apiservertest.NewProject, "postgres": newPostgresProject} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			fuzz(t, apiservertest.NewHistory(t, open(t)))
		})
	}
}

func newPostgresProject(t testing.TB) *apiservertest.Project {
	t.Helper()
	db, err := postgres.Open(t.Context(), postgres.Options{DSN: testenv.Postgres(t), Logger: apiservertest.DiscardLogger()})
	require.NoError(t, err)
	return apiservertest.NewProjectOn(t, db)
}

func fuzz(t *testing.T, p *apiservertest.ProjectWithHistory) {
	p.Server.Service.RequestTimeout = 10 * time.Minute // a slow machine is no mistake of the service
	key, url := p.CreateKey(t, nil), listen(t, p.Server)
	statuses := map[int]int{}
	sent := 0
	for i, r := range apiservertest.SupportedEndpoints(t) {
		g := &generator{Rand: rand.New(rand.NewPCG(*fuzzSeed, uint64(i))), registry: p.Server.OpenAPI().Components.Schemas}
		op := rest.OperationOf(p.Server.OpenAPI(), &r)
		var ids map[string]string
		for n := range *fuzzRequests {
			if n%10 == 0 {
				ids = idsForExample(t, p, r)
				g.ids = append(slices.Sorted(maps.Values(ids)), uuid.NewString(), strings.ToUpper(ids["connector"]))
			}
			path, body, headers := g.path(t, r, op, ids), g.body(t, r, op), g.headers()
			answer := transmit(t, p.Project, url, key, r.Method, "/v1/projects/"+p.ProjectID.String()+path, body, headers...)
			require.Less(t, answer.Code, http.StatusInternalServerError, "%s %s\n%q %.2000s\n%s", r.Method, path, headers, body, answer.Body)
			statuses[answer.Code]++
			sent++
		}
	}
	t.Logf("%d requests, none answered 5xx, every answer as its schema says: %v", sent, statuses)
	for _, status := range []int{200, 201, 400, 404, 409, 412, 415, 422} {
		require.Positive(t, statuses[status], "nothing was answered %d, so the requests are too much alike", status)
	}
}

// listen is the URL of a facade at a port like that of its process.
func listen(t *testing.T, s *apiserver.Server) (url string) {
	t.Helper()
	server, err := httpserver.New(httpserver.Options{Name: "facade", Addr: "127.0.0.1:0", Handler: s.Handler(), Logger: apiservertest.DiscardLogger()})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-ended)
	})
	return "http://" + server.Addr()
}

// transmit is send by a socket.
func transmit(t *testing.T, w *apiservertest.Project, url, key, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader(body))
	require.NoError(t, err)
	apiservertest.SetHeaders(request, key, body, headers)
	response, err := (&http.Client{}).Do(request)
	require.NoError(t, err, "%s %s\n%q %.2000s", method, path, headers, body)
	defer response.Body.Close()
	answer := httptest.NewRecorder()
	maps.Copy(answer.Header(), response.Header)
	if response.Header.Get("Content-Disposition") == "" { // of all but files net/http says it
		answer.Header().Del("Content-Length")
	}
	answer.WriteHeader(response.StatusCode)
	_, err = io.Copy(answer, response.Body)
	require.NoError(t, err, "%s %s", method, path)
	w.RequireDescribed(t, request, answer)
	return answer
}
