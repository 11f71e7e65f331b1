// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/exactjson"
	"github.com/agentplatform/agentplatform/internal/jsonscan"
	"github.com/agentplatform/agentplatform/internal/redact"
	"github.com/agentplatform/agentplatform/runner/oauth"
)

// maxMessage limits an error that a model sees, in bytes.
const maxMessage = 2 << 10

// wireResult is the result of a call.
type wireResult struct {
	Content    []part          `json:"content"`
	Structured json.RawMessage `json:"structuredContent"`
	IsError    bool            `json:"isError"`
	Type       string          `json:"resultType"`
	Requests   json.RawMessage `json:"inputRequests"`
}

// part is a part of a result.
type part struct {
	Type        string    `json:"type"`
	Text        string    `json:"text"`
	Name        string    `json:"name"`
	Description string    `json:"description"`
	MIMEType    string    `json:"mimeType"`
	URI         string    `json:"uri"`
	Resource    *resource `json:"resource"`
}

// resource is an embedded resource.
type resource struct {
	URI      string  `json:"uri"`
	MIMEType string  `json:"mimeType"`
	Text     *string `json:"text"`
}

// maxValues limits the JSON values of a result, because each of them needs memory.
const maxValues = 100_000

// readResult returns the result for the model: the structured content if it is an object, else the text. An error is the tool's
// own.
func readResult(raw json.RawMessage, hidden *redact.Secrets) (map[string]any, error) {
	if jsonscan.Measure(raw).Values > maxValues {
		return nil, &toolError{fmt.Sprintf("the server's result has more than %d values", maxValues)}
	}
	var r wireResult
	if err := exactjson.Decode(raw, &r); err != nil {
		return nil, &toolError{"the server's result is not as the protocol says"}
	}
	if r.Type == "input_required" || len(r.Requests) > 0 && string(r.Requests) != "null" {
		return nil, &toolError{"the tool asks for input, which this release does not support"}
	}
	text, dropped := joinParts(r.Content)
	text = hidden.RedactText(text)
	if r.IsError {
		return nil, &toolError{cmp.Or(oneLine(text), "the tool failed without a message")}
	}
	if len(r.Structured) > 0 && string(r.Structured) != "null" {
		var value any
		if err := exactjson.Decode(r.Structured, &value); err != nil {
			return nil, &toolError{"the server's result is not as the protocol says"}
		}
		value = hidden.RedactValue(value)
		if object, isObject := value.(map[string]any); isObject {
			return object, nil
		}
		shown, err := json.Marshal(value)
		if err != nil {
			return nil, &toolError{"the server's result is not as the protocol says"}
		}
		text = string(shown)
	}
	out := map[string]any{"result": text}
	if dropped != "" {
		out["note"] = hidden.RedactText(dropped)
	}
	return out, nil
}

// joinParts returns the text of a result and a note about the parts that have no text.
func joinParts(parts []part) (text, dropped string) {
	var texts, types []string
	for _, p := range parts {
		switch {
		case p.Type == "text":
			texts = append(texts, p.Text)
		case p.Type == "resource_link":
			texts = append(texts, strings.Join(strings.Fields(p.Name+" "+p.Description+" "+p.URI), " "))
		case p.Type == "resource" && p.Resource != nil && p.Resource.Text != nil:
			texts = append(texts, *p.Resource.Text)
		case p.Resource != nil:
			types = append(types, p.Resource.MIMEType)
		default:
			types = append(types, p.MIMEType)
		}
	}
	if len(types) > 0 {
		const most = 5
		names := strings.Join(types[:min(len(types), most)], ", ")
		dropped = oneLine(fmt.Sprintf("%d parts without text were left out: %s", len(types), names))
	}
	return strings.Join(texts, "\n"), dropped
}

// oneLine returns a text of a server in one line of at most maxMessage bytes.
func oneLine(text string) string {
	text = strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) || r == utf8.RuneError }), " ")
	for len(text) > maxMessage {
		_, last := utf8.DecodeLastRuneInString(text)
		text = text[:max(min(len(text)-last, maxMessage), 0)]
	}
	return strings.ToValidUTF8(text, "")
}

// failureReason returns why a request failed, without addresses, headers and tokens.
func failureReason(err error) string {
	var failed *statusError
	var token *oauth.Error
	switch {
	case errors.As(err, &token):
		return token.Error()
	case errors.As(err, &failed):
		return statusReason(failed.code)
	case errors.Is(err, egress.ErrForbidden):
		return egress.DescribeForbidden("its address", err)
	case errors.Is(err, errLargeList):
		return errLargeList.Error()
	case errors.Is(err, egress.ErrTooLarge), errors.Is(err, errEventTooLong):
		return "its answer is too large"
	case errors.Is(err, context.DeadlineExceeded):
		return "it did not answer in time"
	case errors.Is(err, context.Canceled):
		return "the call was cancelled"
	case errors.Is(err, errNoAnswer), errors.Is(err, errOtherAnswer), errors.Is(err, errToolList), errors.Is(err, errTooManyTools):
		return "its answer is not as the protocol says"
	}
	return "the connection failed"
}

func statusReason(code int) string {
	switch {
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return fmt.Sprintf("it rejects the credentials (HTTP status %d)", code)
	case code >= 300 && code < 400:
		return fmt.Sprintf(`it redirects to another address (HTTP status %d), which is not followed; correct "url"`, code)
	}
	return fmt.Sprintf("it answered with HTTP status %d", code)
}

// unavailableError means that a request was not executed. Its text is safe to show.
type unavailableError struct {
	message string
	cause   error
}

func (e *unavailableError) Error() string { return e.message }
func (e *unavailableError) Unwrap() error { return e.cause }

// describeError returns the error of a request that was not executed, for people and models.
func describeError(server Server, hidden *redact.Secrets, err error) error {
	if own := ownError(err); own != nil {
		return &toolError{oneLine(fmt.Sprintf("the MCP server %q answered: %s", server.Spec.Name, hidden.RedactText(own.Message)))}
	}
	return &unavailableError{fmt.Sprintf("the MCP server %q cannot be used: %s", server.Spec.Name, failureReason(err)), err}
}
