// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/signing"
	"github.com/agentplatform/agentplatform/internal/webhookapi"
)

// forwardTimeout bounds sending one delivery to the local port.
const forwardTimeout = 30 * time.Second

// forwarder sends deliveries to a local port.
type forwarder struct {
	url, secret string
	now         func() time.Time
	http        *http.Client
}

func newForwarder(url, secret string, now func() time.Time) *forwarder {
	return &forwarder{url: url, secret: secret, now: now, http: &http.Client{
		Timeout: forwardTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// forwarded is what came of it: the status of the answer, or why there was none.
type forwarded struct {
	Status int    `json:"status,omitempty"`
	Error  string `json:"error,omitempty"`
}

// send sends a delivery of a connector.
func (f *forwarder) send(ctx context.Context, api *rest, connector, delivery string) *forwarded {
	status, err := f.once(ctx, api, connector, delivery)
	if err != nil {
		return &forwarded{Error: err.Error()}
	}
	return &forwarded{Status: status}
}

func (f *forwarder) once(ctx context.Context, api *rest, connector, delivery string) (status int, err error) {
	kind, body, err := carried(ctx, api, connector, delivery)
	if err != nil {
		return 0, err
	}
	id, err := uuid.Parse(delivery)
	if err != nil {
		return 0, fmt.Errorf("reading the delivery's id: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url, bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("making a request: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", signing.UserAgent)
	request.Header.Set(signing.HeaderEvent, kind)
	signing.Sign(request.Header, f.secret, nil, id, f.now(), body)
	response, err := f.http.Do(request)
	if err != nil {
		return 0, fmt.Errorf("forwarding it: %w", err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxRESTAnswer)) // so that the connection is used again
	return response.StatusCode, nil
}

// carried is the body of a delivery, and its kind: the result of its run, or what the API shows as
// payload.
func carried(ctx context.Context, api *rest, connector, delivery string) (kind string, body []byte, err error) {
	var d heard
	if err := api.call(ctx, http.MethodGet, "/connectors/"+connector+"/runs/"+delivery, "", nil, &d); err != nil {
		return "", nil, fmt.Errorf("reading the delivery: %w", err)
	}
	switch {
	case d.Kind == "result":
	case d.Kind == "":
		return "", nil, errors.New("not forwarded: this version of the REST API does not say what a delivery carries")
	case len(d.Payload) == 0 || string(d.Payload) == "null":
		return "", nil, errors.New("not forwarded: the REST API does not show what it carries; the key needs runs.view")
	default:
		return d.Kind, d.Payload, nil
	}
	var run struct {
		ID uuid.UUID `json:"id"`
		webhookapi.Envelope
	}
	if err := api.call(ctx, http.MethodGet, "/runs/"+d.RunID, "", nil, &run); err != nil {
		return "", nil, fmt.Errorf("reading the result: %w", err)
	}
	run.RunID = run.ID
	body, err = json.Marshal(run.Envelope)
	return d.Kind, body, err
}
