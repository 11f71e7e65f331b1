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
	"github.com/agentplatform/agentplatform/internal/runerror"
)

// part is one part of a list content.
type part struct {
	Type    string `json:"type"`
	Text    string `json:"text"`
	Refusal string `json:"refusal"`
}

// answerOf returns the text of a message, or the model's refusal. It reads the raw JSON, because
// the client converts any JSON value to a text. The content is a text, null, or a list of parts.
// The text parts are joined; other parts, such as thinking, are ignored.
func answerOf(message openai.ChatCompletionMessage) (string, error) {
	refusal, err := fieldText("refusal", message.JSON.Refusal.Raw())
	if err != nil {
		return "", err
	}
	raw := message.JSON.Content.Raw()
	text := ""
	if strings.HasPrefix(raw, "[") {
		var parts []part
		if err := exactjson.Decode([]byte(raw), &parts); err != nil {
			return "", invalid("the model's answer has a content with invalid parts", err)
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
	} else if text, err = fieldText("content", raw); err != nil {
		return "", err
	}
	if text == "" {
		return refusal, nil
	}
	return text, nil
}

// fieldText returns the text of a field of a response, or "" if the field is missing or null.
func fieldText(field, raw string) (text string, err error) {
	if raw == "" {
		return "", nil
	}
	if err := exactjson.Decode([]byte(raw), &text); err != nil {
		return "", invalid(fmt.Sprintf("the model's answer has a %s that is not a text", field), err)
	}
	return text, nil
}

// invalid returns the error for a response that cannot be read.
func invalid(message string, err error) *Error {
	return &Error{Code: runerror.ModelAnswerInvalid, Message: message, Retryable: true, err: err}
}

// checkText rejects a response that is not UTF-8, as JSON requires.
func checkText(c *openai.ChatCompletion) error {
	if !utf8.ValidString(c.RawJSON()) {
		return invalid("the model's answer is not UTF-8", nil)
	}
	return nil
}

// serviceError is an error that a service reports with the status 200. Services use these forms:
// {"error": {"message", "code"}}, {"error": "message"} and {"object": "error", "message", "code"}.
type serviceError struct {
	Object  string          `json:"object"`
	Error   json.RawMessage `json:"error"`
	Message string          `json:"message"`
	Code    any             `json:"code"`
	Status  any             `json:"status"`
}

// errorIn returns the error in a response without choices, or nil. Its message is the service's,
// without keys.
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
		_ = exactjson.Decode(reported.Error, &message) // A value that is not a text is shown unchanged.
	}
	if message == "" {
		message = c.RawJSON()
	}
	message = shorten(redactMessage(message, key))
	if status := statusOf(reported.Code, reported.Status); status != 0 {
		return statusError(status, message, after)
	}
	return &Error{Code: runerror.ModelUnavailable, Message: "the model answered with an error: " + message, Retryable: true, RetryAfter: after}
}

// statusOf returns the first value that is the HTTP status of an error, as a number or a text, or
// 0.
func statusOf(values ...any) int {
	for _, value := range values {
		status, err := strconv.Atoi(fmt.Sprint(value))
		if err == nil && status >= http.StatusBadRequest && status < 600 {
			return status
		}
	}
	return 0
}
