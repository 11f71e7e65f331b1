// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/fields"
	"github.com/agentplatform/agentplatform/store"
)

// inputs is a store whose runs have one input.
type inputs struct {
	Store
	headers     map[string]string
	contentType string
	body        io.Reader
	err         error
}

func (i inputs) RunInput(context.Context, store.Key) (string, io.ReadCloser, error) {
	return i.contentType, io.NopCloser(i.body), i.err
}

// RunHeaders are those of every run.
func (i inputs) RunHeaders(context.Context, store.Key) (map[string]string, error) {
	return i.headers, nil
}

// TestTheContextOfARunHasItsHeaders: of one that is shown alone, and null without any.
func TestTheContextOfARunHasItsHeaders(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	for want, headers := range map[string]map[string]string{
		`{"headers":{"x-github-event":"push \"a\""}}`: {"x-github-event": `push "a"`},
		"": nil,
	} {
		t.Run(want, func(t *testing.T) {
			w.server.store = inputs{Store: w.db, headers: headers, body: strings.NewReader("text")}
			status, body := w.call(t, key, http.MethodGet, "/runs/"+w.completed.String(), "")
			require.Equal(t, http.StatusOK, status, string(body))
			require.Equal(t, want, string(decode[Run](t, body).Context))
		})
	}
}

// TestAnInputIsShownAsWhatItIs: JSON as JSON, the rest as text, and nothing that is
// too large.
func TestAnInputIsShownAsWhatItIs(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	for name, c := range map[string]struct {
		contentType, body string
		want              any
	}{
		"JSON":                {"application/json", `{"a":[1]}`, map[string]any{"a": []any{1.0}}},
		"with a charset":      {"application/json; charset=utf-8", `{"a":1}`, map[string]any{"a": 1.0}},
		"not JSON after all":  {"application/json", `{"a":`, `{"a":`},
		"fields":              {fields.ContentType, `[["a","1"],["b","2"],["a","3"]]`, map[string]any{"a": []any{"1", "3"}, "b": "2"}},
		"text":                {"text/plain", `{"a":1}`, `{"a":1}`},
		"of no type":          {"", "hello", "hello"},
		"of an odd type":      {";;;", "hello", "hello"},
		"empty":               {"application/json", "", nil},
		"as large as may be":  {"text/plain", strings.Repeat("a", maxShownInput), strings.Repeat("a", maxShownInput)},
		"larger":              {"text/plain", strings.Repeat("a", maxShownInput+1), nil},
		"a number of its own": {"application/json", `12345678901234567890`, 12345678901234567890.0},
	} {
		t.Run(name, func(t *testing.T) {
			w.server.store = inputs{Store: w.db, contentType: c.contentType, body: strings.NewReader(c.body)}
			status, body := w.call(t, key, http.MethodGet, "/runs/"+w.completed.String(), "")
			require.Equal(t, http.StatusOK, status, "%s", body)
			require.Equal(t, c.want, decode[Run](t, body).Input)
		})
	}
}

// TestAnInputThatCannotBeRead: is gone, which is shown, or fails, which is said.
func TestAnInputThatCannotBeRead(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	for name, c := range map[string]struct {
		store  inputs
		status int
	}{
		"gone":          {inputs{body: &bytes.Buffer{}, err: store.ErrNotFound}, http.StatusOK},
		"failing":       {inputs{body: &bytes.Buffer{}, err: io.ErrUnexpectedEOF}, http.StatusServiceUnavailable},
		"broken midway": {inputs{body: iotest.ErrReader(errors.New("CANARY"))}, http.StatusInternalServerError},
	} {
		t.Run(name, func(t *testing.T) {
			c.store.Store = w.db
			w.server.store = c.store
			status, body := w.call(t, key, http.MethodGet, "/runs/"+w.completed.String(), "")
			require.Equal(t, c.status, status, "%s", body)
			require.NotContains(t, string(body), "CANARY")
			if status == http.StatusOK {
				require.Nil(t, decode[Run](t, body).Input)
			}
		})
	}
}

// TestAnEmptyAnswerIsAnAnswer: and no answer is none.
func TestAnEmptyAnswerIsAnAnswer(t *testing.T) {
	t.Parallel()
	empty := ""
	for name, c := range map[string]struct {
		run           store.Run
		output, error *string
	}{
		"completed with nothing": {store.Run{Status: store.RunCompleted}, &empty, nil},
		"completed":              {store.Run{Status: store.RunCompleted, Output: "x"}, opt("x"), nil},
		"failed":                 {store.Run{Status: store.RunFailed, Error: "why", ErrorCode: "code"}, nil, opt("why")},
		"failed without a word":  {store.Run{Status: store.RunFailed, ErrorCode: "code"}, nil, opt("code")},
		"queued":                 {store.Run{Status: store.RunQueued}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			shown := showRun(c.run)
			require.Equal(t, c.output, shown.Output)
			require.Equal(t, c.error, shown.Error)
			require.Equal(t, opt(string(c.run.ErrorCode)), shown.ErrorCode)
			require.NotNil(t, shown.Traces)
			require.NotNil(t, shown.Logs)
		})
	}
}
