// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
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
	"github.com/agentplatform/agentplatform/internal/keyring"
	"github.com/agentplatform/agentplatform/internal/signing"
	"github.com/agentplatform/agentplatform/internal/webhookapi"
	"github.com/agentplatform/agentplatform/store"
)

// attempt sends a claimed delivery, and says what that means for it.
func (s *Sender) attempt(ctx context.Context, d claimed) store.Attempt {
	begin := s.opts.Now()
	var saw seen
	switch {
	case d.unread != nil:
		saw = seen{class: classPlatform, message: "the result could not be read"}
	case d.unsent != nil:
		saw = unsendable(d.unsent)
	default:
		saw = s.send(ctx, d)
	}
	saw.at, saw.took = begin, s.opts.Now().Sub(begin)
	return s.judged(d, saw)
}

// judged is what that which was seen of a delivery means for it.
func (s *Sender) judged(d claimed, saw seen) store.Attempt {
	a := judge(saw, d.Tries+1, d.to.schedule, s.opts.Now(), s.opts.Random())
	a.Delivery, a.Generation = d.Delivery, d.Connector.Ref.Generation
	return a
}

// unsendable is what comes of a delivery whose connector cannot be sent with: a key that
// this process lacks may be there the next time.
func unsendable(err error) seen {
	if errors.Is(err, keyring.ErrNoKeys) || errors.As(err, new(*keyring.MissingError)) {
		return seen{class: classPlatform, message: "the platform's keys were not there"}
	}
	return seen{class: classConnector, message: err.Error()}
}

// send makes one request, unless its claim might end before that is recorded.
func (s *Sender) send(ctx context.Context, claimed claimed) seen {
	d, to := claimed.ClaimedDelivery, claimed.to
	if blob := cmp.Or(d.OutputBlob, d.PayloadBlob); blob != nil {
		text, err := s.largeText(ctx, store.Key{ProjectID: d.Delivery.ProjectID, ID: *blob})
		if errors.Is(err, store.ErrNotFound) {
			return erased(d)
		}
		if err != nil {
			s.opts.Logger.Error("reading what a delivery carries", "delivery", d.Delivery.Key(), "error", err)
			return seen{class: classPlatform, message: "the result could not be read"}
		}
		if d.PayloadBlob != nil {
			d.Payload = []byte(text)
		} else {
			d.Run.Output = text
		}
	}
	body, unsent := bodyOf(d)
	if unsent != nil {
		return *unsent
	}
	if s.opts.Now().Sub(claimed.since) > sendWithin {
		return seen{class: classPlatform, message: "the attempt could not be made in time"}
	}
	ctx, cancel := s.opts.WithTimeout(ctx, to.timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to.url.String(), bytes.NewReader(body))
	if err != nil {
		return seen{class: classConnector, message: "the connector's url is not one that can be called"}
	}
	request.Header = to.headers.Clone()
	request.Header.Set("Content-Type", "application/json")
	if request.Header.Get("User-Agent") == "" {
		request.Header.Set("User-Agent", signing.UserAgent)
	}
	request.Header.Set(signing.HeaderEvent, string(d.Kind))
	request.Header.Set(webhookapi.HopsHeader, strconv.Itoa(d.Hops))
	signing.Sign(request.Header, to.secret, to.former, d.Delivery.ID, s.opts.Now(), body)
	response, err := s.client.Do(request)
	if err != nil {
		return failure(ctx, err)
	}
	defer func() { _ = response.Body.Close() }() // whose beginning was read
	return answered(response)
}

// erased is what comes of a delivery whose contents are not there any more.
func erased(d store.ClaimedDelivery) seen {
	if d.Kind == store.DeliverResult {
		return seen{class: classErased, message: "the result is not stored any more"}
	}
	return seen{class: classErased, message: "what was to be sent is not stored any more"}
}

// bodyOf is what a delivery carries, or what keeps it from being sent.
func bodyOf(d store.ClaimedDelivery) ([]byte, *seen) {
	switch {
	case d.Kind == store.DeliverResult && d.Run.ID == uuid.Nil, d.Kind != store.DeliverResult && len(d.Payload) == 0:
		gone := erased(d)
		return nil, &gone
	case d.Kind != store.DeliverResult:
		return d.Payload, nil
	}
	body, err := envelopeOf(d.Run)
	if err != nil {
		return nil, &seen{class: classConnector, message: "the result cannot be written as JSON"}
	}
	return body, nil
}

// answered is what an answer says. What is read of its body is only to be shown.
func answered(response *http.Response) seen {
	excerpt, _ := io.ReadAll(io.LimitReader(response.Body, store.MaxExcerpt))
	saw := seen{status: response.StatusCode, retryAfter: response.Header.Get("Retry-After"), response: string(excerpt)}
	switch {
	case saw.status >= 200 && saw.status < 300:
	case saw.status >= 300 && saw.status < 400:
		saw.class, saw.message = classRedirect, fmt.Sprintf("the destination answered %s; redirects are not followed", statusText(saw.status))
	default:
		saw.class, saw.message = classStatus, "the destination answered "+statusText(saw.status)
	}
	return saw
}

// statusText is a status with its name: what the destination calls it is not ours to repeat.
func statusText(status int) string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", status, http.StatusText(status)))
}

// failure is what came of a request without an answer. The message names no address: the
// one behind a name is nothing that a tenant is to learn.
func failure(ctx context.Context, err error) seen {
	var (
		dns       *net.DNSError
		record    tls.RecordHeaderError
		alert     tls.AlertError
		verifying *tls.CertificateVerificationError
		netErr    net.Error
	)
	switch {
	case errors.Is(err, egress.ErrForbidden):
		return seen{class: classForbidden, message: "the destination's address is not one that may be reached"}
	case errors.Is(ctx.Err(), context.DeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		return seen{class: classTimeout, message: "the destination did not answer in time"}
	case ctx.Err() != nil:
		return seen{class: classPlatform, message: "the gateway stopped in the middle of the attempt"}
	case errors.As(err, &dns):
		return seen{class: classDNS, message: "the destination's name was not found"}
	case errors.Is(err, syscall.ECONNREFUSED):
		return seen{class: classRefused, message: "the destination refused the connection"}
	case errors.As(err, &verifying), errors.As(err, &record), errors.As(err, &alert), errors.Is(err, http.ErrSchemeMismatch):
		return seen{class: classTLS, message: "the destination's certificate or TLS was not accepted"}
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return seen{class: classReset, message: "the destination closed the connection before it answered"}
	}
	return seen{class: classNetwork, message: "the destination could not be reached"}
}

// largeText reads an output, or a payload, from its blob.
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

// storeTimeout bounds each call of the store.
const storeTimeout = 20 * time.Second
