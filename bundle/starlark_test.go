// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
)

// withAgent returns files with an agent named ok.
func withAgent(pairs ...string) bundle.Files {
	return newFiles(append([]string{"agents/ok.yaml", okAgent}, pairs...)...)
}

// A build reports each problem of scripts with its position.
func TestStarlark_ReportsProblems(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		files bundle.Files
		want  []string
	}{
		"valid": {withAgent("tools/a.star", "load(\"//tools/lib/b.star\", \"eur\")\ndef f():\n  return eur(1)\n", "tools/lib/b.star", "def eur(x):\n  return x\n"), nil},
		"syntax": {withAgent("tools/a.star", "def f(:\n"),
			[]string{"tools/a.star:1:8: got ':', want ')'"}},
		"unbound names": {withAgent("hooks/lib/a.star", "def f(x):\n  return y + open(x)\n"),
			[]string{"hooks/lib/a.star:2:10: undefined: y", "hooks/lib/a.star:2:14: undefined: open"}},
		"while": {withAgent("tools/a.star", "def f():\n  while True: pass\n"),
			[]string{"tools/a.star:2:3: this Starlark dialect does not support while loops"}},
		"statement at the top level": {withAgent("tools/a.star", "for x in []:\n  pass\n"),
			[]string{"tools/a.star:1:1: for loop not within a function"}},
		"nested deeply": {withAgent("tools/a.star", "x = "+strings.Repeat("(", 100_000)),
			[]string{"tools/a.star:1:82: excessive nesting"}},
		"unknown function of a module": {withAgent("tools/a.star", "def f():\n  return uuid.v7()\n"),
			[]string{"tools/a.star:2:15: uuid has no function v7; it has new"}},
		"module as a value": {withAgent("tools/a.star", "x = uuid\n"),
			[]string{"tools/a.star:1:5: uuid is a module and no value; call one of its functions, such as uuid.new"}},
		"variable with the name of a module": {withAgent("tools/a.star", "def f(url):\n  return url.strip() + [url][0]\n"), nil},
		"missing file": {withAgent("tools/a.star", "load(\"//tools/b.star\", \"x\")\n"),
			[]string{"tools/a.star:1:6: the script tools/b.star does not exist"}},
		"relative path": {withAgent("tools/a.star", "load(\"b.star\", \"x\")\nload(\"//agents/ok.yaml\", \"y\")\n"),
			[]string{
				`tools/a.star:1:6: "b.star" is not a script of the repository; write the path from the root, such as "//tools/lib/money.star"`,
				`tools/a.star:2:6: "//agents/ok.yaml" is not a script of the repository; write the path from the root, such as "//tools/lib/money.star"`,
			}},
		"missing name": {withAgent("tools/a.star", "load(\"//tools/b.star\", x = \"y\")\n", "tools/b.star", "x = 1\n"),
			[]string{"tools/a.star:1:29: tools/b.star defines no y"}},
		"cycle": {withAgent("tools/a.star", "load(\"//tools/b.star\", \"y\")\nx = 1\n", "tools/b.star", "load(\"//tools/a.star\", \"x\")\ny = 1\n"),
			[]string{"tools/b.star:1:6: the scripts load each other: tools/a.star → tools/b.star → tools/a.star; move what both need to a third file"}},
		"itself": {withAgent("tools/a.star", "load(\"//tools/a.star\", y = \"x\")\nx = 1\n"),
			[]string{"tools/a.star:1:6: the scripts load each other: tools/a.star → tools/a.star; move what both need to a third file"}},
		"not UTF-8": {withAgent("tools/a.star", "x = '\xff'\n"),
			[]string{"tools/a.star: the script is not UTF-8; save it as UTF-8"}},
		"large": {withAgent("tools/a.star", "#"+strings.Repeat("x", bundle.MaxScriptSize)),
			[]string{"tools/a.star: the script has 262145 bytes, at most 262144 are allowed; split it"}},
		"all large": {withAgent(manyScripts()...),
			[]string{"tools/i.star: the scripts up to this one have more than 2 MiB together; shorten them"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, problems := bundle.Examine(tt.files)
			var got []string
			for _, p := range problems {
				got = append(got, p.String())
			}
			require.Equal(t, tt.want, got)
		})
	}
}

func manyScripts() (pairs []string) {
	for i := range bundle.MaxScripts/bundle.MaxScriptSize + 1 {
		pairs = append(pairs, "tools/"+string(rune('a'+i))+".star", "#"+strings.Repeat("x", bundle.MaxScriptSize-1))
	}
	return pairs
}

// Middleware and hooks belong to the agent in the name of their file.
func TestStarlark_FindsMiddlewareAndHooks(t *testing.T) {
	t.Parallel()
	p, err := bundle.Parse(withAgent(
		"middleware/ok.star", "def before(content, context):\n  return content\n",
		"hooks/ok.star", "load(\"//hooks/lib/x.star\", \"x\")\ndef after(tool, params, result, context):\n  return x\n",
		"hooks/lib/x.star", "x = None\n",
	))
	require.NoError(t, err)
	require.Equal(t, &bundle.ScriptStages{File: "middleware/ok.star", Before: true}, p.Middleware("ok"))
	require.Equal(t, &bundle.ScriptStages{File: "hooks/ok.star", After: true}, p.Hooks("ok"))
	require.Nil(t, p.Hooks("lib/x"+"y"))
	require.Equal(t, map[string]string{
		"middleware/ok.star": "def before(content, context):\n  return content\n",
		"hooks/ok.star":      "load(\"//hooks/lib/x.star\", \"x\")\ndef after(tool, params, result, context):\n  return x\n",
		"hooks/lib/x.star":   "x = None\n",
	}, p.ScriptFiles())
}

func TestStarlark_RejectsUnusedMiddleware(t *testing.T) {
	t.Parallel()
	_, err := bundle.Parse(withAgent(
		"middleware/ok.star", "def before(content):\n  return content\n\ndef after(response, context, **more):\n  return response\n",
		"middleware/other.star", "def before(content, context):\n  return content\n",
		"hooks/ok.star", "def check(tool):\n  pass\n",
	))
	require.EqualError(t, err, strings.Join([]string{
		"hooks/ok.star: the script defines neither before nor after; nothing would call it. Move a library to hooks/lib/",
		"middleware/ok.star:1:5: before must have the parameters: def before(content, context)",
		"middleware/ok.star:4:5: after must have the parameters: def after(response, context)",
		`middleware/other.star: no agent is named "other"; write it or correct the name`,
	}, "\n"))
}

// A hook can abort a call only before the tool runs.
func TestStarlark_RejectsAbortAfterCalls(t *testing.T) {
	t.Parallel()
	_, err := bundle.Parse(withAgent("hooks/ok.star",
		"def before(tool, params, context):\n  abort(1)\n\ndef after(tool, params, result, context):\n  if result:\n    abort(2)\n\ndef other():\n  abort(3)\n"))
	require.EqualError(t, err, "hooks/ok.star:6:5: abort is for the hook before, because the tool has run; return the result that the model sees")
}

// A build can reject the built-ins that the runner does not offer.
func TestStarlark_RejectsBuiltinsThatAreNotOffered(t *testing.T) {
	t.Parallel()
	p, err := bundle.Parse(withAgent("tools/a.star", "def f(log):\n  log(http.get(\"https://x\"))\n  return [sleep, json.encode]\n"))
	require.NoError(t, err)
	problems := p.RejectBuiltins(func(_ bundle.ScriptOwner, name string) bool { return name == "json.encode" })
	require.EqualError(t, problems, "tools/a.star:2:12: http.get is not supported by this release; remove it\n"+
		"tools/a.star:3:11: sleep is not supported by this release; remove it")
}

const refundTool = `
def refund(order_id, amount, reason = "damaged", tags = [], context = None):
    r"""Refund an order
    of a customer.

    Only once.

    Args:
      order_id (string, pattern "^A[0-9]{5}(x|y)$"): Number of the order,
        as on the invoice.
      amount (number, 0.01..10000): In euros.
      reason (string, one of "damaged", "too, late"): Why.
      tags (list of list of integer, ..3, one of 1, 2): Tags: any.

    Returns:
      nothing

    Idempotent: yes
    """
    return amount

def _private(x):
    return x

def ping():
    """Ping."""
`

func TestScriptTool_DescribesFunction(t *testing.T) {
	t.Parallel()
	p, err := bundle.Parse(newFiles("agents/ok.yaml", okAgent+"tools: [orders.write.refund, orders.write.*]\n", "tools/orders/write.star", refundTool))
	require.NoError(t, err)
	tool, ok := p.ScriptTool("orders.write.refund")
	require.True(t, ok)
	schema, err := json.Marshal(tool.Parameters)
	require.NoError(t, err)
	require.JSONEq(t, `{"type": "object", "additionalProperties": false, "required": ["order_id", "amount"], "properties": {
		"order_id": {"type": "string", "pattern": "^A[0-9]{5}(x|y)$", "description": "Number of the order, as on the invoice."},
		"amount": {"type": "number", "minimum": 0.01, "maximum": 10000, "description": "In euros."},
		"reason": {"type": "string", "enum": ["damaged", "too, late"], "default": "damaged", "description": "Why."},
		"tags": {"type": "array", "maxItems": 3, "items": {"type": "array", "items": {"type": "integer", "enum": [1, 2]}},
			"default": [], "description": "Tags: any."}}}`, string(schema))
	require.Empty(t, tool.Schema.Check(map[string]any{"order_id": "A12345x", "amount": json.Number("0.01")}))
	require.NotEmpty(t, tool.Schema.Check(map[string]any{"order_id": "A1", "amount": json.Number("0.01")}))
	again, _ := p.ScriptTool("orders.write.refund")
	require.Same(t, tool, again)
	got := *tool
	got.Parameters, got.Schema = nil, nil
	require.Equal(t, bundle.ScriptTool{
		Reference: "orders.write.refund", File: "tools/orders/write.star", Function: "refund", Description: "Refund an order of a customer.",
		Idempotent: true, TakesContext: true, Position: bundle.Position{File: "tools/orders/write.star", Line: 2, Column: 5},
	}, got)
	require.Equal(t, "orders_write_refund", tool.Name())
}

func TestScriptTools_ExpandsWildcards(t *testing.T) {
	t.Parallel()
	p, err := bundle.Parse(withAgent("tools/orders/write.star", refundTool, "tools/orders.star", "def f():\n  pass\n"))
	require.NoError(t, err)
	for pattern, want := range map[string][]string{
		"orders.write.*":        {"orders.write.refund", "orders.write.ping"},
		"orders.write.ping":     {"orders.write.ping"},
		"orders.write._private": nil,
		"orders.write.none":     nil,
		"orders.*":              nil, // f has no docstring
		"none.*":                nil,
		"ping":                  nil,
	} {
		t.Run(pattern, func(t *testing.T) {
			var got []string
			for _, tool := range p.ScriptTools(pattern) {
				got = append(got, tool.Reference)
			}
			require.Equal(t, want, got)
		})
	}
}

// A tool that an agent names must describe all of its parameters.
func TestScriptTool_ReportsProblems(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ function, want string }{
		"no docstring":         {`def f(): pass`, "1:5: tool a.f needs a docstring that describes it for the model"},
		"no line":              {"def f(x):\n  '''F.'''", "1:7: parameter x has no line in the section Args of the docstring; add one such as: x (string): Its meaning."},
		"varargs":              {"def f(*args, **kw):\n  '''F.'''", "1:7: a tool cannot have *args or **kwargs; name its parameters\ntools/a.star:1:14: a tool cannot have *args or **kwargs; name its parameters"},
		"keyword-only":         {"def f(*, x):\n  '''F.\n\n  Args:\n    x (any): X.'''", ""},
		"unknown parameter":    {"def f():\n  '''F.\n\n  Args:\n    x (any): X.'''", "5:5: function f has no parameter x that the model fills; remove the line"},
		"context is hidden":    {"def f(context):\n  '''F.\n\n  Args:\n    context (any): X.'''", "5:5: function f has no parameter context that the model fills; remove the line"},
		"two lines":            {"def f(x):\n  '''F.\n\n  Args:\n    x (any): X.\n    x (any): X.'''", "6:5: parameter x has two lines; remove one"},
		"no form":              {"def f(x):\n  '''F.\n\n  Args:\n    x: X.'''", "1:7: parameter x has no line in the section Args of the docstring; add one such as: x (string): Its meaning.\ntools/a.star:5:5: a line of Args has the form: name (type, …): text"},
		"type":                 {arg("text"), `5:5: parameter x: "text" is no type; use string, integer, number, boolean, object, any, or list of one of these`},
		"list type":            {arg("list of text"), `5:5: parameter x: "list of text" is no type; use string, integer, number, boolean, object, any, or list of one of these`},
		"rule":                 {arg("string, big"), `5:5: parameter x: "big" is unknown; use min..max, one of "a", "b", pattern "…" or optional`},
		"pattern":              {arg(`string, pattern "("`), "5:5: parameter x: the pattern is not a valid regular expression (RE2): error parsing regexp: missing closing ): `(`"},
		"pattern of a number":  {arg(`number, pattern "a"`), "5:5: parameter x: only a string has a pattern"},
		"pattern unquoted":     {arg(`string, pattern a`), "5:5: parameter x: the pattern must be in quotes"},
		"bounds of a boolean":  {arg("boolean, 1..2"), "5:5: parameter x: a value of type boolean has no bounds"},
		"empty bounds":         {arg("integer, 2..1"), "5:5: parameter x: 2..1 is empty"},
		"no bounds":            {arg("integer, .."), "5:5: parameter x: .. is empty"},
		"length of a string":   {arg("string, -1..2"), `5:5: parameter x: "-1" is no length`},
		"enum of another type": {arg(`integer, one of 1, 2.5`), "5:5: parameter x: 2.5 is not of type integer"},
		"enum unquoted":        {arg(`string, one of a, b`), `5:5: parameter x: "a" is no string in quotes, number, true or false`},
		"optional":             {arg("string, optional"), "1:7: parameter x is optional and has no default; write x=None"},
		"default type":         {argDefault("string", "1"), "1:7: the default of parameter x does not fit its line in the docstring: is not of type string"},
		"default bounds":       {argDefault("integer, 1..3", "-4"), "1:7: the default of parameter x does not fit its line in the docstring: is out of the bounds"},
		"default integer":      {argDefault("integer", "1.5"), "1:7: the default of parameter x does not fit its line in the docstring: is not of type integer"},
		"default pattern":      {argDefault(`string, pattern "^a"`, "'b'"), "1:7: the default of parameter x does not fit its line in the docstring: does not match the pattern"},
		"default enum":         {argDefault(`string, one of "a"`, "'b'"), "1:7: the default of parameter x does not fit its line in the docstring: is not one of the allowed values"},
		"default item":         {argDefault("list of string", "['a', 1]"), "1:7: the default of parameter x does not fit its line in the docstring: an item is not of type string"},
		"default length":       {argDefault("list of string, 1..", "[]"), "1:7: the default of parameter x does not fit its line in the docstring: has too few or too many items"},
		"computed default":     {argDefault("integer", "1 + 1"), "1:7: the default of parameter x must be a literal value"},
		"fitting defaults":     {argDefault("object, optional", "{'a': [True, -1, 2.5]}"), ""},
		"no default":           {argDefault("string, optional", "None"), ""},
		"idempotent":           {"def f():\n  '''F.\n\n  Idempotent: maybe'''", "4:3: Idempotent must be yes or no"},
		"no schema":            {"def f():\n  '''F.\n\n  Schema: none'''", "4:3: the schema schemas/none.json does not exist"},
		"schema name":          {"def f():\n  '''F.\n\n  Schema: ../x'''", "4:3: Schema must be the name of a file in schemas/, without .json"},
		"schema":               {"def f(x, y=1):\n  '''F.\n\n  Schema: s'''", ""},
		"schema and args":      {"def f(x, y=1):\n  '''F.\n\n  Args:\n    x (any): X.\n  Schema: s'''", "6:3: a docstring has either Args or Schema; remove one"},
		"invalid schema":       {"def f(x):\n  '''F.\n\n  Schema: broken'''", "1:5: the JSON Schema of the parameters of a.f is invalid: "},
		"large schema":         {"def f(x):\n  '''F.\n\n  Schema: large'''", "4:3: schemas/large.json has 70031 bytes, at most 65536 are allowed"},
		"reference outside":    {"def f(x):\n  '''F.\n\n  Schema: outside'''", "4:3: schemas/outside.json: "},
		"schema for others": {"def f(y, z=1):\n  '''F.\n\n  Schema: s'''", "1:5: function f has no parameter x, which is a property of schemas/s.json; add it\n" +
			"tools/a.star:1:7: parameter y has no default, so schemas/s.json must require it\ntools/a.star:1:10: parameter z is no property of schemas/s.json; add it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := bundle.Parse(newFiles("agents/ok.yaml", okAgent+"tools: [a.f]\n", "tools/a.star", tt.function+"\n",
				"schemas/s.json", `{"type": "object", "properties": {"x": {}, "y": {}}, "required": ["x"]}`,
				"schemas/large.json", `{"type": "object", "title": "`+strings.Repeat("a", 70_000)+`"}`,
				"schemas/outside.json", `{"type": "object", "properties": {"x": {"$ref": "https://a.example/x.json"}}}`,
				"schemas/broken.json", `{"type": "object", "properties": {"x": {"type": 1}}, "required": ["x"]}`))
			if tt.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "tools/a.star:"+tt.want)
		})
	}
}

// arg returns a function with a parameter.
func arg(spec string) string { return "def f(x):\n  r'''F.\n\n  Args:\n    x (" + spec + "): X.'''" }

func argDefault(spec, value string) string {
	return strings.Replace(arg(spec), "f(x)", "f(x="+value+")", 1)
}

func TestScriptTool_ReportsUnknownReferences(t *testing.T) {
	t.Parallel()
	_, err := bundle.Parse(newFiles("agents/ok.yaml", okAgent+"tools:\n  - a.g\n  - a._h\n  - b.*\n  - c.*\n",
		"agents/call.yaml", "name: call\ntype: tool\ntool_name: a.*\n",
		"tools/a.star", "def f(): pass\n", "tools/b.star", "x = 1\n"))
	require.EqualError(t, err, strings.Join([]string{
		`agents/call.yaml:3:1: "a.*" names several tools; name one`,
		`agents/ok.yaml:3:1: tool "a.g": tools/a.star has no such public function; it has f`,
		`agents/ok.yaml:3:1: tool "a._h": tools/a.star has no such public function; it has f`,
		`agents/ok.yaml:3:1: tool "b.*": tools/b.star has no such public function`,
		`agents/ok.yaml:3:1: tool "c.*" needs the file tools/c.yaml or tools/c.star, which does not exist`,
	}, "\n"))
}

// No docstring breaks the parser, and each problem has a position.
func FuzzDocstring(f *testing.F) {
	f.Add("Refund.\n\nArgs:\n  x (string, pattern \"a\"): X.\n    more\nIdempotent: yes\n", "'a'")
	f.Add("F.\n\n  Args:\n  x (list of number, 1..2, one of 1, 2): X.\n", "[1e5]")
	f.Add("Schema: s", "None")
	f.Fuzz(func(t *testing.T, docstring, value string) {
		if strings.Contains(docstring, "'''") {
			t.Skip()
		}
		requireProjectOrProblems(t, newFiles("agents/ok.yaml", okAgent+"tools: [a.f]\n", "schemas/s.json", `{"type": "object"}`,
			"tools/a.star", "def f(x="+value+"):\n  r'''"+docstring+"'''\n"))
	})
}
