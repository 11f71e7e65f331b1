// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/agentplatform/agentplatform/bundle"
)

// mockTransport answers HTTP requests with mocks. A request without a mock fails its case, and nothing
// is sent.
type mockTransport []bundle.HTTPMock

func (m mockTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		defer func() { _ = req.Body.Close() }() // as a transport must
	}
	at := slices.IndexFunc(m, func(mock bundle.HTTPMock) bool { return fitsRequest(&mock, req) })
	if at < 0 {
		addRequest(req)
		return nil, errors.New("no mock answers the request")
	}
	return respondWith(&m[at], req)
}

// fitsRequest reports whether a mock answers a request.
func fitsRequest(mock *bundle.HTTPMock, req *http.Request) bool {
	method, target := bundle.ParseMockedRequest(mock.Request)
	got, want := cmp.Or(req.URL.EscapedPath(), "/"), cmp.Or(target.EscapedPath(), "/")
	switch {
	case method != req.Method:
		return false
	case target.Host != "" && (target.Scheme != req.URL.Scheme || target.Host != req.URL.Host || got != want):
		return false
	case target.Host == "" && !strings.HasSuffix(got, want):
		return false
	}
	return target.RawQuery == "" || maps.EqualFunc(target.Query(), req.URL.Query(), slices.Equal[[]string])
}

// respondWith returns the response of a mock.
func respondWith(mock *bundle.HTTPMock, req *http.Request) (*http.Response, error) {
	body, header := []byte(mock.Text), http.Header{}
	header.Set("Content-Type", "text/plain; charset=utf-8")
	if mock.JSON != nil {
		var err error
		if body, err = json.Marshal(mock.JSON); err != nil {
			return nil, fmt.Errorf("writing the response of a mock: %w", err)
		}
		header.Set("Content-Type", "application/json")
	}
	for name, value := range mock.Headers {
		header.Set(name, value)
	}
	status := mock.Status
	if status == 0 {
		status = http.StatusOK
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", status, http.StatusText(status)), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Request: req,
	}, nil
}

// addRequest adds a request without a mock. The text is a value for the key request of a mock.
func addRequest(req *http.Request) {
	text := req.Method + " " + req.URL.EscapedPath()
	if req.URL.RawQuery != "" {
		text += "?" + req.URL.RawQuery
	}
	addUnmocked(req.Context(), unmockedRequest, text)
}
