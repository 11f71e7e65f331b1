// SPDX-License-Identifier: Apache-2.0

package mcp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
)

// call calls the tool get once.
func (f *fake) call(t *testing.T, repeatable bool) (map[string]any, error) {
	t.Helper()
	c, _ := newClient(t)
	return c.Call(t.Context(), f.server(t), "get", map[string]any{"id": json.Number("12345678901234567890")}, repeatable)
}

func TestCall_SendsExactArguments(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	var params string
	f.answer = func(w http.ResponseWriter, _ *http.Request, call request) {
		params = string(call.Params)
		reply(w, call, textResult("done"))
	}
	got, err := f.call(t, false)
	require.NoError(t, err)
	require.Equal(t, map[string]any{"result": "done"}, got)
	var sent map[string]any
	require.NoError(t, json.Unmarshal([]byte(params), &sent))
	require.Contains(t, sent["_meta"], "progressToken")
	delete(sent, "_meta")
	require.Equal(t, map[string]any{"name": "get", "arguments": map[string]any{"id": 12345678901234567890.0}}, sent)
	require.Contains(t, params, "12345678901234567890")
	require.Equal(t, 1, f.ledger())
}

func TestCall_ReadsResults(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("ä", 60_000)
	for _, row := range []struct{ name, result, want, wantErr string }{
		{"text", textResult("a"), `{"result":"a"}`, ""},
		{"texts", `{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}`, `{"result":"a\nb"}`, ""},
		{"structured", `{"content":[{"type":"text","text":"a"}],"structuredContent":{"n":12345678901234567890.50}}`, `{"n":12345678901234567890.50}`, ""},
		{"structured list", `{"content":[],"structuredContent":[1, 2.0]}`, `{"result":"[1,2.0]"}`, ""},
		{"large structured", `{"content":[],"structuredContent":{"a":"` + long + `"}}`, `{"a":"` + long + `"}`, ""},
		{"large text", textResult(long), `{"result":"` + long + `"}`, ""},
		{"error", `{"content":[{"type":"text","text":"no\n such\tid"}],"isError":true}`, "", "no such id"},
		{"error without a message", `{"content":[],"isError":true}`, "", "the tool failed without a message"},
		{"long error", `{"content":[{"type":"text","text":"` + long + `"}],"isError":true}`, "", strings.Repeat("ä", 1024)},
		{"binary", `{"content":[{"type":"text","text":"a"},{"type":"image","data":"AAAA","mimeType":"image/png"},{"type":"resource","resource":{"uri":"x","blob":"AA","mimeType":"font/x"}}]}`,
			`{"result":"a","note":"2 parts without text were left out: image/png, font/x"}`, ""},
		{"embedded text", `{"content":[{"type":"resource","resource":{"uri":"x","text":"t"}},{"type":"resource_link","uri":"file:///x","name":"n"}]}`, `{"result":"t\nn file:///x"}`, ""},
		{"asks for input", `{"content":[],"resultType":"input_required","inputRequests":{}}`, "", "asks for input"},
		{"not a result", `7`, "", "not as the protocol says"},
		{"nothing", `{}`, `{"result":""}`, ""},
	} {
		for _, kind := range []string{"json", "events"} {
			t.Run(row.name+" as "+kind, func(t *testing.T) {
				t.Parallel()
				f := newFake(t)
				f.answer = func(w http.ResponseWriter, _ *http.Request, call request) {
					if kind == "json" {
						reply(w, call, row.result)
						return
					}
					w.Header().Set("Content-Type", "text/event-stream")
					_, _ = fmt.Fprintf(w, "id: 7\nevent: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{}}\n\n"+
						"retry: 1\n: comment\nid: 8\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\r\ndata: \"result\":%s}\n\n", call.ID, row.result)
				}
				got, err := f.call(t, false)
				require.Equal(t, 1, f.ledger())
				if row.wantErr != "" {
					require.ErrorContains(t, err, row.wantErr)
					require.LessOrEqual(t, len(err.Error()), 2<<10)
					return
				}
				require.NoError(t, err)
				text, err := json.Marshal(got)
				require.NoError(t, err)
				require.JSONEq(t, row.want, string(text))
				require.Contains(t, string(text), strings.Trim(row.want, `{}`)[:min(12, len(row.want)-2)])
			})
		}
	}
}

// A call is executed at most once whatever happens to its answer, unless the tool is vouched for.
func TestCall_NeverRepeatsLostCalls(t *testing.T) {
	t.Parallel()
	closed := func(w http.ResponseWriter, _ *http.Request, _ request) { hijack(w, "") }
	status := func(code int) func(http.ResponseWriter, *http.Request, request) {
		return func(w http.ResponseWriter, _ *http.Request, _ request) { http.Error(w, "x", code) }
	}
	rpc := func(code int, id string) func(http.ResponseWriter, *http.Request, request) {
		return func(w http.ResponseWriter, _ *http.Request, call request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":`+strings.ReplaceAll(id, "ID", string(call.ID))+`,"error":{"code":-32000,"message":"broken"}}`)
		}
	}
	for _, row := range []struct {
		name            string
		answer          func(w http.ResponseWriter, r *http.Request, call request)
		want            string
		once, repeating int
	}{
		{"closed", closed, "outcome_unknown", 1, 3},
		{"404 of a proxy", status(404), "outcome_unknown", 1, 4},
		{"500", status(500), "outcome_unknown", 1, 3},
		{"503", status(503), "outcome_unknown", 1, 3},
		{"408", status(408), "outcome_unknown", 1, 3},
		{"no type", func(w http.ResponseWriter, _ *http.Request, _ request) { _, _ = io.WriteString(w, "<html>") }, "outcome_unknown", 1, 3},
		{"no JSON", func(w http.ResponseWriter, _ *http.Request, _ request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, "{")
		}, "outcome_unknown", 1, 3},
		{"other ID", func(w http.ResponseWriter, _ *http.Request, call request) {
			reply(w, request{ID: json.RawMessage("9999")}, "{}")
		}, "outcome_unknown", 1, 3},
		{"empty stream", func(w http.ResponseWriter, _ *http.Request, _ request) {
			w.Header().Set("Content-Type", "text/event-stream")
		}, "outcome_unknown", 1, 3},
		{"invalid event", func(w http.ResponseWriter, _ *http.Request, _ request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "id: 1\ndata: {\n\n")
		}, "outcome_unknown", 1, 3},
		{"rejected", status(413), "HTTP status 413", 1, 1},
		{"credentials", status(401), "rejects the credentials", 1, 1},
		{"error of the server", rpc(200, "ID"), `answered: broken`, 1, 1},
		{"error with a status", rpc(500, "ID"), `answered: broken`, 1, 1},
		{"404 of the server", rpc(404, "null"), `answered: broken`, 2, 2},
		{"400 of the server", rpc(400, "null"), `answered: broken`, 2, 2},
		{"400 for the call", rpc(400, "ID"), `answered: broken`, 1, 1},
	} {
		for kind, want := range map[bool]int{false: row.once, true: row.repeating} {
			t.Run(fmt.Sprintf("%s, repeatable %t", row.name, kind), func(t *testing.T) {
				t.Parallel()
				f := newFake(t)
				f.answer = row.answer
				got, err := f.call(t, kind)
				require.Contains(t, fmt.Sprint(got, err), row.want)
				require.Equal(t, want, f.ledger())
				require.NotContains(t, fmt.Sprint(got, err), "127.0.0.1")
			})
		}
	}
}

// hijack writes the start of an answer and closes the connection.
func hijack(w http.ResponseWriter, text string) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_, _ = io.WriteString(conn, text)
		_ = conn.Close()
	}
}

// An answer that is cut after any byte is lost, and the call is not repeated.
func TestCall_AnswerCutAtEachByte(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, header, body string }{
		{"json", "Content-Type: application/json\r\nContent-Length: %d\r\n", `{"jsonrpc":"2.0","id":%s,"result":` + textResult("done") + `}`},
		{"json until the end of the connection", "Content-Type: application/json\r\nConnection: close\r\n", `{"jsonrpc":"2.0","id":%s,"result":` + textResult("done") + `}`},
		{"events", "Content-Type: text/event-stream\r\nConnection: close\r\n", "id: 1\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":" + textResult("done") + "}\n\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			f, cut := newFake(t), 0
			whole := 1 << 20
			f.answer = func(w http.ResponseWriter, _ *http.Request, call request) {
				body := fmt.Sprintf(row.body, call.ID)
				header := row.header
				if strings.Contains(header, "%d") {
					header = fmt.Sprintf(header, len(body))
				}
				text := "HTTP/1.1 200 OK\r\n" + header + "\r\n" + body
				whole = len(text)
				hijack(w, text[:min(cut, whole)])
			}
			c, _ := newClient(t)
			server := f.server(t)
			for ; cut < whole; cut++ {
				got, err := c.Call(t.Context(), server, "get", nil, false)
				require.NoError(t, err)
				if cut == whole-1 && row.name == "json until the end of the connection" {
					continue // The last brace is missing.
				}
				require.Equal(t, "outcome_unknown", got["error"], "after %d bytes", cut)
				require.Equal(t, cut+1, f.ledger(), "after %d bytes", cut)
			}
			got, err := c.Call(t.Context(), server, "get", nil, false)
			require.NoError(t, err)
			require.Equal(t, map[string]any{"result": "done"}, got)
		})
	}
}

// A lost answer fails the run if the repository asks for it.
func TestCall_LostAnswerCanFail(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.answer = func(w http.ResponseWriter, _ *http.Request, _ request) { hijack(w, "") }
	c, _ := newClient(t)
	server := resolve(t, bundle.MCPServer{URL: f.URL, OnLostAnswer: bundle.MCPFail})
	_, err := c.Call(t.Context(), server, "get", nil, false)
	require.EqualError(t, err, `the call was sent to the MCP server "crm" and its answer is lost: the connection failed`)
	require.Equal(t, 1, f.ledger())
}

// A cancelled call is lost at once, and the client notifies the server. A call that can be repeated has no result: the next attempt of
// the run repeats it.
func TestCall_CancelTellsServer(t *testing.T) {
	t.Parallel()
	for _, repeatable := range []bool{false, true} {
		t.Run(fmt.Sprintf("repeatable %t", repeatable), func(t *testing.T) {
			t.Parallel()
			cancelCall(t, repeatable)
		})
	}
}

func cancelCall(t *testing.T, repeatable bool) {
	t.Helper()
	f := newFake(t)
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan string, 1)
	f.before = func(w http.ResponseWriter, r *http.Request, call request) bool {
		if call.Method == "notifications/cancelled" {
			told <- string(call.Params)
		}
		return false
	}
	f.answer = func(_ http.ResponseWriter, r *http.Request, _ request) {
		cancel()
		<-r.Context().Done()
	}
	c, _ := newClient(t)
	got, err := c.Call(ctx, f.server(t), "get", nil, repeatable)
	if repeatable {
		require.ErrorIs(t, err, context.Canceled)
	} else {
		require.NoError(t, err)
		require.Equal(t, "outcome_unknown", got["error"])
		require.Contains(t, got["message"], "the call was cancelled")
	}
	require.Contains(t, <-told, "requestId")
	require.Equal(t, 1, f.ledger())
}

// Nothing leaves for a server that cannot be reached, so the model learns that the call was not made.
func TestCall_ReportsUnreachableServers(t *testing.T) {
	t.Parallel()
	c, _ := newClient(t)
	for _, row := range []struct{ name, url, want string }{
		{"closed port", "http://127.0.0.1:1/", "the connection failed"},
		{"metadata service", "http://169.254.169.254/latest", "its address is not allowed; the platform operator can open it for the egress purpose mcp"},
		{"plain http", "http://93.184.216.34/", "its address is not allowed; the platform operator can open it for the egress purpose mcp"},
	} {
		t.Run(row.name, func(t *testing.T) {
			got, err := c.Call(t.Context(), resolve(t, bundle.MCPServer{URL: row.url}), "get", nil, false)
			require.EqualError(t, err, `the MCP server "crm" cannot be used: `+row.want)
			require.Nil(t, got)
		})
	}
}

// A redirect could lead to an address that the repository does not name.
func TestCall_FollowsNoRedirects(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.answer = func(w http.ResponseWriter, r *http.Request, _ request) {
		http.Redirect(w, r, "http://169.254.169.254/latest/meta-data", http.StatusTemporaryRedirect)
	}
	_, err := f.call(t, true)
	require.ErrorContains(t, err, "it redirects to another address (HTTP status 307)")
	require.NotContains(t, err.Error(), "169")
	require.Equal(t, 1, f.ledger())
}
