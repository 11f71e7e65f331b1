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
	"strconv"
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

// send sends a delivery of a connector, as a list shows it.
func (f *forwarder) send(ctx context.Context, api *rest, connector string, d heard) *forwarded {
	status, err := f.once(ctx, api, connector, d)
	if err != nil {
		return &forwarded{Error: err.Error()}
	}
	return &forwarded{Status: status}
}

func (f *forwarder) once(ctx context.Context, api *rest, connector string, d heard) (status int, err error) {
	body, err := carried(ctx, api, connector, d)
	if err != nil {
		return 0, err
	}
	id, err := uuid.Parse(d.ID)
	if err != nil {
		return 0, fmt.Errorf("reading the delivery's id: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url, bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("making a request: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", signing.UserAgent)
	request.Header.Set(signing.HeaderEvent, d.Kind)
	if d.Hops > 0 { // an older version of the REST API does not say
		request.Header.Set(webhookapi.HopsHeader, strconv.Itoa(d.Hops))
	}
	signing.Sign(request.Header, f.secret, nil, id, f.now(), body)
	response, err := f.http.Do(request)
	if err != nil {
		return 0, fmt.Errorf("forwarding it: %w", err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxRESTAnswer)) // so that the connection is used again
	return response.StatusCode, nil
}

// carried is the body of a delivery: the result of its run, or what the API shows as payload.
// Either takes one call.
func carried(ctx context.Context, api *rest, connector string, d heard) (body []byte, err error) {
	switch d.Kind {
	case "":
		return nil, errors.New("not forwarded: this version of the REST API does not say what a delivery carries")
	case "result":
		var run struct {
			ID uuid.UUID `json:"id"`
			webhookapi.Envelope
		}
		if err := api.call(ctx, http.MethodGet, "/runs/"+d.RunID, "", nil, &run); err != nil {
			return nil, fmt.Errorf("reading the result: %w", err)
		}
		run.RunID = run.ID
		return json.Marshal(run.Envelope)
	}
	var whole struct {
		Payload json.RawMessage `json:"payload"`
	}
	if err := api.call(ctx, http.MethodGet, "/connectors/"+connector+"/runs/"+d.ID, "", nil, &whole); err != nil {
		return nil, fmt.Errorf("reading the delivery: %w", err)
	}
	if len(whole.Payload) == 0 || string(whole.Payload) == "null" {
		return nil, errors.New("not forwarded: the REST API does not show what it carries; the key needs runs.view")
	}
	return whole.Payload, nil
}
