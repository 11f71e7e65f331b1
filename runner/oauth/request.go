// SPDX-License-Identifier: Apache-2.0

package oauth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/agentplatform/agentplatform/internal/egress"
)

// maxAnswer limits the answers of token endpoints, in bytes.
const maxAnswer = 64 << 10

// Error means that there is no access token. Its text has no secrets and no addresses.
type Error struct {
	// App is the name of the OAuth app; "" for none.
	App string
	// Problem is the reason.
	Problem string
	// IsTemporary is true if the same request may succeed later.
	IsTemporary bool
	cause       error
}

func (e *Error) Error() string {
	if e.App == "" {
		return "getting an access token: " + e.Problem
	}
	return fmt.Sprintf("getting an access token of the OAuth app %q: %s", e.App, e.Problem)
}

// Unwrap returns the error of the context that ended the wait for a token, or nil.
func (e *Error) Unwrap() error { return e.cause }

// lateAnswer is the problem of a request for a token that took too long.
const lateAnswer = "the token endpoint did not answer in time"

// token is the answer of a token endpoint. life is 0 for a token without an end.
type token struct {
	text string
	life time.Duration
}

// requestToken requests a token.
func requestToken(ctx context.Context, client *http.Client, config *clientcredentials.Config) (token, error) {
	bounded := &http.Client{
		Transport:     boundedTransport{client.Transport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	got, err := config.Token(context.WithValue(ctx, oauth2.HTTPClient, bounded))
	if err != nil {
		return token{}, describeError(ctx, err)
	}
	if !strings.EqualFold(got.TokenType, "bearer") || !httpguts.ValidHeaderFieldValue(got.AccessToken) {
		return token{}, &Error{Problem: "the token endpoint returned no bearer token"}
	}
	// Not got.Expiry, which is by another clock than the source's.
	seconds, err := strconv.ParseFloat(fmt.Sprint(got.Extra("expires_in")), 64)
	if err != nil || seconds <= 0 {
		return token{text: got.AccessToken}, nil
	}
	return token{got.AccessToken, time.Duration(min(seconds, maxLife.Seconds()) * float64(time.Second))}, nil
}

// describeError returns an *Error without the texts of the library and of the server.
func describeError(ctx context.Context, err error) error {
	var answered *oauth2.RetrieveError
	switch {
	case errors.As(err, &answered):
		status := answered.Response.StatusCode
		return &Error{
			Problem:     fmt.Sprintf("the token endpoint answered %d%s", status, shownCode(answered.ErrorCode)),
			IsTemporary: status >= http.StatusInternalServerError || status == http.StatusTooManyRequests,
		}
	case errors.Is(err, egress.ErrForbidden):
		return &Error{Problem: egress.DescribeForbidden("the address of the token endpoint", err)}
	case errors.Is(err, errLargeAnswer):
		return &Error{Problem: fmt.Sprintf("the answer of the token endpoint has more than %d KiB", maxAnswer>>10)}
	case ctx.Err() != nil:
		return &Error{Problem: lateAnswer, IsTemporary: true}
	case errors.Is(err, errConnection):
		return &Error{Problem: "the token endpoint cannot be reached", IsTemporary: true}
	}
	return &Error{Problem: "the answer of the token endpoint is not as OAuth 2.0 says"}
}

// knownCode is the form of an error code of OAuth. Other texts of the server are not shown.
var knownCode = regexp.MustCompile(`^[a-z_]{1,40}$`)

func shownCode(code string) string {
	if !knownCode.MatchString(code) {
		return ""
	}
	return ", " + code
}

var (
	errLargeAnswer = errors.New("the answer is too large")
	errConnection  = errors.New("no answer")
)

// boundedTransport reads answers as a whole, up to a limit: the library hides the errors of reads.
type boundedTransport struct{ next http.RoundTripper }

func (t boundedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("Accept", "application/json")
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errConnection, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", errConnection, err)
	case len(body) > maxAnswer:
		return nil, errLargeAnswer
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return resp, nil
}
