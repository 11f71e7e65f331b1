// SPDX-License-Identifier: Apache-2.0

package httptool

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
)

// The client reads a bounded part of a response, also if the response never ends.
func TestTool_BoundsResponses(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"10 MiB": 10 << 20, "endless": -1} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan struct{}, 2)
			s := newService(t, func(w http.ResponseWriter, r *http.Request) {
				defer func() { ended <- struct{}{} }()
				for sent := 0; (sent < size || size < 0) && r.Context().Err() == nil; sent += 1 << 10 {
					if _, err := io.WriteString(w, strings.Repeat("x", 1<<10)); err != nil {
						return
					}
				}
			})
			got, err := newClient(t, s.URL).runTool(t.Context(), newTool(t, "GET /o", ""), nil, "run/1")
			require.NoError(t, err)
			require.Equal(t, strings.Repeat("x", maxPlain), got["body"])
			require.Equal(t, true, got["truncated"])
			<-ended // the client has closed the connection
			_, err = newClient(t, s.URL).runTool(t.Context(), newTool(t, "GET /p", "result: body\n"), nil, "run/1")
			require.EqualError(t, err, "the response of the service has more than 240 KiB; request less data")
			<-ended
		})
	}
}

// A service that does not respond, or not completely, ends the call after the timeout of the tool.
func TestTool_TimesOut(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		method, want string
		headers      bool
	}{
		"no response to a read":     {"GET", "the service did not respond within 50ms", false},
		"incomplete response":       {"GET", "the service did not respond within 50ms", true},
		"no response to a write":    {"POST", "the service did not respond within 50ms. The request may have had its effect; look before you repeat it", false},
		"incomplete write response": {"POST", "the service did not respond within 50ms. The request may have had its effect", true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, func(w http.ResponseWriter, r *http.Request) {
				if c.headers {
					_, _ = io.WriteString(w, "{")
					_ = http.NewResponseController(w).Flush() // the client may have gone
				}
				<-r.Context().Done()
			})
			tool := toolIn(t, "base_url: ${URL}\ntimeout: 50ms\ntools: {x: {description: X, request: "+c.method+" /o}}\n", "t.x")
			_, err := newClient(t, s.URL).runTool(t.Context(), tool, nil, "run/1")
			require.ErrorContains(t, err, c.want)
			require.Len(t, s.requests(), 1)
		})
	}
}

// A cancelled run ends the request at once.
func TestTool_EndsWithTheRun(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	s := newService(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	_, err := newClient(t, s.URL).runTool(ctx, newTool(t, "GET /o", ""), nil, "run/1")
	require.Error(t, err)
	require.Len(t, s.requests(), 1)
}

// Reads follow up to three redirects. Writes follow none.
func TestTool_FollowsRedirectsOfReads(t *testing.T) {
	t.Parallel()
	other := newService(t, respond(200, "application/json", `{"at":"other"}`))
	for name, c := range map[string]struct {
		method, to string
		status     int
		want, err  string
		count      int
	}{
		"relative":        {"GET", "/end", 302, `{"at":"end"}`, "", 2},
		"permanent":       {"HEAD", "/end", 308, `null`, "", 2},
		"three":           {"GET", "/hop/2", 307, `{"at":"end"}`, "", 4},
		"four":            {"GET", "/hop/3", 307, "", "the service sent more than 3 redirects", 4},
		"loop":            {"GET", "/start", 301, "", "the service sent more than 3 redirects", 4},
		"other origin":    {"GET", other.URL + "/x", 302, `{"at":"other"}`, "", 1},
		"metadata":        {"GET", "http://169.254.169.254/latest/meta-data/", 302, "", "the address of the tool is not allowed", 1},
		"metadata, https": {"GET", "https://169.254.169.254/", 302, "", "the address of the tool is not allowed", 1},
		"private name":    {"GET", "http://metadata.google.internal/", 302, "", "the address of the tool is not allowed", 1},
		"loopback by v6":  {"GET", "http://[::1]:1/", 302, "", "the address of the tool is not allowed", 1},
		"file":            {"GET", "file:///etc/passwd", 302, "", "the service sent a redirect to something that is no http or https URL", 1},
		"no URL":          {"GET", "http://[", 302, "", "the service sent a redirect to something that is no http or https URL", 1},
		"write":           {"POST", "/end", 307, "", "the service redirected the request, and only reads follow redirects", 1},
		"write, see":      {"DELETE", "/end", 303, "", "the service redirected the request, and only reads follow redirects", 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t, func(w http.ResponseWriter, r *http.Request) {
				var hop int
				switch {
				case r.URL.Path == "/start":
					w.Header().Set("Location", c.to)
					w.WriteHeader(c.status)
				case r.URL.Path == "/end":
					respond(200, "application/json", `{"at":"end"}`)(w, r)
				default:
					_, _ = fmt.Sscanf(r.URL.Path, "/hop/%d", &hop)
					next := fmt.Sprintf("/hop/%d", hop-1)
					if hop == 1 {
						next = "/end"
					}
					http.Redirect(w, r, next, c.status)
				}
			})
			got, err := newClient(t, s.URL, "SECRET_TOKEN", "t0p-secret").runTool(t.Context(), newTool(t, c.method+" /start", "headers: {X-Key: '${SECRET_TOKEN}'}\n"), nil, "run/1")
			require.Len(t, s.requests(), c.count)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				require.NotContains(t, err.Error(), "169.254")
				return
			}
			require.NoError(t, err)
			text, err := json.Marshal(got["body"])
			require.NoError(t, err)
			require.JSONEq(t, c.want, string(text))
		})
	}
	for _, r := range other.requests() {
		require.Empty(t, r.header.Get("X-Key"), "another origin gets no header of the tool")
	}
}

// cutter is a server that closes its connections after a number of bytes of the response.
type cutter struct {
	net.Listener
	mu    sync.Mutex
	seen  []string // methods of the received requests
	after int
	warm  bool // answer the first request of each connection completely
	cuts  int  // number of cut responses
}

const cutResponse = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 8\r\n\r\n{\"a\": 1}"

func newCutter(t *testing.T, after int, warm bool) *cutter {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := &cutter{Listener: listener, after: after, warm: warm}
	var handlers sync.WaitGroup
	handlers.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			handlers.Go(func() { c.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		handlers.Wait()
	})
	return c
}

func (c *cutter) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	reader := bufio.NewReader(conn)
	for first := true; ; first = false {
		r, err := http.ReadRequest(reader)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		c.mu.Lock()
		c.seen = append(c.seen, r.Method)
		c.mu.Unlock()
		if c.warm && first {
			_, _ = io.WriteString(conn, cutResponse)
			continue
		}
		c.mu.Lock()
		c.cuts++
		c.mu.Unlock()
		_, _ = io.WriteString(conn, cutResponse[:c.after])
		return
	}
}

func (c *cutter) count(method string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.seen {
		if one == method {
			n++
		}
	}
	return n
}

// runCut calls a tool whose response is cut after some bytes, and returns the error of the call. With warm the request uses a
// connection that has served another one. On a busy machine the HTTP client closes such a connection instead, and then no
// response is cut. The call is repeated with a new server.
func runCut(t *testing.T, tool *bundle.HTTPTool, after int, warm bool) (c *cutter, err error) {
	t.Helper()
	for {
		c = newCutter(t, after, warm)
		client := newClient(t, "http://"+c.Addr().String())
		if warm {
			_, err := client.runTool(t.Context(), newTool(t, "DELETE /o", ""), nil, "run/0")
			require.NoError(t, err)
		}
		if _, err = client.runTool(t.Context(), tool, nil, "run/1"); c.hasCut() {
			return c, err
		}
	}
}

func (c *cutter) hasCut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cuts > 0
}

// A write whose response is cut is never sent again, at no byte of the response, on a new and on a used connection.
// A read is sent again only if there was no response.
func TestTool_SendsWritesOnce(t *testing.T) {
	t.Parallel()
	head := strings.Index(cutResponse, "\r\n\r\n") + len("\r\n\r\n")
	read, write, put := newTool(t, "GET /o", ""), newTool(t, "POST /o", "json: {a: 1}\n"), newTool(t, "PUT /o", "idempotent: true\n")
	for after := range len(cutResponse) {
		for _, warm := range []bool{false, true} {
			for method, tool := range map[string]*bundle.HTTPTool{"GET": read, "POST": write, "PUT": put} {
				t.Run(fmt.Sprintf("%s, %d bytes, used connection %v", method, after, warm), func(t *testing.T) {
					t.Parallel()
					c, err := runCut(t, tool, after, warm)
					switch {
					case method != "GET":
						require.Equal(t, 1, c.count(method))
						require.ErrorContains(t, err, "The request may have had its effect; look before you repeat it")
					case !warm && after < head:
						require.EqualError(t, err, "the service could not be reached")
						require.Equal(t, 1+maxRepeats, c.count(method))
					case warm && after < head:
						require.NoError(t, err, "a new connection answers its first request")
						require.Equal(t, 2, c.count(method))
					default:
						require.EqualError(t, err, "the response of the service ended early")
						require.Equal(t, 1, c.count(method))
					}
				})
			}
		}
	}
}

// A service that cannot be reached is an error without an address.
func TestTool_HidesAddresses(t *testing.T) {
	t.Parallel()
	c := newCutter(t, 0, false)
	address := c.Addr().String()
	require.NoError(t, c.Close())
	for _, method := range []string{"GET", "POST"} {
		t.Run(method, func(t *testing.T) {
			_, err := newClient(t, "http://"+address).runTool(t.Context(), newTool(t, method+" /o", ""), nil, "run/1")
			require.EqualError(t, err, "the service could not be reached")
		})
	}
	_, err := newClient(t, "http://10.1.2.3").runTool(t.Context(), newTool(t, "GET /o", ""), nil, "run/1")
	require.EqualError(t, err, "the address of the tool is not allowed; the platform operator can open it for the egress purpose tool")
}

// No byte of a sensitive variable is in a result or an error, whatever the service returns.
func TestTool_HidesSecrets(t *testing.T) {
	t.Parallel()
	const secret = `s3cr3t/"+ü&<canary>` // has a different form in each encoding
	quoted, err := json.Marshal(secret)
	require.NoError(t, err)
	echoes := map[string]http.HandlerFunc{
		"error as text":        respond(500, "text/plain", "no "+secret),
		"error as json":        respond(400, "application/json", `{"error":{"token":`+string(quoted)+`}}`),
		"error, escaped":       respond(400, "application/json", `{"error":"`+fmt.Sprintf(`\u00%x`, secret[0])+strings.Trim(string(quoted[2:]), `"`)+`"}`),
		"error in a URL":       respond(400, "text/plain", "/o?t="+url.QueryEscape(secret)+" /"+url.PathEscape(secret)),
		"error, long":          respond(400, "text/plain", strings.Repeat("x", maxExcerpt-5)+secret),
		"result":               respond(200, "application/json", `{"a":`+string(quoted)+`,`+string(quoted)+`:1}`),
		"result at the end":    respond(200, "text/plain", strings.Repeat("x", MaxBody-5)+secret+"z"),
		"result, plain end":    respond(200, "text/plain", strings.Repeat("x", maxPlain-5)+secret+"z"),
		"basic authentication": respond(200, "text/plain", "Basic "+base64.StdEncoding.EncodeToString([]byte("me:"+secret))),
		"header": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Echo", secret)
			w.Header().Set("Set-Cookie", "a="+url.QueryEscape(secret))
		},
		"redirect": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://10.0.0.1/"+url.PathEscape(secret))
			w.WriteHeader(http.StatusFound)
		},
		"broken redirect": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "ftp://"+url.PathEscape(secret))
			w.WriteHeader(http.StatusFound)
		},
		"broken connection": func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = io.WriteString(conn, "HTTP/1.1 "+secret+"\r\n\r\n")
				_ = conn.Close()
			}
		},
	}
	for name, handle := range echoes {
		for _, result := range []string{"", "result: '{\"all\": [string(body), headers]}'\n", "result: body.missing\n", "result: int(string(body))\n"} {
			for _, method := range []string{"GET", "POST"} {
				t.Run(name+" "+method+" "+result, func(t *testing.T) {
					s := newService(t, handle)
					tool := newTool(t, method+" /o/${SECRET_TOKEN}", "query: {t: '${SECRET_TOKEN}'}\nheaders: {X-Key: 'Key ${SECRET_HEADER}'}\n"+result)
					tool.BasicAuth = &[2]bundle.Template{{{Text: "me"}}, {{Variable: "SECRET_TOKEN"}}}
					got, err := newClient(t, s.URL, "SECRET_TOKEN", secret+"\n", "SECRET_HEADER", "h34d3r").runTool(t.Context(), tool, nil, "run/1")
					require.Equal(t, "Basic "+base64.StdEncoding.EncodeToString([]byte("me:"+secret)), s.requests()[0].header.Get("Authorization"))
					text := fmt.Sprint(got, err)
					if got != nil {
						encoded, err := json.Marshal(got)
						require.NoError(t, err)
						text += string(encoded)
					}
					for _, part := range []string{"s3cr3t", "canary", "h34d3r", "10.0.0.1", base64.StdEncoding.EncodeToString([]byte("me:" + secret))[:12]} {
						require.NotContains(t, text, part)
					}
				})
			}
		}
	}
}
