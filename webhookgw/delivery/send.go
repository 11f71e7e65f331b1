// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/internal/tracecontext"
	"github.com/agentplatform/agentplatform/internal/webhookapi"
	"github.com/agentplatform/agentplatform/store"
)

// attempt sends a claimed delivery and returns the outcome.
func (s *Sender) attempt(ctx context.Context, d claimedDelivery) store.Attempt {
	begin := s.opts.Now()
	var saw attemptResult
	switch {
	case d.contentsErr != nil:
		saw = attemptResult{class: classPlatform, message: "the result could not be read"}
	case d.destinationErr != nil:
		saw = resultOfConfigError(d.destinationErr)
	default:
		saw = s.sendRequest(ctx, d)
	}
	saw.at, saw.took = begin, s.opts.Now().Sub(begin)
	return s.toAttempt(d, saw)
}

// toAttempt returns the outcome of an attempt.
func (s *Sender) toAttempt(d claimedDelivery, saw attemptResult) store.Attempt {
	a := decideAttempt(saw, d.Tries+1, d.to.schedule, s.opts.Now(), s.opts.Random())
	a.Delivery, a.Generation = d.Delivery, d.Connector.Ref.Generation
	return a
}

// resultOfConfigError returns the result for a connector that cannot be used. If this process lacks a key,
// the next attempt may have it.
func resultOfConfigError(err error) attemptResult {
	if errors.Is(err, secrets.ErrNoKeys) || errors.As(err, new(*secrets.MissingKeyError)) {
		return attemptResult{class: classPlatform, message: "the platform's keys were not available"}
	}
	return attemptResult{class: classConnector, message: err.Error()}
}

// sendRequest makes one request, unless the claim could end before the request is recorded.
func (s *Sender) sendRequest(ctx context.Context, claimed claimedDelivery) attemptResult {
	d, to := claimed.ClaimedDelivery, claimed.to
	if blob := cmp.Or(d.OutputBlob, d.PayloadBlob); blob != nil {
		text, err := s.largeText(ctx, store.Key{ProjectID: d.Delivery.ProjectID, ID: *blob})
		if errors.Is(err, store.ErrNotFound) {
			return resultOfErased(d)
		}
		if err != nil {
			s.opts.Logger.Error("reading the contents of a delivery", "delivery", d.Delivery.Key(), "error", err)
			return attemptResult{class: classPlatform, message: "the result could not be read"}
		}
		if d.PayloadBlob != nil {
			d.Payload = []byte(text)
		} else {
			d.Run.Output = text
		}
	}
	body, unsent := deliveryBody(d)
	if unsent != nil {
		return *unsent
	}
	if s.opts.Now().Sub(claimed.since) > maxSendDelay {
		return attemptResult{class: classPlatform, message: "the attempt could not start in time"}
	}
	ctx, cancel := s.opts.WithTimeout(ctx, to.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to.url.String(), bytes.NewReader(body))
	if err != nil {
		return attemptResult{class: classConnector, message: "the connector's url is not a valid URL"}
	}
	request.Header = to.headers.Clone()
	request.Header.Set("Content-Type", "application/json")
	if request.Header.Get("User-Agent") == "" {
		request.Header.Set("User-Agent", webhookapi.UserAgent)
	}
	request.Header.Set(webhookapi.HeaderEvent, string(d.Kind))
	request.Header.Set(webhookapi.HopsHeader, strconv.Itoa(d.Hops))
	if d.RunID != uuid.Nil {
		request.Header.Set(tracecontext.Header, tracecontext.TraceparentOf(d.Traceparent, d.RunID.String(), ""))
	}
	webhookapi.Sign(request.Header, to.secret, to.previousSecrets, d.Delivery.ID, s.opts.Now(), body)
	response, err := s.client.Do(request)
	if err != nil {
		return resultOfError(ctx, err)
	}
	defer func() { _ = response.Body.Close() }() // only its start is read
	return resultOfResponse(response)
}

// resultOfErased returns the result for a delivery whose contents are no longer stored.
func resultOfErased(d store.ClaimedDelivery) attemptResult {
	if d.Kind == store.DeliverResult {
		return attemptResult{class: classErased, message: "the result is no longer stored"}
	}
	return attemptResult{class: classErased, message: "the payload is no longer stored"}
}

// deliveryBody returns the body of a delivery, or the reason why it cannot be sent.
func deliveryBody(d store.ClaimedDelivery) ([]byte, *attemptResult) {
	switch {
	case d.Kind == store.DeliverResult && d.Run.ID == uuid.Nil, d.Kind != store.DeliverResult && len(d.Payload) == 0:
		gone := resultOfErased(d)
		return nil, &gone
	case d.Kind != store.DeliverResult:
		return d.Payload, nil
	}
	body, err := envelopeOf(d.Run)
	if err != nil {
		return nil, &attemptResult{class: classConnector, message: "the result cannot be written as JSON"}
	}
	return body, nil
}

// resultOfResponse returns the result for a response. Its body is only read to be shown.
func resultOfResponse(response *http.Response) attemptResult {
	excerpt, _ := io.ReadAll(io.LimitReader(response.Body, store.MaxExcerpt))
	saw := attemptResult{status: response.StatusCode, retryAfter: response.Header.Get("Retry-After"), response: string(excerpt)}
	switch {
	case saw.status >= 200 && saw.status < 300:
	case saw.status >= 300 && saw.status < 400:
		saw.class, saw.message = classRedirect, fmt.Sprintf("the destination answered %s; redirects are not followed", statusText(saw.status))
	default:
		saw.class, saw.message = classStatus, "the destination answered "+statusText(saw.status)
	}
	return saw
}

// statusText returns a status code with its standard name. It does not repeat the text of the
// destination.
func statusText(status int) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", status, http.StatusText(status)))
}

// resultOfError returns the result for a request without a response. The message contains no IP address,
// because tenants must not learn the address behind a name.
func resultOfError(ctx context.Context, err error) attemptResult {
	var (
		dns       *net.DNSError
		record    tls.RecordHeaderError
		alert     tls.AlertError
		verifying *tls.CertificateVerificationError
		netErr    net.Error
	)
	switch {
	case errors.Is(err, egress.ErrForbidden):
		return attemptResult{class: classForbidden, message: egress.DescribeForbidden("the destination's address", err)}
	case errors.Is(ctx.Err(), context.DeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return attemptResult{class: classTimeout, message: "the destination did not answer in time"}
	case ctx.Err() != nil:
		return attemptResult{class: classPlatform, message: "the gateway stopped during the attempt"}
	case errors.As(err, &dns):
		return attemptResult{class: classDNS, message: "the destination's name was not found"}
	case errors.Is(err, syscall.ECONNREFUSED):
		return attemptResult{class: classRefused, message: "the destination refused the connection"}
	case errors.As(err, &verifying), errors.As(err, &record), errors.As(err, &alert), errors.Is(err, http.ErrSchemeMismatch):
		return attemptResult{class: classTLS, message: "the TLS connection to the destination failed, for example because of its certificate"}
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return attemptResult{class: classReset, message: "the destination closed the connection before its response"}
	}
	return attemptResult{class: classNetwork, message: "the destination could not be reached"}
}

// largeText reads an output or a payload from its blob.
func (s *Sender) largeText(ctx context.Context, blob store.Key) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	body, err := s.opts.Store.OpenBlob(ctx, blob)
	if err != nil {
		return "", fmt.Errorf("opening a blob: %w", err)
	}
	defer func() { _ = body.Close() }() // it was only read
	data, err := io.ReadAll(io.LimitReader(body, store.MaxOutput))
	if err != nil {
		return "", fmt.Errorf("reading a blob: %w", err)
	}
	return string(data), nil
}

// storeTimeout limits each call of the store.
const storeTimeout = 20 * time.Second

// envelopeOf returns the same bytes for each attempt of a run.
func envelopeOf(run store.Run) ([]byte, error) {
	e := webhookapi.Envelope{
		RunID: run.ID, AgentName: run.AgentName, Status: string(run.Status), Output: run.Output, Error: webhookapi.Optional(run.Error), FinishReason: webhookapi.Optional(run.FinishReason),
		StartedAt: run.StartedAt, EndedAt: run.EndedAt, TokenUsage: webhookapi.TokenUsage(run.Usage),
	}
	return json.Marshal(e)
}
