// SPDX-License-Identifier: Apache-2.0

package httptool

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/tracecontext"
	"github.com/agentplatform/agentplatform/runner/oauth"
)

const (
	// maxRedirects limits the redirects of a read.
	maxRedirects = 3
	// maxRepeats limits how often a read is sent again after a connection error.
	maxRepeats = 2
	// MaxBody limits the used part of the body of a response, in bytes. maxRead is more, so that a secret at the
	// end is redacted as a whole.
	MaxBody = 240 << 10
	maxRead = MaxBody + 32<<10
	// maxError limits the text of an error, in bytes.
	maxError = 2 << 10
)

// request is a rendered request.
type request struct {
	method string
	url    *url.URL
	header http.Header
	body   []byte
	// key is the idempotency key, "" for none.
	key    string
	isRead bool
	// saves is true if the whole body of the response is read.
	saves bool
	// isSent is true if a part of the request may have left.
	isSent bool
}

// Errors for the model. They contain no address.
var (
	errUnreachable  = errors.New("the service could not be reached")
	errNoResponse   = errors.New("the service did not respond")
	errManyHops     = errors.New("the service sent more than 3 redirects")
	errBadRedirect  = errors.New("the service sent a redirect to something that is no http or https URL")
	errMovedWrite   = errors.New("the service redirected the request, and only reads follow redirects; correct base_url or the path of the tool")
	errLost         = errors.New("the response of the service was lost")
	errCut          = errors.New("the response of the service ended early")
	errNotCompleted = errors.New("the request was not completed")
	errLargeFile    = fmt.Errorf("the response of the service has more than %d MiB", dispatchapi.MaxSavedFile>>20)
)

// isTemporary reports whether the same request may succeed later.
func isTemporary(err error) bool {
	var rejected *statusError
	if errors.As(err, &rejected) {
		return rejected.status >= http.StatusInternalServerError || rejected.status == http.StatusTooManyRequests || rejected.status == http.StatusRequestTimeout
	}
	var noToken *oauth.Error
	if errors.As(err, &noToken) {
		return noToken.IsTemporary
	}
	temporary := []error{errUnreachable, errNoResponse, errLost, errCut}
	return slices.ContainsFunc(temporary, func(target error) bool { return errors.Is(err, target) })
}

// unknownEffect returns the end of an error of a write that may have reached the service.
func (r *request) unknownEffect() string {
	if r.isRead || !r.isSent {
		return ""
	}
	return ". The request may have had its effect; look before you repeat it"
}

// sendRequest sends a request and reads the beginning of the response. It follows the redirects of reads.
func (c *Client) sendRequest(ctx context.Context, req *request) (*response, error) {
	req.addTraceparent(ctx)
	for hops := 0; ; hops++ {
		got, err := c.sendPatiently(ctx, req)
		if err != nil {
			return nil, err
		}
		location := got.Header.Get("Location")
		if !isRedirect(got.StatusCode) || location == "" {
			return readResponse(got, req)
		}
		_ = got.Body.Close()
		switch {
		case !req.isRead:
			return nil, errMovedWrite
		case hops == maxRedirects:
			return nil, errManyHops
		}
		if err := req.followRedirect(location); err != nil {
			return nil, err
		}
	}
}

// addTraceparent names the current action as the cause of the request, unless the request names another cause.
func (r *request) addTraceparent(ctx context.Context) {
	if text := tracecontext.CurrentTraceparent(ctx); text != "" && r.header.Get(tracecontext.Header) == "" {
		r.header.Set(tracecontext.Header, text)
	}
}

func isRedirect(status int) bool {
	switch status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return false
}

// followRedirect changes the URL. Another origin gets no header of the tool, because it may be a secret.
func (r *request) followRedirect(location string) error {
	to, err := r.url.Parse(location)
	if err != nil || to.Host == "" || to.Scheme != "https" && to.Scheme != "http" {
		return errBadRedirect
	}
	if to.Scheme != r.url.Scheme || to.Host != r.url.Host {
		r.header = http.Header{"Accept": r.header["Accept"], "User-Agent": r.header["User-Agent"]}
	}
	to.User, to.Fragment = nil, ""
	r.url = to
	return nil
}

// sendPatiently sends a request, and a read again after a connection error without a response.
func (c *Client) sendPatiently(ctx context.Context, req *request) (*http.Response, error) {
	for repeats := 0; ; repeats++ {
		got, err := c.sendOnce(ctx, req)
		switch {
		case err == nil:
			return got, nil
		case ctx.Err() != nil:
			return nil, errNotCompleted
		case errors.Is(err, egress.ErrForbidden):
			return nil, errors.New(egress.DescribeForbidden("the address of the tool", err))
		case !req.isRead && req.isSent:
			return nil, fmt.Errorf("%w%s", errLost, req.unknownEffect())
		case !req.isRead || repeats == maxRepeats || errors.Is(err, egress.ErrUpgrade):
			return nil, errUnreachable
		}
	}
}

// sendOnce sends a request. net/http must not send a write again, which it does if the connection
// breaks and the write has the canonical header Idempotency-Key or can replay its body.
func (c *Client) sendOnce(ctx context.Context, req *request) (*http.Response, error) {
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { req.isSent = true }})
	out, err := http.NewRequestWithContext(ctx, req.method, req.url.String(), nil)
	if err != nil {
		return nil, errUnreachable // not err, which contains the URL
	}
	out.URL, out.Header = req.url, req.header.Clone()
	if req.body != nil {
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(req.body)), int64(len(req.body))
	}
	if own := out.Header["Idempotency-Key"]; len(own) > 0 {
		delete(out.Header, "Idempotency-Key")
		out.Header["idempotency-key"] = own
	} else if req.key != "" {
		out.Header["idempotency-key"] = []string{req.key}
	}
	return c.transport.RoundTrip(out)
}
