// SPDX-License-Identifier: Apache-2.0

// Package restclient is the Go client of the REST API. Its operations and types are generated from docs/openapi.json. The
// files beside the generated one hold the parts that no generator writes: authentication, retries, errors, pages and event streams.
package restclient

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/oapi-codegen/nullable"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/pause"
)

// API calls the REST API about one project. Operations may run concurrently.
type API struct {
	// HTTP sends each attempt. It follows no redirects, because another server would get the key.
	HTTP *http.Client
	// Wait pauses between attempts. It is pause.For, except in tests.
	Wait func(ctx context.Context, d time.Duration) error
	// Now is time.Now, except in tests.
	Now func() time.Time

	server, project, key string
	// explain is Options.Explain, never nil.
	explain func(error) error
	client  *Client
}

// Options configure an API.
type Options struct {
	// Server is the URL of the REST API, without /v1.
	Server string
	// Project is the ID of the project.
	Project string
	// Key is the API key. ServerVersion needs none.
	Key string
	// Explain adds a remedy to the error of a request that got no response. Optional.
	Explain func(error) error
}

// New returns a client. It sends nothing yet.
func New(o Options) *API {
	a := &API{
		HTTP:   &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		Wait:   pause.For,
		Now:    time.Now,
		server: o.Server + "/", project: o.Project, key: o.Key, explain: o.Explain,
	}
	if a.explain == nil {
		a.explain = func(err error) error { return err }
	}
	a.client = &Client{Server: a.server, Client: sender{a}}
	return a
}

// Document is the body of a response.
type Document[T any] struct {
	Value T
	// Text is the JSON as the server sent it. It may have fields that this version of the client does not know.
	Text json.RawMessage
	// ETag names the version of the object for If-Match. It is empty if the operation has none, and for an element of a list.
	ETag string
}

// UnmarshalJSON implements json.Unmarshaler.
func (d *Document[T]) UnmarshalJSON(text []byte) error {
	d.Text = slices.Clone(text)
	return json.Unmarshal(text, &d.Value)
}

// MarshalJSON returns the text of the server.
func (d Document[T]) MarshalJSON() ([]byte, error) { return d.Text, nil }

// Field returns the JSON of a field as the server sent it, nil if the object does not have it. Numbers keep all their digits.
func (d Document[T]) Field(name string) (json.RawMessage, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(d.Text, &fields); err != nil {
		return nil, fmt.Errorf("reading the field %s: %w", name, err)
	}
	return fields[name], nil
}

// decodeResponse reads the response of an operation.
func decodeResponse[T any](response *http.Response, err error) (d Document[T], _ error) {
	if err != nil {
		return d, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body) // The sender has read it already.
	if err == nil {
		err = json.Unmarshal(text, &d)
	}
	if err != nil {
		return Document[T]{}, foreignResponse(response.StatusCode)
	}
	d.ETag = response.Header.Get("ETag")
	return d, nil
}

// Elements returns the elements of a list, each with its own text. E can be another type than T: the details of an object have
// all fields of its entry in a list.
func Elements[E, T any](list Document[[]T]) ([]Document[E], error) {
	elements := []Document[E]{}
	if err := json.Unmarshal(list.Text, &elements); err != nil {
		return nil, fmt.Errorf("reading a list: %w", err)
	}
	return elements, nil
}

// ValueOf returns the value of a field that can be null: the zero value if it is null or absent.
func ValueOf[T any](field nullable.Nullable[T]) T {
	value, _ := field.Get()
	return value
}

// PointerTo returns a pointer to the value of a field that can be null: nil if it is null or absent.
func PointerTo[T any](field nullable.Nullable[T]) *T {
	value, err := field.Get()
	if err != nil {
		return nil
	}
	return &value
}

// ServerVersion returns the version of the server, "" if the server is too old to report it. It sends no key.
func (a *API) ServerVersion(ctx context.Context) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, a.server+"v1/openapi.json", nil)
	if err != nil {
		return "", fmt.Errorf("making a request: %w", err)
	}
	response, err := a.HTTP.Do(request)
	if err != nil {
		return "", a.explain(err)
	}
	defer response.Body.Close()
	var description struct {
		OpenAPI string `json:"openapi"`
	}
	err = json.NewDecoder(io.LimitReader(response.Body, maxResponse)).Decode(&description)
	if err != nil || description.OpenAPI == "" {
		return "", foreignResponse(response.StatusCode)
	}
	return response.Header.Get(httpserver.HeaderVersion), nil
}
