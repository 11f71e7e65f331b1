// SPDX-License-Identifier: Apache-2.0

package runs_test

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

	"github.com/agentplatform/agentplatform/apiserver"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/runs"
	"github.com/agentplatform/agentplatform/internal/fields"
	"github.com/agentplatform/agentplatform/store"
)

// inputs is a store whose runs have one input.
type inputs struct {
	apiserver.Store
	headers     map[string]string
	contentType string
	body        io.Reader
	err         error
}

func (i inputs) RunInput(context.Context, store.Key) (string, io.ReadCloser, error) {
	return i.contentType, io.NopCloser(i.body), i.err
}

// RunHeaders are the headers of every run.
func (i inputs) RunHeaders(context.Context, store.Key) (map[string]string, error) {
	return i.headers, nil
}

// A single run shows its headers, or null without headers.
func TestGetRun_ShowsContextHeaders(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	for want, headers := range map[string]map[string]string{
		`{"headers":{"x-github-event":"push \"a\""}}`: {"x-github-event": `push "a"`},
		"": nil,
	} {
		t.Run(want, func(t *testing.T) {
			w.UseStore(inputs{Store: w.Store, headers: headers, body: strings.NewReader("text")})
			status, body := w.Call(t, key, http.MethodGet, "/runs/"+w.CompletedRun.String(), "")
			require.Equal(t, http.StatusOK, status, string(body))
			require.Equal(t, want, string(apiservertest.Decode[runs.Run](t, body).Context))
		})
	}
}

// JSON is shown as JSON and other input as text. Large input is left out.
func TestGetRun_ShowsInputByType(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	for name, c := range map[string]struct {
		contentType, body string
		want              any
	}{
		"JSON":                   {"application/json", `{"a":[1]}`, map[string]any{"a": []any{1.0}}},
		"with a charset":         {"application/json; charset=utf-8", `{"a":1}`, map[string]any{"a": 1.0}},
		"invalid JSON":           {"application/json", `{"a":`, `{"a":`},
		"fields":                 {fields.ContentType, `[["a","1"],["b","2"],["a","3"]]`, map[string]any{"a": []any{"1", "3"}, "b": "2"}},
		"text":                   {"text/plain", `{"a":1}`, `{"a":1}`},
		"no content type":        {"", "hello", "hello"},
		"malformed content type": {";;;", "hello", "hello"},
		"empty":                  {"application/json", "", nil},
		"maximum size":           {"text/plain", strings.Repeat("a", 1<<20), strings.Repeat("a", 1<<20)},
		"above the maximum size": {"text/plain", strings.Repeat("a", 1<<20+1), nil},
		"a number as document":   {"application/json", `12345678901234567890`, 12345678901234567890.0},
	} {
		t.Run(name, func(t *testing.T) {
			w.UseStore(inputs{Store: w.Store, contentType: c.contentType, body: strings.NewReader(c.body)})
			status, body := w.Call(t, key, http.MethodGet, "/runs/"+w.CompletedRun.String(), "")
			require.Equal(t, http.StatusOK, status, "%s", body)
			require.Equal(t, c.want, apiservertest.Decode[runs.Run](t, body).Input)
		})
	}
}

// Deleted input is shown as deleted. A failed read returns an error.
func TestGetRun_HandlesUnreadableInput(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	for name, c := range map[string]struct {
		store  inputs
		status int
	}{
		"gone":          {inputs{body: &bytes.Buffer{}, err: store.ErrNotFound}, http.StatusOK},
		"failing":       {inputs{body: &bytes.Buffer{}, err: io.ErrUnexpectedEOF}, http.StatusServiceUnavailable},
		"broken midway": {inputs{body: iotest.ErrReader(errors.New("CANARY"))}, http.StatusInternalServerError},
	} {
		t.Run(name, func(t *testing.T) {
			c.store.Store = w.Store
			w.UseStore(c.store)
			status, body := w.Call(t, key, http.MethodGet, "/runs/"+w.CompletedRun.String(), "")
			require.Equal(t, c.status, status, "%s", body)
			require.NotContains(t, string(body), "CANARY")
			if status == http.StatusOK {
				require.Nil(t, apiservertest.Decode[runs.Run](t, body).Input)
			}
		})
	}
}
