// SPDX-License-Identifier: Apache-2.0

package script

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// expressions are expressions and their values as JSON, or their errors.
var expressions = map[string]string{
	`json.decode("[1,2")`:                                   "json.decode: invalid JSON",
	`json.encode((1, None, True, 1.5, "\n"))`:               `"[1,null,true,1.5,\"\\n\"]"`,
	`json.decode("1e2") * 2`:                                `200.0`,
	`re.match("b", "ab")`:                                   `null`,
	`re.match("(a)|(b)", "a")`:                              `["a","a",null]`,
	`re.find("x", "ab")`:                                    `null`,
	`re.find_all("(a)(b)?", "aab")`:                         `[["a","a",null],["ab","a","b"]]`,
	`re.sub("(?P<x>a)", "${x}$$", "a")`:                     `"a$"`,
	`re.split(",", "")`:                                     `[""]`,
	`re.find("(", "a")`:                                     "the expression is invalid",
	`re.find("a{1000}{1000}", "a")`:                         "the expression is invalid",
	`re.find("` + strings.Repeat("a", 1025) + `", "")`:      "more than 1024 bytes",
	`base64.encode("é?>", url=True)`:                        `"w6k_Pg"`,
	`base64.decode("w6k_Pg==") + base64.decode("w6k/Pg")`:   `"é?>é?>"`,
	`base64.decode("a")`:                                    "no base64",
	`base64.decode("/w")`:                                   "not UTF-8",
	`url.query({"a": True, "b": 1.5, "c": []})`:             `"a=true\u0026b=1.5"`,
	`url.query({"a": {}})`:                                  "no text",
	`url.query([])`:                                         "params must be a dict",
	`url.parse("https://a.example:8443/x%20y?b=1&b=2#f")`:   `{"scheme":"https","host":"a.example","port":"8443","path":"/x y","query":{"b":["1","2"]},"fragment":"f"}`,
	`url.parse("http://[")`:                                 "the URL is invalid",
	`hmac.sha256("k", "t", encoding="raw")`:                 "must be hex or base64",
	`hmac.sha256(1, "t")`:                                   "key must be a string",
	`math.floor(123456789012345678901234567890)`:            `123456789012345678901234567890`,
	`math.round(0.5) + math.round(-0.5)`:                    `0`,
	`math.round(1.005, 2)`:                                  `1.01`,
	`math.round(1e300, 2)`:                                  `1e+300`,
	`math.round(1.5, 16)`:                                   "digits must be between 0 and 15",
	`math.sqrt(-1)`:                                         "not a finite number",
	`math.ceil(float("inf"))`:                               "not a finite number",
	`math.pow(10, 400)`:                                     "not a finite number",
	`math.exp("a")`:                                         "x must be a number, not string",
	`[math.sin(0), math.cos(0), math.exp(0), math.log(1)]`:  `[0.0,1.0,1.0,0.0]`,
	`random.int(2, 1)`:                                      "low is above high",
	`random.int(-9223372036854775808, 9223372036854775807)`: "the range is too large",
	`random.int(1, 1 << 70)`:                                "high is too large",
	`time.parse("2026-03-29T02:30:00+02:00")`:               `"2026-03-29T00:30:00Z"`,
	`time.parse("yesterday")`:                               "must be an RFC 3339 time",
	`time.parse("2026-02-30", "%Y-%m-%d")`:                  "does not fit the format",
	`time.parse("2026-02-28 x", "%Y-%m-%d")`:                "does not fit the format",
	`time.parse("1", "%q")`:                                 `unknown directive "%q"`,
	`time.parse("1", "%")`:                                  "the format ends with %",
	`time.parse("1", "%d", "Mars/Base")`:                    "unknown time zone",
	`time.parse("Mon, 2 mar 26 7:05:09.5 PM %", "%a, %d %b %y %I:%M:%S.%f %p %%")`: `"2026-03-02T19:05:09.5Z"`,
	`time.parse("12 AM", "%I %p")`:                                                             `"1970-01-01T00:00:00Z"`,
	`time.parse("13 AM", "%I %p")`:                                                             "does not fit the format",
	`time.parse("2024 366 23 -0130", "%Y %j %H %z")`:                                           `"2025-01-01T00:30:00Z"`,
	`time.parse("2026 366", "%Y %j")`:                                                          "does not fit the format",
	`time.parse("10 GMT Z", "%H %Z %z", "Asia/Tokyo")`:                                         `"1970-01-01T10:00:00Z"`,
	`time.format("2026-01-02T03:04:05.000006Z", "%a %b %j %y %I%p %f %% %z %Z", "Asia/Tokyo")`: `"Fri Jan 002 26 12PM 000006 % +0900 JST"`,
	`time.format(time.now(), "Monday 1 %d")`:                                                   `"Monday 1 02"`,
	`time.add("2026-01-01T00:00:00Z", days=-1, hours=1.5, seconds=0.25)`:                       `"2025-12-31T01:30:00.25Z"`,
	`time.add("2026-01-01T00:00:00Z", days=400000)`:                                            `"3121-03-02T00:00:00Z"`,
	`time.add("2026-01-01T00:00:00Z", days=4000000)`:                                           "the year is not between 1 and 9999",
	`time.add("2026-01-01T00:00:00Z", days=1e300)`:                                             "the year is not between 1 and 9999",
	`time.unix("2026-01-02T03:04:05.9Z")`:                                                      `1767323045`,
	`log("x", level="loud")`:                                                                   "the level must be one of debug, info, warn, error",
	`log("x", f=len)`:                                                                          "no JSON value",
	`http.get("u", headers={"a": 1})`:                                                          `the header "a" must be a string, not int`,
	`http.get("u", headers=[])`:                                                                "headers must be a dict",
	`http.post("u", json=len)`:                                                                 "no JSON value",
}

// Expressions have their values, or their errors.
func TestBuiltins_Compute(t *testing.T) {
	t.Parallel()
	pool := newPool(t, Options{})
	for expression, want := range expressions {
		t.Run(expression[:min(len(expression), 60)], func(t *testing.T) {
			t.Parallel()
			result, err := pool.Run(t.Context(), callOn(body("return "+expression), ""), nil)
			if err != nil {
				require.ErrorContains(t, err, want)
				return
			}
			var value any
			require.NoError(t, json.Unmarshal([]byte(want), &value), "got %s", result.Value)
			require.JSONEq(t, want, string(result.Value))
		})
	}
}

// Random values depend on the seed and on their position only.
func TestBuiltins_DrawFromSeed(t *testing.T) {
	t.Parallel()
	pool := newPool(t, Options{})
	draw := func(seed byte) string {
		call := callOn(body(`return [uuid.new(), random.int(1, 1000000), uuid.new(), [random.int(0, 3) for _ in range(50)]]`), "")
		call.Seed = [32]byte{seed}
		result, err := pool.Run(t.Context(), call, nil)
		require.NoError(t, err)
		return string(result.Value)
	}
	first := draw(1)
	require.Equal(t, first, draw(1))
	require.NotEqual(t, first, draw(2))
	require.Regexp(t, `^\["[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}",\d+,`, first)
	for _, digit := range []string{"0", "1", "2", "3"} {
		require.Contains(t, first[strings.LastIndex(first, "["):], digit)
	}
}

// A time that is formatted with all parts is parsed to the same time.
func TestStrftime_AgreesWithStrptime(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		at := time.UnixMicro(rapid.Int64Range(-62_000_000_000_000_000, 253_000_000_000_000_000).Draw(t, "time")).UTC()
		format := rapid.SampledFrom([]string{"%Y-%m-%d %H:%M:%S.%f", "%d. %B %Y, %I:%M:%S.%f %p %z", "%j/%Y %H%M%S%f %Z", "%A %b %d %Y 15:04 %H.%M.%S,%f"}).Draw(t, "format")
		text, err := strftime(at, format)
		require.NoError(t, err)
		again, err := strptime(text, format, time.UTC)
		require.NoError(t, err, text)
		require.True(t, at.Equal(again), "%s: %s, %s", text, at, again)
	})
}

func FuzzStrptime(f *testing.F) {
	f.Add("2026-01-02", "%Y-%m-%d")
	f.Add("Mon 12 AM +01:00", "%a %I %p %z")
	f.Fuzz(func(t *testing.T, text, format string) {
		at, err := strptime(text, format, time.UTC)
		if err != nil {
			return
		}
		_, err = strftime(at, format)
		require.NoError(t, err)
	})
}

// BenchmarkPool_Run measures a call of a warm child.
func BenchmarkPool_Run(b *testing.B) {
	pool := newPool(b, Options{})
	call := callOn("def run(order_id, amount):\n  return {\"id\": order_id, \"total\": amount * 2}\n", `{"order_id": "A12345", "amount": 12.5}`)
	for b.Loop() {
		if _, err := pool.Run(b.Context(), call, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPool_Start measures a call of a new child, with the start of the process.
func BenchmarkPool_Start(b *testing.B) {
	call := callOn("def run(x):\n  return x\n", `{"x": 1}`)
	for b.Loop() {
		pool, err := NewPool(Options{})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := pool.Run(b.Context(), call, nil); err != nil {
			b.Fatal(err)
		}
		pool.Close()
	}
}
