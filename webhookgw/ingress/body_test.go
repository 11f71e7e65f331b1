// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/testenv/memtest"
)

// TestBody_RejectsInvalidJSON: the response has the position and the error. Nothing is stored.
func TestBody_RejectsInvalidJSON(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ body, detail string }{
		"empty":               {"", "The body is empty. Send a JSON object, or {} without fields."},
		"white space":         {" \r\n", "The body is empty. Send a JSON object, or {} without fields."},
		"byte order mark":     {"\ufeff", "The body is empty. Send a JSON object, or {} without fields."},
		"cut off":             {"{\n\"a\":", "The body is not valid JSON: line 2, column 5: unexpected end."},
		"latin 1":             {"{\"a\":\"caf\xe9\"}", "The body is not valid JSON: line 1, column 10: the text is not UTF-8."},
		"latin 1 in a key":    {"{\"caf\xe9\":1}", "The body is not valid JSON: line 1, column 6: the text is not UTF-8."},
		"latin 1 in a name":   {"{\"files\":[{\"name\":\"\xe9\",\"data\":\"\"}]}", "The body is not valid JSON: line 1, column 20: the text is not UTF-8."},
		"half a pair":         {`{"a":"\ud800"}`, "The body is not valid JSON: line 1, column 7: an escape is half of a surrogate pair, which is not a character."},
		"beyond float64":      {`{"n":1e400}`, "The body is not valid JSON: line 1, column 6: the number is too large."},
		"400 digits":          {`{"n":` + strings.Repeat("1", 400) + `}`, "The body is not valid JSON: line 1, column 6: the number is too large."},
		"two marks":           {"\ufeff\ufeff{}", "The body is not valid JSON: line 1, column 1: unexpected character."},
		"a mark after spaces": {" \ufeff{}", "The body is not valid JSON: line 1, column 2: unexpected character."},
		"too deep":            {`{"a":` + strings.Repeat("[", 10000) + strings.Repeat("]", 10000) + "}", "The body is not valid JSON: line 1, column 10005: more than 10000 objects and lists are nested."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := &keeper{}
			answer, p := post(t, serving(t, k), strings.NewReader(c.body))
			require.Equal(t, http.StatusBadRequest, answer.Code)
			require.Equal(t, httpserver.CodeInvalidJSON, p.Code)
			require.Equal(t, c.detail, p.Detail)
			require.Empty(t, k.events)
		})
	}
}

// TestBody_StoresJSONUnchanged: with all digits of numbers, and without a byte order mark.
func TestBody_StoresJSONUnchanged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in   io.Reader
		want string
	}{
		"numbers":            {strings.NewReader(`{"id":7615917337495251231,"n":[1.10,-0,1E5,1e-400]}`), `{"id":7615917337495251231,"n":[1.10,-0,1E5,1e-400]}`},
		"pairs":              {strings.NewReader(`{"a":"\ud83d\ude00 😀"}`), `{"a":"\ud83d\ude00 😀"}`},
		"a mark":             {strings.NewReader("\ufeff{\"a\":1}"), `{"a":1}`},
		"a mark, by bytes":   {iotest.OneByteReader(strings.NewReader("\ufeff{\"a\":1}")), `{"a":1}`},
		"less than a mark":   {iotest.OneByteReader(strings.NewReader("{}")), `{}`},
		"a mark in a string": {strings.NewReader("{\"a\":\"\ufeff\"}"), "{\"a\":\"\ufeff\"}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := &keeper{}
			answer, _ := post(t, serving(t, k), c.in)
			require.Equal(t, http.StatusOK, answer.Code, answer.Body)
			require.Len(t, k.events, 1)
			require.Equal(t, c.want, string(k.events[0].Input))
		})
	}
}

// TestBody_CheckUsesLittleMemory: less than the size of the body, with the maximum number of parts.
func TestBody_CheckUsesLittleMemory(t *testing.T) { // not parallel, because it measures memory
	for name, shape := range map[string]struct{ begin, end, part string }{
		"list":   {`{"files":[0`, `]}`, `,0`},
		"fields": {`{"files":0`, `}`, `,"%d":0`},
		"files":  {`{"files":[0`, `]}`, `,{"":0}`},
		"escape": {`{"files":[{"":0`, `}]}`, `,"\u0064\u0061t":0`},
		"name":   {`{"files":[{"name":"`, `"}]}`, `AAAAAAAAAAAAAAAA`},
		"type":   {`{"files":[{"mime_type":"\"`, `"}]}`, `\\AAAAAAAAAAAAAA`},
	} {
		t.Run(name, func(t *testing.T) {
			body := bytes.NewBufferString(shape.begin)
			for i := 0; body.Len() < MaxBody-100; i++ {
				part := shape.part
				if strings.Contains(part, "%d") {
					part = fmt.Sprintf(part, i)
				}
				body.WriteString(part)
			}
			body.WriteString(shape.end)
			memtest.AtMost(t, MaxBody/16, func() {
				in := newInlineFiles(bytes.NewReader(body.Bytes()), &attachments{})
				_, err := io.Copy(io.Discard, in)
				require.NoError(t, in.text.problem())
				require.NoError(t, err)
			})
		})
	}
}

// TestInline_ReuseForgetsPreviousBody: the memory of a body is reused, whatever the body was.
func TestInline_ReuseForgetsPreviousBody(t *testing.T) {
	t.Parallel()
	file := `"files":[{"name":"a.txt","mime_type":"text/plain","data":"YQ=="}]`
	for name, before := range map[string]string{
		"an object":            `{"a":1}`,
		"with a file":          `{` + file + `}`,
		"that ends in a file":  `{"files":[{"name":"a.txt","data":"YQ`,
		"that ends in a label": `{"files":[{"name":"a.t`,
		"with plain files":     `{"files":["a",{"name":"b"}]}`,
		"that is too deep":     strings.Repeat(`{"a":[`, 6000),
		"that is not UTF-8":    "{\"a\":\"\xff\"}",
		"that ends in a pair":  `{"a":"\ud800`,
		"of nothing":           ``,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first := newInlineFiles(strings.NewReader(before), &newShelf().attachments)
			_, _ = io.Copy(io.Discard, first) // whatever its error
			first.close()
			body, shelf := "{\"b\":[1,{}],"+file+"}", newShelf()
			second := newInlineFiles(strings.NewReader(body), &shelf.attachments)
			defer second.close()
			rest, err := io.ReadAll(second)
			require.NoError(t, err)
			require.NoError(t, second.text.problem())
			require.JSONEq(t, strings.Replace(body, "YQ==", "", 1), string(rest))
			require.Equal(t, []string{`a.txt files text/plain "a"`}, shelf.listFiles())
		})
	}
}

// TestInline_ShortBodyUsesLittleMemory: buffers are reused.
func TestInline_ShortBodyUsesLittleMemory(t *testing.T) { // not parallel, because it measures memory
	const bodies = 1000
	most := uint64(bodies * jsonPiece / 16)
	if raced {
		most *= 32 // the pool allocates at times
	}
	memtest.AtMost(t, most, func() {
		for range bodies {
			in := newInlineFiles(strings.NewReader(`{"name":"Ada"}`), &attachments{})
			_, err := io.Copy(io.Discard, in)
			require.NoError(t, err)
			in.close()
		}
	})
}
