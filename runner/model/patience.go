// SPDX-License-Identifier: Apache-2.0

package model

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/openai/openai-go/v3/option"

	"github.com/agentplatform/agentplatform/internal/runerror"
)

const (
	// requestTime limits one request, for all models.
	requestTime = 10 * time.Minute
	// silenceTime limits the time without a byte from the service: from the request to the first
	// byte of the response, and between two bytes.
	silenceTime = 2 * time.Minute
)

var (
	errSlow = &Error{Code: runerror.ModelTimeout, Retryable: true, Message: fmt.Sprintf(
		"the model did not answer within %s, and the request timed out", requestTime)}
	errSilent = &Error{Code: runerror.ModelTimeout, Retryable: true, Message: fmt.Sprintf(
		"the model service sent nothing for %s, and the request timed out", silenceTime)}
)

// givenUp returns the cause if one of our timeouts ended the context, or else err.
func givenUp(ctx context.Context, err error) error {
	if own, ok := AsError(context.Cause(ctx)); ok {
		return own
	}
	return err
}

// giveUpOnSilence ends a request to a service that sends nothing.
func giveUpOnSilence(req *http.Request, next option.MiddlewareNext) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	silence := time.AfterFunc(silenceTime, func() { cancel(errSilent) })
	resp, err := next(req.WithContext(ctx))
	if err != nil {
		silence.Stop()
		defer cancel(nil)
		return nil, givenUp(ctx, err)
	}
	silence.Reset(silenceTime)
	resp.Body = &heardBody{ReadCloser: resp.Body, ctx: ctx, cancel: cancel, silence: silence}
	return resp, nil
}

// heardBody is a response body that restarts the silence timer with each byte.
type heardBody struct {
	io.ReadCloser
	ctx     context.Context //nolint:containedctx // the request's own life
	cancel  context.CancelCauseFunc
	silence *time.Timer
}

func (b *heardBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.silence.Reset(silenceTime)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = givenUp(b.ctx, err)
	}
	return n, err
}

func (b *heardBody) Close() error {
	b.silence.Stop()
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}
