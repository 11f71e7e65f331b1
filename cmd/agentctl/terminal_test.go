// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// hostile is text that sets a title and colors, and changes the direction of text.
const hostile = "\x1b]0;owned\a\u009b31mred\u202e\u200b\U000e0001\x7f"

// hostileEscaped is hostile with escapes.
const hostileEscaped = `\u001b]0;owned\u0007\u009b31mred\u202e\u200b\U000e0001\u007f`

// onTerminal runs agentctl with a terminal on both outputs.
func (s *shop) onTerminal(args ...string) (out, messages string, err error) {
	s.t.Helper()
	var stdout, stderr bytes.Buffer
	root := newRootCommand("agentctl")
	root.SetArgs(append(args, "--server", s.url, "--project", s.id, "--api-key", s.key))
	root.SetOut(&terminal{&stdout})
	root.SetErr(&terminal{&stderr})
	err = root.ExecuteContext(s.t.Context())
	return stdout.String(), stderr.String(), err
}

// A terminal receives printable text only. A file receives values unchanged.
func TestTerminal_ShowsPrintableTextOnly(t *testing.T) {
	t.Parallel()
	value, err := json.Marshal(hostile + "\nsecond\tline")
	require.NoError(t, err)
	s := newShop(t, `{"name":"E","value":`+string(value)+`,"sensitive":false}`)
	for name, row := range map[string]struct {
		args string
		want string
	}{
		"value": {"env get E", hostileEscaped + "\nsecond\tline\n"},
		"table": {"env list", "NAME  VALUE" + strings.Repeat(" ", 57) + "SENSITIVE\nE     " + hostileEscaped[:59] + "…  no\n"},
	} {
		t.Run(name, func(t *testing.T) {
			out, _, err := s.onTerminal(strings.Fields(row.args)...)
			require.NoError(t, err)
			require.Equal(t, row.want, out)
		})
	}
	out, _, err := s.agentctl("env", "get", "E")
	require.NoError(t, err)
	require.Equal(t, hostile+"\nsecond\tline\n", out, "in a file")
}

// JSON and YAML have escapes for characters that are not printable, even in a file, and keep their meaning.
func TestOutput_EscapesWhatIsNotPrintable(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"hostile": hostile, "lines": hostile + "\nsecond\tline", "number": "1", "word": "true", "empty": "", "plain": "a: b # c", "folded": strings.Repeat("word ", 60) + "\u202e",
		"private": "\ue000\ufeff\u2028", "backslash": `\u202e \x9b`, "accents": "größe 日本\u3000語",
	} {
		t.Run(name, func(t *testing.T) {
			value := map[string]any{"text": text, "key " + text: []any{1.5, nil, true, map[string]any{}}}
			for form, read := range map[output]func([]byte, any) error{
				outputJSON: json.Unmarshal,
				outputYAML: func(text []byte, into any) error { return yaml.Unmarshal(text, into) },
			} {
				t.Run(fmt.Sprint(form), func(t *testing.T) {
					var out bytes.Buffer
					require.NoError(t, form.printValue(&out, value))
					for _, c := range out.String() {
						require.True(t, unicode.IsGraphic(c) || c == '\n', "%s: %U", form, c)
					}
					var got map[string]any
					require.NoError(t, read(out.Bytes(), &got), out.String())
					require.Equal(t, value, got, out.String())
				})
			}
		})
	}
}

// Terminal sequences of agentctl pass; sequences in text are escaped.
func TestTerminal_PassesOnlyItsOwnSequences(t *testing.T) {
	t.Setenv("NO_COLOR", "")
	var out bytes.Buffer
	to := &terminal{&out}
	for _, text := range []string{paintStatus(to, "live"), clearLine, "\x1b[32m", mark + "]0;owned" + mark, mark + "[2J" + mark, "\r"} {
		n, err := to.Write([]byte(text + "\n"))
		require.NoError(t, err)
		require.Equal(t, len(text)+1, n)
	}
	require.Equal(t, "\x1b[32mlive\x1b[0m\n\x1b[G\x1b[K\n"+`\u001b[32m`+"\n"+`\xff]0;owned\xff`+"\n"+`\xff[2J\xff`+"\n"+`\r`+"\n", out.String())
}

// JSON stays JSON of the same value, because it has no escape for a byte that is not UTF-8.
func TestJSONLine_KeepsInvalidUTF8AsJSON(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"one byte": "{\"a\": \"x\xffy\"}", "two bytes": "[\"\xff\xfe\"]", "half a character": "\"\xc3\"", "control character": "\"\u0085\"",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var want, got any
			require.NoError(t, json.Unmarshal([]byte(text), &want))
			require.NoError(t, json.Unmarshal([]byte(jsonLine([]byte(text))), &got))
			require.Equal(t, want, got)
		})
	}
}

// Completion offers only words without characters that a shell interprets, and else the ID: bash inserts the common beginning
// of several words unquoted.
func TestCompletion_OffersWordsWithoutQuotes(t *testing.T) {
	t.Parallel()
	all := []candidate{
		{id: "id-1", name: "orders.v2", note: "production"},
		{id: "id-2", name: "$(touch x)a"}, {id: "id-3", name: "`x`"}, {id: "id-4", name: "a;b"}, {id: "id-5", name: "two words"},
		{id: "id-6", name: "größe"}, {id: "id-7", name: "-flag"}, {id: "id-8", name: "~root"}, {id: "id-9", name: "a\u009b"}, {id: "id-10"},
	}
	require.Equal(t, []string{
		"orders.v2\tproduction", "id-2\t$(touch x)a", "id-3\t`x`", "id-4\ta;b", "id-5\ttwo words", "id-6\tgröße", "id-7\t-flag", "id-8\t~root", `id-9` + "\t" + `a\u009b`, "id-10\t",
	}, completions(all))
	require.Empty(t, completion("$(touch x)", "", ""), "without an id")
	require.Equal(t, []string{"e1\t; x name"}, completion("; x", "e1", "name"), "environments")
}
