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

	"github.com/agentplatform/agentplatform/internal/restclient"
	"github.com/agentplatform/agentplatform/internal/webhookapi"
)

// forwardTimeout bounds one request to the local port.
const forwardTimeout = 30 * time.Second

// maxLocalResponse is how many bytes of a response of the local port are read.
const maxLocalResponse = 8 << 20

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

// forwardResult is the status of the response, or the error if there was none.
type forwardResult struct {
	Status int    `json:"status,omitempty"`
	Error  string `json:"error,omitempty"`
}

// forward sends a delivery of a connector to the local port.
func (f *forwarder) forward(ctx context.Context, api *apiClient, connector string, d restclient.ConnectorRun) *forwardResult {
	status, err := f.sendDelivery(ctx, api, connector, d)
	if err != nil {
		return &forwardResult{Error: err.Error()}
	}
	return &forwardResult{Status: status}
}

func (f *forwarder) sendDelivery(ctx context.Context, api *apiClient, connector string, d restclient.ConnectorRun) (status int, err error) {
	body, err := readBody(ctx, api, connector, d)
	if err != nil {
		return 0, err
	}
	id, err := uuid.Parse(d.ID)
	if err != nil {
		return 0, fmt.Errorf("reading the ID of the delivery: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, f.url, bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("making a request: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("User-Agent", webhookapi.UserAgent)
	request.Header.Set(webhookapi.HeaderEvent, string(restclient.ValueOf(d.Kind)))
	if hops := restclient.ValueOf(d.Hops); hops > 0 { // An older version of the REST API has no hops.
		request.Header.Set(webhookapi.HopsHeader, strconv.FormatInt(hops, 10))
	}
	webhookapi.Sign(request.Header, f.secret, nil, id, f.now(), body)
	response, err := f.http.Do(request)
	if err != nil {
		return 0, fmt.Errorf("forwarding the delivery: %w", err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, maxLocalResponse)) // So that the connection can be used again.
	return response.StatusCode, nil
}

// readBody returns the body of a delivery: the result of its run, or the payload that the REST API shows. It makes one call.
func readBody(ctx context.Context, api *apiClient, connector string, d restclient.ConnectorRun) (body []byte, err error) {
	switch restclient.ValueOf(d.Kind) {
	case "":
		return nil, errors.New("not forwarded: this version of the REST API does not report the kind of a delivery")
	case restclient.DeliveryKindResult:
		var run struct {
			ID uuid.UUID `json:"id"`
			webhookapi.Envelope
		}
		document, err := api.GetRun(ctx, restclient.ValueOf(d.RunID))
		if err == nil {
			err = json.Unmarshal(document.Text, &run)
		}
		if err != nil {
			return nil, fmt.Errorf("reading the result: %w", err)
		}
		run.RunID = run.ID
		return json.Marshal(run.Envelope)
	}
	document, err := api.GetConnectorRun(ctx, connector, d.ID)
	if err != nil {
		return nil, fmt.Errorf("reading the delivery: %w", err)
	}
	if document.Value.Payload == nil {
		return nil, errors.New("not forwarded: the REST API does not show the payload; the key needs runs.view")
	}
	return document.Field("payload")
}
