// SPDX-License-Identifier: Apache-2.0

package httptool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/excerpt"
	"github.com/agentplatform/agentplatform/internal/expr"
	"github.com/agentplatform/agentplatform/internal/jsonscan"
	"github.com/agentplatform/agentplatform/internal/redact"
)

const (
	// maxPlain limits the body of a result without the key result, in bytes.
	maxPlain = 16 << 10
	// maxExcerpt limits the part of a response in an error, in bytes.
	maxExcerpt = 1 << 10
	// maxValues limits the JSON values of a response, because each of them needs memory.
	maxValues = 100_000
)

// response is a response with a bounded body.
type response struct {
	status  int
	headers map[string]string
	// value is the body: decoded JSON, a text, or nil for an empty one.
	value any
	// text is the body as text.
	text string
	// isCut is true if the body was longer than MaxBody.
	isCut bool
	// data is the whole body of a request that saves it. It has no value and no text then.
	data []byte
}

// readResponse reads the beginning of a response.
func readResponse(got *http.Response, req *request) (*response, error) {
	defer func() { _ = got.Body.Close() }()
	out := &response{status: got.StatusCode, headers: map[string]string{}}
	for name, values := range got.Header {
		if name != "Set-Cookie" {
			out.headers[strings.ToLower(name)] = strings.Join(values, ", ")
		}
	}
	saves, limit := req.saves && got.StatusCode < http.StatusBadRequest, int64(maxRead)
	if saves {
		limit = dispatchapi.MaxSavedFile + 1
	}
	body, err := io.ReadAll(io.LimitReader(got.Body, limit))
	switch {
	case err != nil && !errors.Is(err, egress.ErrTooLarge):
		return nil, fmt.Errorf("%w%s", errCut, req.unknownEffect())
	case saves && (err != nil || len(body) > dispatchapi.MaxSavedFile):
		return nil, errLargeFile
	case saves:
		out.data = body
		return out, nil
	}
	out.isCut, out.text = len(body) > MaxBody, strings.ToValidUTF8(string(body), "\uFFFD")
	out.value = decodeBody(body, got.Header.Get("Content-Type"), out.isCut)
	return out, nil
}

// decodeBody returns a body as JSON if it is JSON, else as text.
func decodeBody(body []byte, contentType string, isCut bool) any {
	mediaType, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		mediaType = ""
	}
	trimmed := strings.TrimSpace(string(body))
	isJSON := mediaType == "application/json" || strings.HasSuffix(mediaType, "+json") || strings.HasPrefix(trimmed, "{") || strings.HasPrefix(trimmed, "[")
	if isJSON && !isCut && jsonscan.Check(body) == nil && jsonscan.Measure(body).Values <= maxValues {
		var value any
		if exactjson.Decode(body, &value) == nil {
			return value
		}
	}
	switch {
	case trimmed == "":
		return nil
	case !utf8.Valid(body) && !isCut || strings.ContainsRune(trimmed, 0):
		return fmt.Sprintf("(%d bytes of the type %q, which is not text)", len(body), mediaType)
	}
	return strings.ToValidUTF8(string(body), "\uFFFD")
}

// redactSecrets removes secrets, and then what was read for this purpose only.
func (r *response) redactSecrets(hidden *redact.Secrets) {
	for name, value := range r.headers {
		r.headers[name] = hidden.RedactText(value)
	}
	r.value = hidden.RedactValue(r.value)
	if text, isText := r.value.(string); isText && len(text) > MaxBody {
		r.value = excerpt.Of(text, MaxBody, "")
	}
}

// statusError is an error for the model because of the status of a response.
type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string { return e.text }

// buildResult returns the result for the model, or its error.
func (r *response) buildResult(ctx context.Context, t *bundle.HTTPTool) (map[string]any, error) {
	if text := t.OnStatus[r.status]; text != "" {
		return nil, &statusError{r.status, text}
	}
	if r.status >= http.StatusBadRequest {
		return nil, &statusError{r.status, fmt.Sprintf("the service responded with the status %d%s", r.status, r.bodyExcerpt())}
	}
	if t.Result == nil {
		return r.plainResult(), nil
	}
	if r.isCut {
		return nil, fmt.Errorf("the response of the service has more than %d KiB; request less data", MaxBody>>10)
	}
	value, err := t.Result.Value(ctx, expr.HTTPResponse{Status: r.status, Headers: r.headers, Body: r.value})
	if err != nil {
		return nil, fmt.Errorf("the response of the service does not fit the result of the tool: %w", err)
	}
	if object, isObject := value.(map[string]any); isObject {
		return object, nil
	}
	return map[string]any{"result": value}, nil
}

// bodyExcerpt returns the beginning of the body for an error.
func (r *response) bodyExcerpt() string {
	text := oneLine(textOf(r.value), maxExcerpt)
	if text == "" {
		return ""
	}
	return ": " + text
}

// plainResult returns the status and the body.
func (r *response) plainResult() map[string]any {
	out := map[string]any{"status": r.status, "body": r.value}
	if text := textOf(r.value); len(text) > maxPlain {
		out["body"], out["truncated"] = excerpt.Of(text, maxPlain, ""), true
	} else if r.isCut {
		out["truncated"] = true
	}
	return out
}
