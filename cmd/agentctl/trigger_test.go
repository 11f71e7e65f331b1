// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/keys"
)

// hooked is a REST API with one connector, and the webhook of the connector.
type hooked struct {
	*httptest.Server
	key, project, connector string
	secret                  string
	// kind and mode describe the connector; the defaults are webhook and inbound.
	kind, mode string
	// hook is the URL of the webhook; the default is one of this server.
	hook string
	// answer and status are the response of the webhook. runs are the responses for runs, one after the other.
	answer string
	status int
	runs   []string
	// header, body and form are from the last request to the webhook.
	header http.Header
	body   string
	form   map[string]string
}

func newHooked(t *testing.T) *hooked {
	t.Helper()
	h := &hooked{key: keys.Generate().String(), project: uuid.NewString(), connector: uuid.NewString(), secret: "of the connector", status: http.StatusOK}
	h.Server = httptest.NewServer(h)
	t.Cleanup(h.Close)
	return h
}

func (h *hooked) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	api := "/v1/projects/" + h.project
	switch {
	case r.URL.Path == "/hook":
		h.header = r.Header.Clone()
		text, _ := io.ReadAll(r.Body)
		h.body, h.form = string(text), map[string]string{}
		r.Body = io.NopCloser(bytes.NewReader(text))
		if reader, err := r.MultipartReader(); err == nil {
			for part, err := reader.NextPart(); err == nil; part, err = reader.NextPart() {
				content, _ := io.ReadAll(part)
				h.form[part.FileName()] = string(content)
			}
		}
		w.WriteHeader(h.status)
		_, _ = io.WriteString(w, h.answer)
	case r.Header.Get("Authorization") != "Bearer "+h.key:
		problemAnswer(http.StatusUnauthorized, "unauthorized")(w)
	case r.URL.Path == api+"/connectors/"+h.connector:
		shown := map[string]any{"type": cmp.Or(h.kind, "webhook"), "mode": cmp.Or(h.mode, "inbound"), "webhook_url": cmp.Or(h.hook, h.URL+"/hook"), "secret": h.secret}
		if h.kind == "cron" || h.mode == "outbound" {
			shown["webhook_url"], shown["secret"] = nil, nil
		}
		_ = json.NewEncoder(w).Encode(shown)
	case strings.HasPrefix(r.URL.Path, api+"/runs/"):
		_, _ = io.WriteString(w, h.runs[0])
		h.runs = h.runs[1:]
	default:
		problemAnswer(http.StatusNotFound, "not_found")(w)
	}
}

// runTrigger runs the command on a file with that content.
func (h *hooked) runTrigger(t *testing.T, name, content string, change func(*triggerOptions)) (out string, err error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
	o := &triggerOptions{
		restOptions: restOptions{server: h.URL, project: h.project, key: h.key}, connector: h.connector, http: h.Client(),
		getenv: func(string) string { return "" }, wait: func(context.Context, time.Duration) error { return nil },
	}
	change(o)
	var stdout bytes.Buffer
	err = o.triggerConnector(t.Context(), file, strings.NewReader(content), &stdout)
	return stdout.String(), err
}

// A JSON object is the body of the request, another file is an attachment.
func TestTrigger_SendsAFile(t *testing.T) {
	t.Parallel()
	h := newHooked(t)
	h.answer = `{"status":"ok","dispatched_to":1,"run_ids":["1"]}`
	out, err := h.runTrigger(t, "order.json", `{"order": 1}`, func(o *triggerOptions) { o.idempotencyKey = "mine" })
	require.NoError(t, err)
	require.Equal(t, h.answer+"\n", out)
	require.Equal(t, `{"order": 1}`, h.body)
	require.Equal(t, "application/json", h.header.Get("Content-Type"))
	require.Equal(t, "of the connector", h.header.Get("X-Service-Secret"))
	require.Equal(t, "mine", h.header.Get("Idempotency-Key"))
	require.Equal(t, "respond-async", h.header.Get("Prefer"))
	for name, content := range map[string]string{"list.json": `[1]`, "null.json": `null`, "photo.jpg": "\xff\xd8", "two.json": `{} {}`} {
		t.Run(name, func(t *testing.T) {
			_, err := h.runTrigger(t, name, content, func(*triggerOptions) {})
			require.NoError(t, err)
			require.Equal(t, map[string]string{name: content}, h.form)
		})
	}
	_, err = h.runTrigger(t, "large", strings.Repeat("x", maxTrigger), func(*triggerOptions) {})
	require.ErrorContains(t, err, "16 MiB")
	_, err = h.runTrigger(t, "missing", "", func(o *triggerOptions) { o.connector = uuid.NewString() })
	require.ErrorContains(t, err, "not_found")
}

// A secret file takes precedence over the environment, which takes precedence over the REST API. A masked secret is none.
func TestTrigger_FindsTheSecret(t *testing.T) {
	t.Parallel()
	h := newHooked(t)
	h.answer = `{"status":"ok"}`
	file := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(file, []byte("of the file\n"), 0o600))
	for want, change := range map[string]func(*triggerOptions){
		"of the file":        func(o *triggerOptions) { o.secretFile = file },
		"of the environment": func(o *triggerOptions) { o.connector, o.url = "", h.URL+"/hook" },
	} {
		t.Run(want, func(t *testing.T) {
			_, err := h.runTrigger(t, "a.json", `{}`, func(o *triggerOptions) {
				o.getenv = func(name string) string {
					require.Equal(t, "AGENTPLATFORM_WEBHOOK_SECRET", name)
					return "of the environment"
				}
				change(o)
			})
			require.NoError(t, err)
			require.Equal(t, want, h.header.Get("X-Service-Secret"))
		})
	}
	h.secret = "********"
	_, err := h.runTrigger(t, "a.json", `{}`, func(*triggerOptions) {})
	require.NoError(t, err)
	require.NotContains(t, h.header, "X-Service-Secret")
	_, err = h.runTrigger(t, "a.json", `{}`, func(o *triggerOptions) {
		o.connector, o.url, o.secretFile = "", "http://agents.example/hook", file
	})
	require.ErrorContains(t, err, "unencrypted")
	require.ErrorContains(t, err, "--url http://127.0.0.1:18080/hook ")
	require.ErrorContains(t, err, "AGENTPLATFORM_WEBHOOK_SECRET")
	_, err = h.runTrigger(t, "a.json", `{}`, func(o *triggerOptions) { o.connector = "" })
	require.EqualError(t, err, "give --connector or --url")

	h.secret, h.hook = "of the connector", "http://gateway.cluster.example/hook"
	_, err = h.runTrigger(t, "a.json", `{}`, func(*triggerOptions) {})
	require.ErrorContains(t, err, "unencrypted to gateway.cluster.example")
	_, err = h.runTrigger(t, "a.json", `{}`, func(o *triggerOptions) { o.url = h.URL + "/hook" })
	require.NoError(t, err, "the URL is that of the flag, the secret that of the connector")
	require.Equal(t, "of the connector", h.header.Get("X-Service-Secret"))
}

// With --sync the command waits for the runs, and fails if one fails.
func TestTrigger_WaitsForRuns(t *testing.T) {
	t.Parallel()
	wait := func(o *triggerOptions) { o.sync = true }
	for name, c := range map[string]struct {
		status       int
		answer       string
		runs         []string
		out, failure string
	}{
		"a sync webhook":    {200, `{"status":"ok","result":{"status":"completed"}}`, nil, "completed", ""},
		"one whose run has": {200, `{"status":"failed","result":{"status":"failed"}}`, nil, "failed", "has ended as failed"},
		"an inbound webhook": {
			200, `{"status":"ok","run_ids":["1","2"]}`, []string{`{"status":"queued"}`, `{"status":"completed","output":"one"}`, `{"status":"completed","output":"two"}`},
			`"two"`, "",
		},
		"one of whose runs one fails": {200, `{"status":"ok","run_ids":["1"]}`, []string{`{"status":"failed","error":"no"}`}, `"no"`, "run 1 has ended as failed"},
		"a refusal":                   {409, `{"status":409,"code":"connector_disabled","detail":"The connector is disabled."}`, nil, "disabled", "409 connector_disabled: The connector is disabled."},
		"a wrong secret": {
			401, `{"status":401,"code":"invalid_secret","detail":"a secret is needed"}`, nil, "401",
			"401 invalid_secret: a secret is needed; the webhook has another secret; the secret that was sent came from --secret-file",
		},
		"an answer of somebody else": {502, `{"message":"bad gateway"}`, nil, "bad", "502: not a response of a webhook"},
		"no webhook":                 {200, `<html>`, nil, "<html>", "not a response of a webhook"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHooked(t)
			h.status, h.answer, h.runs = c.status, c.answer, c.runs
			out, err := h.runTrigger(t, "a.json", `{}`, wait)
			require.Contains(t, out, c.out)
			require.NotContains(t, h.header, "Prefer")
			if c.failure == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.failure)
			}
			require.Empty(t, h.runs)
		})
	}
	h := newHooked(t)
	h.answer = `{"status":"ok","run_ids":["1"]}`
	_, err := h.runTrigger(t, "a.json", `{}`, func(o *triggerOptions) { o.sync, o.connector, o.url = true, "", h.URL+"/hook" })
	require.ErrorContains(t, err, "give --connector to wait")
	h.status, h.answer = 401, `{"status":401,"code":"invalid_secret","detail":"a secret is needed"}`
	_, err = h.runTrigger(t, "a.json", `{}`, func(o *triggerOptions) { o.connector, o.url = "", h.URL+"/hook" })
	require.ErrorContains(t, err, "401 invalid_secret: a secret is needed; no secret was sent: give it by --secret-file or AGENTPLATFORM_WEBHOOK_SECRET")
}

// A connector without a webhook is rejected, with the reason.
func TestTrigger_NeedsAWebhook(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ kind, mode, want string }{
		"cron":     {"cron", "", "a cron connector has no webhook: its schedule starts its runs"},
		"outbound": {"", "outbound", "the connector has no webhook: its mode is outbound"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHooked(t)
			h.kind, h.mode = row.kind, row.mode
			_, err := h.runTrigger(t, "a.json", `{}`, func(*triggerOptions) {})
			require.EqualError(t, err, row.want)
			require.Nil(t, h.header)
		})
	}
}
