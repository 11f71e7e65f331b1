// SPDX-License-Identifier: Apache-2.0

package localrun

import (
	"bytes"
	"cmp"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
)

// maxRecorded limits the recorded part of a response, in bytes. It is more than tools read.
const maxRecorded = 512 << 10

const (
	// minValue is the length of the shortest value of a variable that is searched in URLs, minHeader in headers, in bytes.
	minValue  = 3
	minHeader = 6
)

// plainHeaders are headers without secrets.
var plainHeaders = []string{"Accept", "Accept-Encoding", "Content-Type", "User-Agent"}

// exchange is a request of a tool or script with its response.
type exchange struct {
	method string
	// target is a path, or a URL of a host that no variable names.
	target string
	status int
	header http.Header
	// body is JSON or a text. isJSON is true for JSON.
	body   any
	isJSON bool
	isCut  bool
}

// transport shows and keeps the requests of tools and scripts.
type transport struct {
	next     http.RoundTripper
	observer *observer
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	o := t.observer
	o.hideHeaders(req.Header)
	begin := o.now()
	s := Step{Kind: Request, Agent: pathOf(req.Context()), Method: req.Method, URL: req.URL.Redacted()}
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		s.MS, s.Error = o.elapsedSince(begin), err.Error()
		o.addStep(s)
		return nil, err
	}
	body, reading := io.ReadAll(io.LimitReader(resp.Body, maxRecorded+1))
	resp.Body = &readBody{Reader: io.MultiReader(bytes.NewReader(body), &failed{reading}, resp.Body), Closer: resp.Body}
	s.MS, s.Status = o.elapsedSince(begin), resp.StatusCode
	kept := exchange{method: req.Method, target: o.recordedTarget(req.URL), status: resp.StatusCode, header: resp.Header.Clone()}
	if kept.isCut = len(body) > maxRecorded; kept.isCut {
		body = body[:maxRecorded]
	}
	kept.body, kept.isJSON = decodeBody(body, resp.Header.Get("Content-Type"))
	o.mu.Lock()
	o.exchanges = append(o.exchanges, kept)
	o.mu.Unlock()
	o.addStep(s)
	return resp, nil
}

// readBody is a body whose beginning was read.
type readBody struct {
	io.Reader
	io.Closer
}

// failed returns an error that occurred before, or the end.
type failed struct{ err error }

func (f *failed) Read([]byte) (int, error) { return 0, cmp.Or(f.err, io.EOF) }

// hideHeaders makes the values of variables in headers secrets, and credentials in Authorization. They are not always marked as
// sensitive on the machine of an author.
func (o *observer) hideHeaders(header http.Header) {
	for name, values := range header {
		if slices.Contains(plainHeaders, name) {
			continue
		}
		for _, value := range values {
			if name == "Authorization" || name == "Proxy-Authorization" {
				_, credentials, _ := strings.Cut(value, " ")
				o.mask.addSecret(cmp.Or(credentials, value))
			}
			for _, v := range o.variables.Variables {
				if known := strings.TrimSpace(v.Value); len(known) >= minHeader && strings.Contains(value, known) {
					o.mask.addSecret(known)
				}
			}
		}
	}
}

// recordedTarget returns the target of a mock: a path below the base URL that a variable has, or a URL. Tests of agents have
// other values of variables, or none, so a target has no value of a variable, except a URL that the repository contains.
func (o *observer) recordedTarget(u *url.URL) string {
	origin, target := u.Scheme+"://"+u.Host, cmp.Or(u.EscapedPath(), "/")
	isVariable, longest := false, ""
	for _, v := range o.variables.Variables {
		value := strings.TrimRight(strings.TrimSpace(v.Value), "/")
		rest, isBase := strings.CutPrefix(origin+u.EscapedPath(), value)
		switch {
		case len(value) < minValue:
		case strings.HasPrefix(value, "http") && isBase && (rest == "" || rest[0] == '/') && len(value) > len(longest):
			isVariable, longest, target = true, value, cmp.Or(rest, "/")
		case strings.Contains(u.Host, value):
			isVariable = true
		}
	}
	segments := strings.Split(target, "/")
	for i := len(segments) - 1; i > 0; i-- {
		if text, err := url.PathUnescape(segments[i]); err != nil || o.isHidden(text) {
			target = "/" + strings.Join(segments[i+1:], "/")
			isVariable = true
			break
		}
	}
	if !isVariable {
		target = origin + target
	}
	if u.RawQuery == "" || o.isHidden(u.RawQuery) || hasHiddenValue(u.Query(), o.isHidden) {
		return target
	}
	return target + "?" + u.RawQuery
}

func hasHiddenValue(query url.Values, isHidden func(string) bool) bool {
	for _, values := range query {
		if slices.ContainsFunc(values, isHidden) {
			return true
		}
	}
	return false
}

// isHidden reports whether a text has a secret, or is the value of a variable.
func (o *observer) isHidden(text string) bool {
	return o.mask.hasSecret(text) || slices.ContainsFunc(o.variables.Variables, func(v runnerconfig.Variable) bool {
		return len(v.Value) >= minValue && strings.TrimSpace(v.Value) == text
	})
}

// decodeBody returns a body as JSON if tools read it as JSON, else as text.
func decodeBody(body []byte, contentType string) (value any, isJSON bool) {
	trimmed := strings.TrimSpace(string(body))
	if isJSONType(contentType) || strings.HasPrefix(trimmed, "{") || strings.HasPrefix(trimmed, "[") {
		if exactjson.Decode(body, &value) == nil && value != nil {
			return value, true
		}
	}
	return strings.ToValidUTF8(string(body), "\uFFFD"), false
}

func isJSONType(contentType string) bool {
	mediaType, _, err := mime.ParseMediaType(contentType)
	return err == nil && (mediaType == "application/json" || strings.HasSuffix(mediaType, "+json"))
}
