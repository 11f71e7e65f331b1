// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/fields"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// readForm returns the object of a form.
func readForm(in io.Reader, skip string) (string, error) {
	pairs, err := io.ReadAll(newFormReader(in, skip))
	if err != nil {
		return "", err
	}
	object, err := fields.Object(pairs)
	return string(object), err
}

func TestForm_BecomesObject(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		``:                             `{}`,
		`a=1`:                          `{"a":"1"}`,
		`b=1&a=2`:                      `{"b":"1","a":"2"}`,
		`a=1&b=2&a=3`:                  `{"a":["1","3"],"b":"2"}`,
		`&&a=1&`:                       `{"a":"1"}`,
		`a&b=`:                         `{"a":"","b":""}`,
		`=1`:                           `{"":"1"}`,
		`a=b=c`:                        `{"a":"b=c"}`,
		`a+b=c+d%2B%26%3d%25`:          `{"a b":"c d+&=%"}`,
		`a%5B%5D=1&a[]=2`:              `{"a[]":["1","2"]}`,
		`n=%C3%A4%e6%97%a5ä`:           `{"n":"ä日ä"}`,
		`a=%22%5c%0A%00`:               `{"a":"\"\\\n\u0000"}`,
		`a;b=1`:                        `{"a;b":"1"}`,
		`files=1&file_issues=2`:        `{"files":"1","file_issues":"2"}`,
		`secret=x&a=1&secret&%73ecret`: `{"secret":["x","",""],"a":"1"}`,
	} {
		t.Run(text, func(t *testing.T) {
			for _, in := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text))} {
				got, err := readForm(in, "")
				require.NoError(t, err)
				require.Equal(t, want, got)
			}
		})
	}
}

// TestForm_OmitsSecret: in every encoding; its value is not checked.
func TestForm_OmitsSecret(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`secret=x`: `{}`, `secret=%ff&a=1`: `{"a":"1"}`, `a=1&%73ecret=x&secret`: `{"a":"1"}`, `Secret=1&secrets=2`: `{"Secret":"1","secrets":"2"}`,
	} {
		t.Run(text, func(t *testing.T) {
			got, err := readForm(strings.NewReader(text), "secret")
			require.NoError(t, err)
			require.Equal(t, want, got)
		})
	}
}

func TestForm_InvalidBodies(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"half an escape": "a=%4", "no escape": "a=%zz", "an escape over a border": "a=%4&b=1",
		"no UTF-8": "a=%ff", "half a character": "a=%e6%97&b=1", "no UTF-8 in a key": "%ff=1",
		"too many fields": strings.Repeat("a&", fields.MaxFields+1),
		"key too long":    strings.Repeat("k", fields.MaxKey+1) + "=1",
	} {
		t.Run(name, func(t *testing.T) {
			for _, in := range []io.Reader{strings.NewReader(text), iotest.OneByteReader(strings.NewReader(text))} {
				_, err := readForm(in, "")
				var p httpserver.Problem
				require.ErrorAs(t, err, &p)
				require.Equal(t, http.StatusBadRequest, p.Status)
				require.Equal(t, httpserver.CodeInvalidForm, p.Code)
			}
		})
	}
	_, err := readForm(iotest.ErrReader(io.ErrUnexpectedEOF), "")
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

// send sends a request and returns its committed event.
func send(t *testing.T, k *keeper, method, query, contentType string, body io.Reader) (store.Event, *httptest.ResponseRecorder) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "/hooks/"+project.String()+"/"+uuid.NewString()+query, body)
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("Idempotency-Key", "k")
	w := httptest.NewRecorder()
	h := serving(t, k)
	h.ServeHTTP(w, r)
	require.Zero(t, h.bodies.Taken())
	if len(k.events) == 0 {
		return store.Event{}, w
	}
	return k.events[0], w
}

func TestForm_IsRecorded(t *testing.T) {
	t.Parallel()
	e, _ := send(t, &keeper{}, http.MethodPost, "?secret=x&b=2", typeForm, strings.NewReader("a=1&secret=y"))
	require.Equal(t, `{"a":"1","secret":"y"}`, string(e.Input))
	require.Equal(t, typeJSON, e.ContentType)
	e, _ = send(t, &keeper{}, http.MethodGet, "?a=1&secret=x&b=2&a=3", "image/png", strings.NewReader("{"))
	require.Equal(t, `{"a":["1","3"],"b":"2"}`, string(e.Input))
	require.Equal(t, typeJSON, e.ContentType)
	other, _ := send(t, &keeper{}, http.MethodGet, "?secret=y&a=1&b=2&a=3", "", nil)
	require.Equal(t, e.Idempotency.Fingerprint, other.Idempotency.Fingerprint)
	require.Equal(t, 24*time.Hour, e.Idempotency.TTL, "as long as the key is stored")
	other, _ = send(t, &keeper{}, http.MethodGet, "?a=1&b=2&a=4", "", nil)
	require.NotEqual(t, e.Idempotency.Fingerprint, other.Idempotency.Fingerprint)
}

// TestForm_LargeIsStoredAsPairs: while it arrives. An error at its end leaves nothing.
func TestForm_LargeIsStoredAsPairs(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("x", 200<<10)
	k := &keeper{keep: true}
	e, _ := send(t, k, http.MethodPost, "", typeForm, strings.NewReader("a="+text+"&a=2"))
	require.Equal(t, fields.ContentType, e.ContentType)
	require.Nil(t, e.Input)
	require.Equal(t, `[["a","`+text+`"],["a","2"]]`, string(k.blobs[*e.InputBlob]))
	k = &keeper{}
	_, w := send(t, k, http.MethodPost, "", typeForm, strings.NewReader("a="+text+"&a=%f"))
	require.Equal(t, http.StatusBadRequest, w.Code)
	require.Empty(t, k.blobs)
	require.Empty(t, k.events)
	_, w = send(t, k, http.MethodPost, "", typeForm, strings.NewReader("a="+strings.Repeat("x", MaxBody)))
	require.Equal(t, http.StatusRequestEntityTooLarge, w.Code)
}

// FuzzForm: a form is read like net/url reads it, or rejected.
func FuzzForm(f *testing.F) {
	for _, seed := range []string{"a=1&b=2", "a=%41+%ff", "&&=&a", "%", "a=%e6%97%a5"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := readForm(bytes.NewReader(text), "")
		want, wrong := url.ParseQuery(strings.ReplaceAll(string(text), ";", "%3b"))
		valid := wrong == nil
		count := 0
		for key, values := range want {
			count += len(values)
			valid = valid && len(key) <= fields.MaxKey && utf8.ValidString(key) && !slices.ContainsFunc(values, func(v string) bool { return !utf8.ValidString(v) })
		}
		if !valid || count > fields.MaxFields {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		read := map[string]any{}
		require.NoError(t, json.Unmarshal([]byte(got), &read))
		require.Len(t, read, len(want))
		for key, values := range want {
			if list, ok := read[key].([]any); ok {
				require.Len(t, list, len(values))
				continue
			}
			require.Equal(t, values[0], read[key])
		}
	})
}
