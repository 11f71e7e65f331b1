// SPDX-License-Identifier: Apache-2.0

package model

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/openai/openai-go/v3"

	"github.com/agentplatform/agentplatform/internal/exactjson"
)

// part is one part of a content that is a list.
type part struct {
	Type    string `json:"type"`
	Text    string `json:"text"`
	Refusal string `json:"refusal"`
}

// answerOf returns the text of a message, or the model's refusal. The client makes a text of whatever JSON
// stands in the place of one, so the JSON itself is read: a text, null, or a list of parts, of which those of
// the type text are joined. All other parts, such as what the model thought, are left out.
func answerOf(message openai.ChatCompletionMessage) (string, error) {
	refusal, err := textIn("refusal", message.JSON.Refusal.Raw())
	if err != nil {
		return "", err
	}
	raw := message.JSON.Content.Raw()
	text := ""
	if strings.HasPrefix(raw, "[") {
		var parts []part
		if err := exactjson.Decode([]byte(raw), &parts); err != nil {
			return "", invalid("the model's answer has a content with parts that are none", err)
		}
		var texts strings.Builder
		for _, p := range parts {
			switch p.Type {
			case "text":
				texts.WriteString(p.Text)
			case "refusal":
				refusal += p.Refusal
			}
		}
		text = texts.String()
	} else if text, err = textIn("content", raw); err != nil {
		return "", err
	}
	if text == "" {
		return refusal, nil
	}
	return text, nil
}

// textIn is the text of a field of an answer; "" without the field, or if it is null.
func textIn(field, raw string) (text string, err error) {
	if raw == "" {
		return "", nil
	}
	if err := exactjson.Decode([]byte(raw), &text); err != nil {
		return "", invalid(fmt.Sprintf("the model's answer has a %s that is no text", field), err)
	}
	return text, nil
}

// invalid is the error of an answer that cannot be read.
func invalid(message string, err error) *Error {
	return &Error{Code: CodeInvalidAnswer, Message: message, Retryable: true, err: err}
}

// checkText refuses an answer that is not UTF-8, as JSON must be.
func checkText(c *openai.ChatCompletion) error {
	if !utf8.ValidString(c.RawJSON()) {
		return invalid("the model's answer is not UTF-8", nil)
	}
	return nil
}

// serviceError is an error that a service reports with the status 200, in the ways that services do:
// {"error": {"message", "code"}}, {"error": "message"} and {"object": "error", "message", "code"}.
type serviceError struct {
	Object  string          `json:"object"`
	Error   json.RawMessage `json:"error"`
	Message string          `json:"message"`
	Code    any             `json:"code"`
	Status  any             `json:"status"`
}

// errorIn returns the error that an answer without choices reports, nil if it reports none. The message is
// the service's, without keys.
func errorIn(c *openai.ChatCompletion, key string, after time.Duration) *Error {
	if len(c.Choices) > 0 {
		return nil
	}
	var reported serviceError
	if exactjson.Decode([]byte(c.RawJSON()), &reported) != nil {
		return nil
	}
	message := ""
	switch inner := string(reported.Error); {
	case inner == "" || inner == "null":
		if reported.Object != "error" {
			return nil
		}
		message = reported.Message
	case inner[0] == '{':
		var object serviceError
		if exactjson.Decode(reported.Error, &object) == nil {
			reported, message = object, object.Message
		}
	default:
		_ = exactjson.Decode(reported.Error, &message) // Shown as it is if it is no text.
	}
	if message == "" {
		message = c.RawJSON()
	}
	message = shorten(redact(message, key))
	if status := statusOf(reported.Code, reported.Status); status != 0 {
		return statusError(status, message, after)
	}
	return &Error{Code: CodeUnavailable, Message: "the model answered with an error: " + message, Retryable: true, RetryAfter: after}
}

// statusOf is the first value that is the HTTP status of an error, as a number or a text; 0 without one.
func statusOf(values ...any) int {
	for _, value := range values {
		status, err := strconv.Atoi(fmt.Sprint(value))
		if err == nil && status >= http.StatusBadRequest && status < 600 {
			return status
		}
	}
	return 0
}
