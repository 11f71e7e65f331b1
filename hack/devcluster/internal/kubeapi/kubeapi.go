// SPDX-License-Identifier: Apache-2.0

// Package kubeapi is the little of a Kubernetes client that bringing up a
// cluster takes: JSON over HTTPS with a client certificate.
package kubeapi

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/agentplatform/agentplatform/hack/devcluster/internal/layout"
)

// callTimeout bounds everything but a watch.
const callTimeout = 15 * time.Second

// StatusError is a response without a 2xx status.
type StatusError struct {
	Code int    // HTTP status
	Body string // the server's response, cut to 500 bytes
}

// Error returns the status code and the body.
func (e *StatusError) Error() string { return fmt.Sprintf("status %d: %s", e.Code, e.Body) }

// IsCode reports whether err is a StatusError with the code.
func IsCode(err error, code int) bool {
	var status *StatusError
	return errors.As(err, &status) && status.Code == code
}

// Client calls one kube-apiserver.
type Client struct {
	Server string // e.g. https://10.244.0.1:6443
	HTTP   *http.Client
}

// New returns the administrator's client of the cluster in dir.
func New(dir layout.Dir) (*Client, error) {
	ca, err := os.ReadFile(dir.Cert("ca"))
	if err != nil {
		return nil, fmt.Errorf("reading the authority's certificate: %w", err)
	}
	pair, err := tls.LoadX509KeyPair(dir.Cert("admin"), dir.Key("admin"))
	if err != nil {
		return nil, fmt.Errorf("reading the administrator's certificate: %w", err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{pair}},
	}
	return &Client{Server: layout.ServerURL(), HTTP: &http.Client{Transport: transport}}, nil
}

// Get decodes the object or list at path into out; out may be nil.
func (c *Client) Get(ctx context.Context, path string, out any) error {
	return c.callAPI(ctx, http.MethodGet, path, "", nil, out)
}

// Create posts object to the collection at path.
func (c *Client) Create(ctx context.Context, path string, object any) error {
	return c.callAPI(ctx, http.MethodPost, path, "application/json", object, nil)
}

// Apply creates or replaces the object at path.
func (c *Client) Apply(ctx context.Context, path string, object any) error {
	return c.callAPI(ctx, http.MethodPatch, path+"?fieldManager=devcluster&force=true",
		"application/apply-patch+yaml", object, nil) // JSON is YAML too
}

// Delete deletes the object at path. A missing object is not an error.
func (c *Client) Delete(ctx context.Context, path string) error {
	err := c.callAPI(ctx, http.MethodDelete, path, "", nil, nil)
	if IsCode(err, http.StatusNotFound) {
		return nil
	}
	return err
}

// Changes calls changed for every change in the collection at path until the
// server ends the watch or ctx is done.
func (c *Client) Changes(ctx context.Context, path string, changed func()) error {
	resp, err := c.sendRequest(ctx, http.MethodGet, path+"?watch=true", "", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for {
		if _, err := lines.ReadSlice('\n'); err == nil {
			changed()
		} else if !errors.Is(err, bufio.ErrBufferFull) { // a long line arrives in several parts
			return fmt.Errorf("watching %s: %w", path, err)
		}
	}
}

func (c *Client) callAPI(ctx context.Context, method, path, contentType string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	resp, err := c.sendRequest(ctx, method, path, contentType, in)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		_, err = io.Copy(io.Discard, resp.Body)
	} else {
		err = json.NewDecoder(resp.Body).Decode(out)
	}
	if err != nil {
		return fmt.Errorf("reading the answer to %s %s: %w", method, path, err)
	}
	return nil
}

// sendRequest returns an answer with a status of success only.
func (c *Client) sendRequest(ctx context.Context, method, path, contentType string, in any) (*http.Response, error) {
	var body io.Reader
	if in != nil {
		encoded, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("encoding an object: %w", err)
		}
		body = bytes.NewReader(encoded)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.Server+path, body)
	if err != nil {
		return nil, fmt.Errorf("forming a request: %w", err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return nil, fmt.Errorf("calling kube-apiserver: %w", err)
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	said, err := io.ReadAll(io.LimitReader(resp.Body, 500))
	if err != nil {
		said = []byte(err.Error())
	}
	return nil, fmt.Errorf("%s %s: %w", method, path, &StatusError{Code: resp.StatusCode, Body: string(said)})
}
