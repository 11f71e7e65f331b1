// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
)

const (
	// maxReceived is the maximum number of stored requests. The destination keeps the newest requests.
	maxReceived = 100
	// maxReceivedBody is the maximum size of a request's body in bytes.
	maxReceivedBody = 1 << 20
)

// request is a request to the destination.
type request struct {
	Path    string            `json:"path"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
}

// destination stores the requests that it receives.
type destination struct {
	mutex    sync.Mutex
	received []request
}

// ServeHTTP records posted requests, lists them and deletes them.
func (d *destination) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxReceivedBody))
	if err != nil {
		http.Error(w, fmt.Sprintf("reading the request: %v", err), http.StatusBadRequest)
		return
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	switch req.Method {
	case http.MethodPost:
		headers := map[string]string{}
		for name := range req.Header {
			headers[name] = req.Header.Get(name)
		}
		d.received = append(d.received, request{Path: req.URL.Path, Headers: headers, Body: string(body)})
		d.received = d.received[max(len(d.received)-maxReceived, 0):]
	case http.MethodDelete:
		d.received = nil
	default:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(append([]request{}, d.received...)) // the client may have disconnected
	}
}
