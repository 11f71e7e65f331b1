// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"slices"
	"strings"
)

// ScriptOwner is what a script is called for. Limits and some built-ins depend on it.
type ScriptOwner string

// Owners of scripts.
const (
	OwnerTool       ScriptOwner = "tool"
	OwnerMiddleware ScriptOwner = "middleware"
	OwnerHook       ScriptOwner = "hook"
	OwnerGuardrail  ScriptOwner = "guardrail"
)

// SendConnector is the name of the built-in with which middleware sends to an outbound connector.
const SendConnector = "send_connector"

// abortCall is the name of the built-in that ends a hook in place of the tool.
const abortCall = "abort"

// Effect tells what a built-in does outside of the script.
type Effect string

// Effects of built-ins.
const (
	// EffectNone is a built-in that the script's own process computes.
	EffectNone Effect = ""
	// EffectRead asks the runner and changes nothing.
	EffectRead Effect = "read"
	// EffectWrite asks the runner for a change.
	EffectWrite Effect = "write"
	// EffectLocal asks the runner for a value that the runner has.
	EffectLocal Effect = "local"
	// EffectByMethod is an HTTP request: GET, HEAD and OPTIONS read, other methods write.
	EffectByMethod Effect = "method"
)

// Builtin describes a built-in function of scripts. The names that scripts may use, the parameters that the runner accepts
// and the reference page all come from Builtins.
type Builtin struct {
	// Name is the name of the function, after the name of its module and a dot if it has one.
	Name string
	// Signature are the parameters, in Starlark syntax.
	Signature string
	Doc       string
	// Errors are the failures that end the script. It is empty if only arguments of a wrong type fail.
	Errors string
	// Example is an expression, and Result its value. A test evaluates every example.
	Example, Result string
	Effect          Effect
	// Owners are the owners whose scripts may call the function, nil for all.
	Owners []ScriptOwner
}

// Module returns the module of a built-in, "" for a function outside of modules.
func (b *Builtin) Module() string {
	module, _, nested := strings.Cut(b.Name, ".")
	if !nested {
		return ""
	}
	return module
}

// IsFor reports whether scripts of an owner may call the function.
func (b *Builtin) IsFor(owner ScriptOwner) bool {
	return b.Owners == nil || slices.Contains(b.Owners, owner)
}

// httpOptions are the parameters that all HTTP requests share.
const httpOptions = "headers={}, params={}, json=None, form=None, body=None, timeout=30, retry=0, idempotency_key=None, fail=True"

// FindBuiltin returns the built-in with a name, or nil. Callers do not change it.
func FindBuiltin(name string) *Builtin {
	at := slices.IndexFunc(builtins, func(b Builtin) bool { return b.Name == name })
	if at < 0 {
		return nil
	}
	return &builtins[at]
}

// Builtins returns the built-in functions of scripts, grouped by module.
func Builtins() []Builtin { return slices.Clone(builtins) }

var builtins = slices.Concat(controlBuiltins, textBuiltins, numberBuiltins, timeBuiltins, hostBuiltins)

var controlBuiltins = []Builtin{
	{Name: "log", Signature: `text, level="info", **fields`,
		Doc:     "Writes a line to the log of the run. `level` is `debug`, `info`, `warn` or `error`. Fields are JSON values.",
		Errors:  "An unknown level, a field that is no JSON value.",
		Example: `log("refunded", order="A1")`, Result: `None`},
	{Name: "print", Signature: `*args`,
		Doc:     "Writes its arguments, separated by spaces, to the log of the run with level `info`.",
		Example: `print("total", 3)`, Result: `None`},
	{Name: "fail", Signature: `text`,
		Doc: "Ends the script with an error. The model sees the text as the error of the tool. A run fails if its middleware or a hook " +
			"fails.",
		Errors:  "Always: `script_error`.",
		Example: `fail("there is no such order")`, Result: ``},
	{Name: "stop", Signature: `message, publish_outbound=True`, Owners: []ScriptOwner{OwnerTool, OwnerMiddleware, OwnerHook},
		Doc: "Ends the script and the run. The run is completed, and `message` is its output. With `publish_outbound=False` no outbound " +
			"connector sends the result.",
		Example: `stop("We are closed.")`, Result: ``},
	{Name: abortCall, Signature: `result`, Owners: []ScriptOwner{OwnerHook},
		Doc:     "Ends a hook `before`. The tool is not called, and the model sees `result`, a JSON value.",
		Errors:  "A call in a hook `after`: return the result instead.",
		Example: `abort({"error": "not allowed"})`, Result: ``},
}

var textBuiltins = []Builtin{
	{Name: "json.encode", Signature: `value`, Doc: "Returns a value as JSON text. Integers of any size keep their digits.",
		Errors:  "Functions, sets, bytes, NaN and infinite numbers, keys that are not strings, more than 64 levels.",
		Example: `json.encode({"id": 9007199254740993})`, Result: `'{"id":9007199254740993}'`},
	{Name: "json.decode", Signature: `text`,
		Doc: "Returns the value of a JSON text. Numbers with a fraction or an exponent are floats. A number that no float equals has the " +
			"type `long_number`: `json.encode` returns its digits, and `float(str(n))` rounds it.",
		Errors: "Invalid JSON, more than 64 levels.", Example: `json.decode('{"ids": [1, 2]}')["ids"]`, Result: `[1, 2]`},
	{Name: "re.match", Signature: `pattern, text`,
		Doc: "Matches an RE2 expression at the beginning of a text. Returns a list with the whole match and its groups, or `None`. A group that " +
			"did not take part is `None`.",
		Errors:  "An invalid expression, or one of more than 1 KiB or 1,000 instructions.",
		Example: `re.match("([A-Z])([0-9]+)", "A15 and B2")`, Result: `["A15", "A", "15"]`},
	{Name: "re.find", Signature: `pattern, text`, Doc: "Returns the first match anywhere in a text, like `re.match`.",
		Errors: "As `re.match`.", Example: `re.find("[0-9]+", "order 4711")`, Result: `["4711"]`},
	{Name: "re.find_all", Signature: `pattern, text`, Doc: "Returns the list of all matches, each like a result of `re.match`.",
		Errors: "As `re.match`.", Example: `re.find_all("[0-9]+", "4 and 7")`, Result: `[["4"], ["7"]]`},
	{Name: "re.sub", Signature: `pattern, replacement, text`,
		Doc:    "Replaces all matches. In `replacement`, `${1}` and `${name}` are groups, and `$$` is a dollar sign.",
		Errors: "As `re.match`.", Example: `re.sub("([0-9]+) EUR", "€${1}", "5 EUR")`, Result: `"€5"`},
	{Name: "re.split", Signature: `pattern, text`, Doc: "Splits a text at all matches.",
		Errors: "As `re.match`.", Example: `re.split(" *, *", "a , b,c")`, Result: `["a", "b", "c"]`},
	{Name: "base64.encode", Signature: `text, url=False`,
		Doc:     "Returns a text in base64. With `url=True` in the URL-safe alphabet without padding. Takes a sensitive variable, and returns a sensitive text.",
		Example: `base64.encode("user:pass")`, Result: `"dXNlcjpwYXNz"`},
	{Name: "base64.decode", Signature: `text`, Doc: "Returns the text of base64 in either alphabet, with or without padding.",
		Errors: "Invalid base64, a result that is not UTF-8.", Example: `base64.decode("dXNlcjpwYXNz")`, Result: `"user:pass"`},
	{Name: "url.escape", Signature: `text`, Doc: "Escapes a text for a segment of a URL's path.",
		Example: `url.escape("a b/c")`, Result: `"a%20b%2Fc"`},
	{Name: "url.query", Signature: `params`, Doc: "Returns a map as the query of a URL, in the order of keys. A list repeats its key.",
		Errors: "Values that are not strings, numbers, booleans or lists of them.", Example: `url.query({"q": "a b", "n": [1, 2]})`, Result: `"n=1&n=2&q=a+b"`},
	{Name: "url.parse", Signature: `url`,
		Doc: "Returns the parts of a URL: `scheme`, `host`, `port`, `path`, `query` (a map of lists) and `fragment`.", Errors: "An invalid URL.",
		Example: `url.parse("https://shop.example/a?q=1")["query"]`, Result: `{"q": ["1"]}`},
	{Name: "hash.sha256", Signature: `text`, Doc: "Returns the SHA-256 of a text in hexadecimal digits.",
		Example: `hash.sha256("a")[:16]`, Result: `"ca978112ca1bbdca"`},
	{Name: "hmac.sha256", Signature: `key, text, encoding="hex"`,
		Doc:    "Returns the HMAC-SHA-256 of a text. `encoding` is `hex` or `base64`. `key` may be a sensitive variable.",
		Errors: "An unknown encoding.", Example: `hmac.sha256("key", "text", encoding="base64")`, Result: `"avqQRqlXnK0UOjhMG1ZLmiUNJ9b2pj+fIL86dZTJ4sY="`},
}

var numberBuiltins = []Builtin{
	{Name: "math.ceil", Signature: `x`, Doc: "Returns the smallest integer that is not below `x`.", Example: `math.ceil(1.2)`, Result: `2`},
	{Name: "math.floor", Signature: `x`, Doc: "Returns the largest integer that is not above `x`.", Example: `math.floor(-1.2)`, Result: `-2`},
	{Name: "math.round", Signature: `x, digits=0`,
		Doc:     "Rounds half away from zero to a number of decimal digits between 0 and 15. Without digits it returns an integer.",
		Example: `[math.round(2.5), math.round(2.345, 2)]`, Result: `[3, 2.35]`},
	{Name: "math.sqrt", Signature: `x`, Doc: "Returns the square root.", Errors: "A negative number.", Example: `math.sqrt(9)`, Result: `3.0`},
	{Name: "math.pow", Signature: `x, y`, Doc: "Returns `x` to the power of `y` as a float.", Errors: "A result that is not a finite number.",
		Example: `math.pow(2, 10)`, Result: `1024.0`},
	{Name: "math.exp", Signature: `x`, Doc: "Returns e to the power of `x`.", Errors: "As `math.pow`.", Example: `math.exp(0)`, Result: `1.0`},
	{Name: "math.log", Signature: `x`, Doc: "Returns the natural logarithm.", Errors: "A number that is not positive.", Example: `math.log(1)`, Result: `0.0`},
	{Name: "math.sin", Signature: `x`, Doc: "Returns the sine of radians.", Example: `math.sin(0)`, Result: `0.0`},
	{Name: "math.cos", Signature: `x`, Doc: "Returns the cosine of radians.", Example: `math.cos(0)`, Result: `1.0`},
	{Name: "math.asin", Signature: `x`, Doc: "Returns the arc sine in radians.", Errors: "A number beyond -1 to 1.", Example: `math.asin(0)`, Result: `0.0`},
	{Name: "math.atan2", Signature: `y, x`, Doc: "Returns the angle of a point in radians.", Example: `math.atan2(0, 1)`, Result: `0.0`},
	{Name: "math.radians", Signature: `degrees`, Doc: "Converts degrees to radians.", Example: `math.round(math.radians(180), 4)`, Result: `3.1416`},
	{Name: "uuid.new", Signature: ``,
		Doc:     "Returns a UUID of version 4. A script that is replayed gets the same UUIDs again.",
		Example: `len(uuid.new())`, Result: `36`},
	{Name: "random.int", Signature: `low, high`,
		Doc:    "Returns an integer between `low` and `high`, both included. A script that is replayed gets the same numbers again.",
		Errors: "`low` above `high`, a range of more than 2^63 numbers.", Example: `1 <= random.int(1, 6) and random.int(3, 3) == 3`, Result: `True`},
}

// timeFormat explains the formats of times.
const timeFormat = "`format` has the directives `%Y %m %d %H %M %S %f %y %b %B %a %A %j %I %p %z %Z` and `%%`."

var timeBuiltins = []Builtin{
	{Name: "time.now", Signature: ``,
		Doc:     "Returns the time when the script first started, as RFC 3339 text in UTC. It does not change during a script or in a replay.",
		Example: `time.now()`, Result: `"2026-01-02T03:04:05Z"`},
	{Name: "time.parse", Signature: `text, format=None, zone="UTC"`,
		Doc:     "Returns a time as RFC 3339 text in UTC. Without a format, `text` is RFC 3339. " + timeFormat + " `zone` applies to texts without a zone.",
		Errors:  "A text that does not fit, an unknown directive or zone.",
		Example: `time.parse("03.02.2026 14:00", "%d.%m.%Y %H:%M", "Europe/Paris")`, Result: `"2026-02-03T13:00:00Z"`},
	{Name: "time.format", Signature: `time, format, zone="UTC"`, Doc: "Returns an RFC 3339 time in another format and zone. " + timeFormat,
		Errors: "As `time.parse`.", Example: `time.format("2026-02-03T13:00:00Z", "%A %H:%M", "Europe/Paris")`, Result: `"Tuesday 14:00"`},
	{Name: "time.add", Signature: `time, days=0, hours=0, minutes=0, seconds=0`,
		Doc: "Adds to an RFC 3339 time. A day has 24 hours.", Errors: "An invalid time, a year beyond 1 to 9999.",
		Example: `time.add("2026-02-28T12:00:00Z", days=1)`, Result: `"2026-03-01T12:00:00Z"`},
	{Name: "time.unix", Signature: `time`, Doc: "Returns the seconds since 1970 of an RFC 3339 time.",
		Errors: "An invalid time.", Example: `time.unix("1970-01-01T00:01:00Z")`, Result: `60`},
}

var hostBuiltins = []Builtin{
	{Name: "env", Signature: `name`, Effect: EffectLocal,
		Doc: "Returns a variable of the environment. The script never gets the text of a sensitive variable: it can join it with texts by `+`, and " +
			"pass it to headers of requests, `hmac.sha256` and `base64.encode`.",
		Errors:  "A variable that does not exist. Text, JSON, a log line or a result with a sensitive variable.",
		Example: `env("SHOP_URL")`, Result: `"https://shop.example"`},
	{Name: "http.request", Signature: "method, url, " + httpOptions, Effect: EffectByMethod,
		Doc: "Sends a request and returns a map with `status`, `headers`, `body`, `json` (the value of a JSON body, otherwise `None`) and `truncated`. " +
			"At most one of `json`, `form` and `body` is sent. `retry` (at most 3) repeats reads, and writes that got 429 or 503 or have an " +
			"`idempotency_key`. At most 20 requests are allowed in a call.",
		Errors:  "A host that is not allowed, a timeout, a lost connection, a response beyond its [limit](#limits), and with `fail=True` a status of 400 or above.",
		Example: `http.request("GET", "https://shop.example/orders/4711")["json"]["state"]`, Result: `"paid"`},
	{Name: "http.get", Signature: "url, " + httpOptions, Effect: EffectByMethod, Doc: "Sends a GET request. See `http.request`.", Errors: "As `http.request`.",
		Example: `http.get("https://shop.example/orders/4711")["status"]`, Result: `200`},
	{Name: "http.post", Signature: "url, " + httpOptions, Effect: EffectByMethod, Doc: "Sends a POST request. See `http.request`.", Errors: "As `http.request`.",
		Example: `http.post("https://shop.example/refunds", json={"order": "4711"})["status"]`, Result: `200`},
	{Name: "http.put", Signature: "url, " + httpOptions, Effect: EffectByMethod, Doc: "Sends a PUT request. See `http.request`.", Errors: "As `http.request`.",
		Example: `http.put("https://shop.example/orders/4711", json={"note": "call"})["status"]`, Result: `200`},
	{Name: "http.patch", Signature: "url, " + httpOptions, Effect: EffectByMethod, Doc: "Sends a PATCH request. See `http.request`.", Errors: "As `http.request`.",
		Example: `http.patch("https://shop.example/orders/4711", json={"note": "call"})["status"]`, Result: `200`},
	{Name: "http.delete", Signature: "url, " + httpOptions, Effect: EffectByMethod, Doc: "Sends a DELETE request. See `http.request`.", Errors: "As `http.request`.",
		Example: `http.delete("https://shop.example/orders/4711")["status"]`, Result: `200`},
	{Name: "http.save", Signature: `url, headers={}, name=""`, Effect: EffectRead,
		Doc: "Stores the body of a GET request as a file of the run, at most 10 MiB. Returns a map with `id`, `name`, `size` and `mime_type`. " +
			"Without a `name` the file has the name of the response or of the URL. It counts as one of the 20 requests of a call.",
		Errors:  "As `http.request`, a body that is too large, more than 50 MiB or 100 files in a run, a project whose storage is full.",
		Example: `http.save("https://shop.example/invoice.pdf", name="invoice.pdf")["mime_type"]`, Result: `"application/pdf"`},
	{Name: SendConnector, Signature: `action_name, payload`, Effect: EffectWrite, Owners: []ScriptOwner{OwnerMiddleware},
		Doc: "Sends to an outbound connector, by its name. A link in the mode `middleware` joins the connector and the agent of the run. " +
			"`payload` is a map with the key `payload`: its value is the JSON body. It is delivered in the background. Returns a map with " +
			"`delivery_id` and `status`: `queued`, or `skipped` with a `reason`.",
		Errors:  "A connector that is not linked in this mode, a body of more than 256 KiB, more than 1,000 sends or 16 MiB in a run.",
		Example: `send_connector("crm", {"payload": {"order": "4711"}})["status"]`, Result: `"queued"`},
	{Name: "files.list", Signature: ``, Effect: EffectRead,
		Doc: "Returns files as maps with `id`, `name`, `mime_type` and `size`: the attachments of the run's event, the files that the run saved " +
			"before the script began, and the files that the script has saved.",
		Example: `[f["name"] for f in files.list()]`, Result: `["order.json"]`},
	{Name: "files.text", Signature: `id, max=262144`, Effect: EffectRead,
		Doc:     "Returns the beginning of a file as text, at most `max` bytes. 262144 is the largest `max`.",
		Errors:  "An unknown file, a file that is not text in UTF-8.",
		Example: `files.text("f1")`, Result: `'{"id": 4711}'`},
	{Name: "files.json", Signature: `id`, Effect: EffectRead, Doc: "Returns the value of a JSON file of at most 256 KiB.",
		Errors: "An unknown file, invalid JSON, a larger file.", Example: `files.json("f1")["id"]`, Result: `4711`},
	{Name: "sleep", Signature: `seconds`, Effect: EffectRead, Owners: []ScriptOwner{OwnerTool},
		Doc: "Waits.", Errors: "A negative number, or more than 60 seconds.",
		Example: `sleep(5)`, Result: `None`},
}
