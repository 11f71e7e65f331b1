// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// found returns the text of a field in a body that arrives byte by byte.
func found(name, body string) string {
	f := newFieldScanner(name)
	_, _ = io.Copy(f, iotest.OneByteReader(strings.NewReader(body)))
	return f.valueText()
}

// TestField_FindsTopLevelText: at each position of the object, and only at its top level.
func TestField_FindsTopLevelText(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1<<20)
	for body, want := range map[string]string{
		`{"event_id":"Ev1"}`: "Ev1",
		` { "a" : ["event_id", {"event_id":"no"}], "event_id" : "Ev2" , "b":1}`: "Ev2",
		`{"event":{"event_id":"no"},"event\u005fid":"\u0045v3"}`:                "Ev3",
		`{"text":"` + long + `","event_id":"Ev4"}`:                              "Ev4",
		`{"event_id":"Ev1","event_id":"Ev5"}`:                                   "Ev5",
		`{"event_id":"a\"b\\"}`:                                                 `a"b\`,
		`{"event_id":7}`:                                                        "",
		`{"event_id":{"event_id":"no"}}`:                                        "",
		`{"event_id":"Ev1","event_id":null}`:                                    "",
		`[{"event_id":"no"}]`:                                                   "",
		`{"event_id":"` + long + `"}`:                                           "",
		`{"event_id":"Ev1"`:                                                     "",
		`{"event_id":"Ev1"} {}`:                                                 "",
		`payload=%7B%22event_id%22%3A%22Ev1`:                                    "",
		``:                                                                      "",
		`{"Event_id":"no","event_idx":"no"}`:                                    "",
		`{"x":"\"event_id\":","y":"\\\"Ev1"}`:                                   "",
	} {
		t.Run(fmt.Sprintf("%.60s", body), func(t *testing.T) {
			require.Equal(t, want, found("event_id", body), body[:min(len(body), 80)])
			f := newFieldScanner("event_id")
			_, _ = f.Write([]byte(body))
			require.Equal(t, want, f.valueText(), "in one piece: %s", body[:min(len(body), 80)])
		})
	}
}

// FuzzField: it finds the same text as encoding/json for fields in this spelling.
func FuzzField(f *testing.F) {
	f.Add(`{"id":"evt_1"}`)
	f.Add(`{"a":{"id":"x"},"id":"\u0065\n"}`)
	f.Add(`{"id`)
	f.Fuzz(func(t *testing.T, body string) {
		text := found("id", body)
		require.LessOrEqual(t, len(text), 3*maxFieldText)
		var fields map[string]json.RawMessage
		var want string
		if json.Unmarshal([]byte(body), &fields) != nil {
			require.Empty(t, text, "it is no object")
			return
		}
		if raw := fields["id"]; len(raw) <= maxFieldText && json.Unmarshal(raw, &want) == nil {
			require.Equal(t, want, text)
		}
	})
}
