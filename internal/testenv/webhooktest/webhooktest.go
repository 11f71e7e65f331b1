// SPDX-License-Identifier: Apache-2.0

// Package webhooktest checks the responses of webhooks and the deliveries against
// docs/webhooks.json.
package webhooktest

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/agentplatform/agentplatform/internal/webhookapi"
)

// document is the OpenAPI document. Its schemas are JSON Schemas.
var document = sync.OnceValues(func() (any, error) {
	file, err := os.Open(filepath.Join(moduleRoot(), "docs", "webhooks.json"))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return jsonschema.UnmarshalJSON(file)
})

// moduleRoot returns the folder of the module above the test's folder.
func moduleRoot() string {
	for folder := "."; ; folder = filepath.Join(folder, "..") {
		if _, err := os.Stat(filepath.Join(folder, "go.mod")); err == nil || len(folder) > 100 {
			return folder
		}
	}
}

// documentPart returns a part of the document, or nil.
func documentPart(tb testing.TB, tokens ...string) map[string]any {
	tb.Helper()
	part, err := document()
	if err != nil {
		tb.Fatalf("webhooktest: reading the description: %v", err)
	}
	for _, token := range tokens {
		of, _ := part.(map[string]any)
		part = of[token]
	}
	found, _ := part.(map[string]any)
	return found
}

// requireSchema checks JSON against the schema at these tokens.
func requireSchema(tb testing.TB, text []byte, tokens ...string) {
	tb.Helper()
	if documentPart(tb, tokens...) == nil {
		tb.Errorf("webhooktest: %v is not described: %s", tokens, text)
		return
	}
	schema, err := compiled(tokens)
	if err != nil {
		tb.Errorf("webhooktest: %v: %v", tokens, err)
		return
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err == nil {
		err = schema.Validate(value)
	}
	if err != nil {
		tb.Errorf("webhooktest: %s is not as %v describes it: %v", text, tokens, err)
	}
}

var (
	mutex   sync.Mutex // guards the fields below
	schemas = map[string]*jsonschema.Schema{}
	judge   *jsonschema.Compiler
)

// compiled returns the schema at these tokens.
func compiled(tokens []string) (*jsonschema.Schema, error) {
	pointer := "webhooks.json#"
	for _, token := range tokens {
		pointer += "/" + strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(token)
	}
	mutex.Lock()
	defer mutex.Unlock()
	if judge == nil {
		whole, err := document()
		if err != nil {
			return nil, err
		}
		judge = jsonschema.NewCompiler()
		judge.DefaultDraft(jsonschema.Draft2020)
		judge.AssertFormat()
		if err := judge.AddResource("webhooks.json", whole); err != nil {
			return nil, err
		}
	}
	if schemas[pointer] == nil {
		schema, err := judge.Compile(pointer)
		if err != nil {
			return nil, err
		}
		schemas[pointer] = schema
	}
	return schemas[pointer], nil
}

// Handler checks each complete response of a webhook handler against the document.
func Handler(tb testing.TB, next http.Handler) http.Handler {
	tb.Helper()
	// The schemas are compiled now, because a test may measure the time of a request.
	for status, response := range documentPart(tb, responses(http.MethodPost)...) {
		for media := range response.(map[string]any)["content"].(map[string]any) {
			if _, err := compiled(append(responses(http.MethodPost), status, "content", media, "schema")); err != nil {
				tb.Fatalf("webhooktest: %v", err)
			}
		}
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen := &witness{ResponseWriter: w}
		next.ServeHTTP(seen, r) // a response that a panic interrupted does not count
		if seen.err == nil && seen.status != 0 {
			Answer(tb, r.Method, seen.status, w.Header(), seen.body.Bytes())
		}
	})
}

// witness records a response.
type witness struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
	err    error
}

// Unwrap implements the method of http.ResponseController.
func (w *witness) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *witness) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *witness) Write(p []byte) (int, error) {
	n, err := w.ResponseWriter.Write(p)
	w.body.Write(p[:n])
	if err != nil {
		w.err = err
	}
	return n, err
}

// responses returns the path of a method's responses. Rejected methods use the responses of POST.
func responses(method string) []string {
	if method != http.MethodGet {
		method = http.MethodPost
	}
	return []string{"paths", webhookapi.Path, strings.ToLower(method), "responses"}
}

// Answer checks a complete response of a webhook against the document, and each event of a stream.
func Answer(tb testing.TB, method string, status int, header http.Header, body []byte) {
	tb.Helper()
	answer := append(responses(method), strconv.Itoa(status))
	described, _ := documentPart(tb, answer...)["headers"].(map[string]any)
	for name := range documentPart(tb, "components", "headers") {
		if name == webhookapi.ReplayedHeader && header.Get(name) == "" {
			continue // only duplicates have it
		}
		if _, named := described[name]; named != (header.Get(name) != "") && (named || status < 500 || name == webhookapi.ReplayedHeader) {
			tb.Errorf("webhooktest: an answer %d has %s %q", status, name, header.Get(name))
		}
	}
	media := header.Get("Content-Type")
	if media == "text/event-stream" {
		requireStream(tb, string(body))
		return
	}
	requireSchema(tb, body, append(answer, "content", media, "schema")...)
}

// schemaOf are the schemas of the events' data.
var schemaOf = map[string]string{"accepted": "Accepted", "progress": "Progress", "result": "Results", "error": "Problem"}

func requireStream(tb testing.TB, text string) {
	tb.Helper()
	for block := range strings.SplitSeq(strings.TrimSuffix(text, "\n\n"), "\n\n") {
		if block == ":" {
			continue
		}
		name, data, _ := strings.Cut(strings.TrimPrefix(block, "event: "), "\ndata: ")
		requireSchema(tb, []byte(data), "components", "schemas", schemaOf[name])
	}
}

// Outbound webhooks, by their names in the document.
const (
	Result         = "result"
	Payload        = "payload"
	DeliveryFailed = "deliveryFailed"
)

// Delivery checks a delivery against the document.
func Delivery(tb testing.TB, webhook string, header http.Header, body []byte) {
	tb.Helper()
	operation := []string{"webhooks", webhook, "post"}
	parameters, _ := documentPart(tb, operation...)["parameters"].([]any)
	if len(parameters) == 0 {
		tb.Error("webhooktest: a delivery has no headers")
	}
	for _, p := range parameters {
		if name, _ := p.(map[string]any)["name"].(string); header.Get(name) == "" {
			tb.Errorf("webhooktest: a delivery has no %s", name)
		}
	}
	requireSchema(tb, body, append(operation, "requestBody", "content", header.Get("Content-Type"), "schema")...)
}
