// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
)

// ordersFile has a tool for each part of a request.
const ordersFile = `base_url: ${ORDERS_URL}/v1
headers: {authorization: 'Bearer ${ORDERS_TOKEN}', X-Shared: file}
timeout: 5s
tools:
  look_up:
    description: State of an order.
    parameters:
      order: {type: string, pattern: '^[0-9]{1,10}$'}
      fields: {type: array, items: {type: string}, optional: true}
      limit: {type: integer, default: 10}
    request: GET /orders/{order}
    query: {fields: '{fields}', limit: '{limit}'}
    headers: {x-shared: '{order}'}
    result: '{"state": body.state}'
    on_status: {404: There is no such order.}
  refund:
    description: Refunds an order.
    parameters:
      type: object
      properties: {order: {type: string}, amount: {$ref: '#/$defs/money'}, note: {type: string, default: none}}
      required: [order, amount]
      $defs: {money: {type: number, minimum: 0}}
    request: POST /orders/{order}/refunds
    json: {amount: '{amount}', note: 'Because: {note}', braces: '{{}} $${X} $5', list: [1, '{note}', null]}
    idempotent: true
`

// toolRepository returns a repository whose agent names tools.
func toolRepository(tools string, more ...string) bundle.Files {
	return newFiles(append([]string{"agents/a.yaml", "name: a\nmodel: openai/x\ntools: " + tools + "\n"}, more...)...)
}

func TestParse_HTTPTools(t *testing.T) {
	t.Parallel()
	p, err := bundle.Parse(toolRepository("[shop.orders.*]", "tools/shop/orders.yaml", ordersFile))
	require.NoError(t, err)
	tools := p.HTTPTools("shop.orders.*")
	require.Len(t, tools, 2)

	look := tools[0]
	require.Equal(t, "shop.orders.look_up", look.Reference)
	require.Equal(t, "shop_orders_look_up", look.Name)
	require.Equal(t, "State of an order.", look.Description)
	require.True(t, look.Idempotent)
	require.True(t, look.IsRead())
	require.Equal(t, 5*time.Second, look.Timeout)
	require.Equal(t, bundle.Template{{Variable: "ORDERS_URL"}, {Text: "/v1"}}, look.BaseURL)
	require.Equal(t, bundle.Template{{Text: "/orders/"}, {Argument: "order"}}, look.Path)
	require.Equal(t, []bundle.HTTPField{
		{Name: "fields", Value: bundle.Template{{Argument: "fields"}}}, {Name: "limit", Value: bundle.Template{{Argument: "limit"}}},
	}, look.Query)
	require.Equal(t, []bundle.HTTPField{
		{Name: "Authorization", Value: bundle.Template{{Text: "Bearer "}, {Variable: "ORDERS_TOKEN"}}},
		{Name: "X-Shared", Value: bundle.Template{{Argument: "order"}}},
	}, look.Headers)
	require.Equal(t, map[int]string{404: "There is no such order."}, look.OnStatus)
	require.NotNil(t, look.Result)
	require.Equal(t, map[string]any{"limit": json.Number("10")}, look.Defaults)
	schema, err := json.Marshal(look.Parameters)
	require.NoError(t, err)
	require.JSONEq(t, `{"type":"object","additionalProperties":false,"required":["order"],"properties":{
		"order":{"type":"string","pattern":"^[0-9]{1,10}$"},"fields":{"type":"array","items":{"type":"string"}},"limit":{"type":"integer","default":10}}}`, string(schema))

	refund := tools[1]
	require.Equal(t, "POST", refund.Method)
	require.True(t, refund.Idempotent)
	require.Equal(t, map[string]any{
		"amount": bundle.Template{{Argument: "amount"}}, "note": bundle.Template{{Text: "Because: "}, {Argument: "note"}},
		"braces": bundle.Template{{Text: "{} ${X} $5"}}, "list": []any{json.Number("1"), bundle.Template{{Argument: "note"}}, nil},
	}, refund.Body)
	require.Equal(t, map[string]any{"note": "none"}, refund.Defaults)
	schema, err = json.Marshal(refund.Parameters)
	require.NoError(t, err)
	require.JSONEq(t, `{"type":"object","additionalProperties":false,"required":["order","amount"],"properties":{
		"order":{"type":"string"},"amount":{"type":"number","minimum":0},"note":{"type":"string","default":"none"}}}`, string(schema))
}

func TestHTTPTools_ResolveReferences(t *testing.T) {
	t.Parallel()
	one := "base_url: https://a.example\ntools: {x: {description: X, request: GET /x}, y: {description: Y, request: POST /y}}\n"
	p, err := bundle.Parse(toolRepository("[a.x]", "tools/a.yaml", one, "tools/a/b.yaml", one, "tools/ab.yaml", one))
	require.NoError(t, err)
	for reference, want := range map[string]string{
		"a.x": "a.x", "a.b.y": "a.b.y", "a.*": "a.x a.y", "a.b.*": "a.b.x a.b.y", "ab.*": "ab.x ab.y", "a.z": "", "current_time": "", "z.*": "",
	} {
		t.Run(reference, func(t *testing.T) {
			var got []string
			for _, tool := range p.HTTPTools(reference) {
				got = append(got, tool.Reference)
			}
			require.Equal(t, want, strings.Join(got, " "))
		})
	}
}

// toolFile returns a file with one tool, with keys of the file and of the tool.
func toolFile(file, tool string) string {
	return "base_url: https://a.example\n" + file + "tools:\n  x:\n    description: X\n    request: GET /x\n" + tool
}

func TestParse_ReportsProblemsOfHTTPTools(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, want string }{
		"unknown placeholder":      {toolFile("", "    query: {q: '{who}'}\n"), `6:16: "tools.x.query.q" has {who}, which is no parameter of the tool; add it to parameters or correct the name`},
		"unused parameter":         {toolFile("", "    parameters:\n      who: {type: string}\n"), `7:7: the parameter "who" of "tools.x" is never used`},
		"unused in a whole schema": {toolFile("", "    parameters:\n      type: object\n      properties:\n        who: {type: string}\n"), `9:9: the parameter "who" of "tools.x" is never used`},
		"parameter in the file":    {toolFile("headers: {X: '{who}'}\n", ""), `2:14: "headers.X" has {who}, but all tools of the file share it`},
		"parameter in the URL":     {"base_url: https://{host}\ntools: {x: {description: X, request: GET /x}}\n", `1:11: "base_url" has {host}, but all tools`},
		"lone brace":               {toolFile("", "    query: {q: 'a { b'}\n"), `6:16: "tools.x.query.q" has a { that begins no placeholder`},
		"open placeholder":         {toolFile("", "    query: {q: '{who'}\n"), `6:16: "tools.x.query.q" has a { that begins no placeholder`},
		"name of a variable":       {toolFile("", "    query: {q: '${who}'}\n"), `6:16: "tools.x.query.q" has ${who}: the name of a variable has capital letters`},
		"CEL":                      {toolFile("", "    result: body.\n"), `6:13: "tools.x.result" is not a valid CEL expression over status, headers and body: at line 1, column`},
		"CEL of a run":             {toolFile("", "    result: input.x\n"), `"tools.x.result" is not a valid CEL expression`},
		"URL":                      {"base_url: ftp://a\ntools: {x: {description: X, request: GET /x}}\n", `1:11: "base_url" must be an http or https URL`},
		"password in the URL":      {"base_url: https://me:secret@a.example\ntools: {x: {description: X, request: GET /x}}\n", `1:11: "base_url" must not have a user name or password`},
		"no URL":                   {"tools: {x: {description: X, request: GET /x}}\n", `1:1: missing key "base_url"`},
		"no tools":                 {"base_url: https://a.example\n", `missing key "tools"`},
		"no tool":                  {"base_url: https://a.example\ntools: {x: null}\n", `2:9: "tools.x" is empty`},
		"method":                   {toolFile("", "") + "  y: {description: Y, request: TRACE /y}\n", `6:32: "tools.y.request": the method must be one of GET, HEAD, OPTIONS, POST, PUT, PATCH, DELETE`},
		"no method":                {toolFile("", "") + "  y: {description: Y, request: /y}\n", `"tools.y.request" must be a method and a path, such as GET /orders/{order}`},
		"query in the path":        {toolFile("", "") + "  y: {description: Y, request: GET /y?a=b}\n", `"tools.y.request": the path has no ? and no #; use query`},
		"unescaped path":           {toolFile("", "") + "  y: {description: Y, request: 'GET /ä'}\n", `"tools.y.request": the path has characters that a URL must escape`},
		"traversal in the path":    {toolFile("", "") + "  y: {description: Y, request: 'GET /a/../b'}\n", `"tools.y.request": the path has a segment . or ..`},
		"optional in the path":     {toolFile("", "") + "  y: {description: Y, request: 'GET /{a}', parameters: {a: {type: string, optional: true}}}\n", `the parameter "a" is part of the path, so it must be required or have a default`},
		"name":                     {toolFile("", "") + "  y.z: {description: Y, request: GET /y}\n", `6:3: "tools.y.z": the name of a tool has at most 64 letters`},
		"long name":                {toolFile("", "") + "  " + strings.Repeat("y", 63) + ": {description: Y, request: GET /y}\n", `for models has more than 64 characters`},
		"name of a parameter":      {toolFile("", "    parameters: {'a b': {type: string}}\n"), `"tools.x.parameters.a b": the name of a parameter has at most 64`},
		"schema":                   {toolFile("", "    parameters: {a: {type: text}}\n    query: {a: '{a}'}\n"), `6:22: "tools.x.parameters.a": not a JSON Schema`},
		"not a schema":             {toolFile("", "    parameters: {a: string}\n    query: {a: '{a}'}\n"), `6:21: "tools.x.parameters.a" must be a JSON Schema, such as {type: string}, not text`},
		"reference to a file":      {toolFile("", "    parameters: {a: {$ref: 'file:///etc/passwd'}}\n    query: {a: '{a}'}\n"), `$ref "file:///etc/passwd" must name a part of the same document`},
		"default":                  {toolFile("", "    parameters: {a: {type: string, default: 1}}\n    query: {a: '{a}'}\n"), `"tools.x.parameters.a.default" does not fit its schema: must be of type string, not number`},
		"list of arguments":        {toolFile("", "    parameters: {type: array}\n"), `"tools.x.parameters.type" must be "object"`},
		"header":                   {toolFile("", "    headers: {'a b': c}\n"), `6:15: "tools.x.headers.a b" is not the name of a header`},
		"header of the connection": {toolFile("", "    headers: {host: c}\n"), `"tools.x.headers.host": the platform sets this header; remove it`},
		"line break in a header":   {toolFile("", "    headers: {a: \"b\\nc\"}\n"), `"tools.x.headers.a" has a line break`},
		"body of GET":              {toolFile("", "    json: {a: 1}\n"), `5:5: "tools.x.request": a GET request has no body; use query`},
		"two bodies":               {toolFile("", "") + "  y: {description: Y, request: POST /y, json: {}, form: {a: b}}\n", `"tools.y.json" and "tools.y.form" cannot be used together`},
		"status":                   {toolFile("", "    on_status: {4xx: no}\n"), `6:17: "tools.x.on_status.4xx": a status is a number between 200 and 599`},
		"empty error":              {toolFile("", "    on_status: {404: ''}\n"), `"tools.x.on_status.404" needs the text of the error`},
		"unknown key":              {toolFile("", "    oauth_app: crm\n"), `6:5: unknown key "oauth_app"`},
		"name of an app":           {toolFile("oauth_app: Not a name\n", ""), `2:12: "oauth_app"`},
		"app and header":           {toolFile("oauth_app: crm\n", "    headers: {authorization: a}\n"), `2:12: "oauth_app" and the header "Authorization" of the tool "x" exclude each other; remove one`},
		"app and common header":    {toolFile("oauth_app: crm\nheaders: {Authorization: a}\n", ""), `2:12: "oauth_app" and the header "Authorization"`},
		"list":                     {"- a\n", `the file must hold keys and values, not a list`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := bundle.Parse(toolRepository("[]", "tools/t.yaml", c.text))
			require.ErrorContains(t, err, "tools/t.yaml:")
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestParse_ReportsReferencesToHTTPTools(t *testing.T) {
	t.Parallel()
	file := toolFile("", "")
	for name, c := range map[string]struct {
		files bundle.Files
		want  string
	}{
		"unknown tool":      {toolRepository("[t.y]", "tools/t.yaml", file), `agents/a.yaml:3:1: tools/t.yaml has no tool "y"; correct the name`},
		"unknown file":      {toolRepository("[u.y]", "tools/t.yaml", file), `tool "u.y" needs the file tools/u.yaml or tools/u.star, which does not exist`},
		"wildcard":          {toolRepository("[u.*]", "tools/t.yaml", file), `tool "u.*" needs the file tools/u.yaml or tools/u.star, which does not exist`},
		"name of the file":  {toolRepository("[]", "tools/2024.yaml", file), `tools/2024.yaml: the names of the file and its folders have letters`},
		"name of a folder":  {toolRepository("[]", "tools/a.b/t.yaml", file), ``},
		"script beside":     {toolRepository("[]", "tools/t.yaml", file, "tools/t.star", ""), `tools/t.yaml: tools/t.star has the same name`},
		"same model's name": {toolRepository("[t.x, t_x]", "tools/t.yaml", file), `the tools "t.x" and "t_x" have the same name for the model, t_x; rename one`},
		"extension":         {toolRepository("[]", "tools/t.yml", file), `tools/t.yml: nothing reads this file; rename it to end in .yaml`},
		"other file":        {toolRepository("[]", "tools/t.py", file), `tools/t.py: nothing reads this file`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := bundle.Parse(c.files)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestParse_LimitsHTTPTools(t *testing.T) {
	t.Parallel()
	files := toolRepository("['t0.*', 't1.*']")
	for f := range 11 {
		var text strings.Builder
		text.WriteString("base_url: https://a.example\ntools:\n")
		for i := range 100 {
			fmt.Fprintf(&text, "  x%d: {description: X, request: GET /x}\n", i)
		}
		files[fmt.Sprintf("tools/t%d.yaml", f)] = []byte(text.String())
	}
	_, err := bundle.Parse(files)
	require.ErrorContains(t, err, "more than 1000 tools in tools/ and apis/ together")
	require.ErrorContains(t, err, "agents/a.yaml:3:1: the agent has 200 tools, at most 128 are allowed; name fewer")
}

func FuzzHTTPTools(f *testing.F) {
	f.Add(ordersFile)
	f.Add(toolFile("headers: {a: '${B}'}\n", "    parameters: {a: {type: object, optional: true}}\n    form: {b: '{a}{{'}\n"))
	f.Fuzz(func(t *testing.T, file string) {
		requireProjectOrProblems(t, toolRepository("['t.*']", "tools/t.yaml", file))
	})
}

// A template has the literal text and the placeholders of the text that it was parsed from.
func FuzzTemplate(f *testing.F) {
	for _, text := range []string{"", "a{b}c", "${A}", "$${A}", "{{a}}", "$", "{", "${", "{a}{b}${C}$"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		template, err := bundle.ParseTemplate(text)
		if err != nil {
			return
		}
		var written strings.Builder
		escape := strings.NewReplacer("${", "$${", "{", "{{", "}", "}}")
		for _, part := range template {
			switch {
			case part.Argument != "":
				written.WriteString("{" + part.Argument + "}")
			case part.Variable != "":
				written.WriteString("${" + part.Variable + "}")
			default:
				require.NotEmpty(t, part.Text)
				written.WriteString(escape.Replace(part.Text))
			}
		}
		again, err := bundle.ParseTemplate(written.String())
		require.NoError(t, err, written.String())
		require.Equal(t, template, again)
	})
}
