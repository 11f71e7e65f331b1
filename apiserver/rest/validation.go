// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"fmt"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/validation"
)

const (
	messageRequired = "is required"
	messageBoolean  = "must be true or false"
	messageInteger  = "must be an integer"
	messageNumber   = "must be a number"
	messageUUID     = "must be a UUID"
	messageTime     = "must be a time such as 2026-07-01T00:00:00Z"
)

// setValidationMessages sets the messages of huma's validation. huma formats most of them when it reads a schema,
// so this must run before the first schema.
func setValidationMessages() {
	validation.MsgUnexpectedProperty = "is not a field of this call: remove it"
	validation.MsgExpectedRequiredProperty = "%s " + messageRequired // fieldError moves the name to the location
	validation.MsgExpectedBoolean = messageBoolean
	validation.MsgExpectedInteger = messageInteger
	validation.MsgExpectedNumber = messageNumber
	validation.MsgExpectedString = "must be a string"
	validation.MsgExpectedArray = "must be a list"
	validation.MsgExpectedObject = "must be an object"
	validation.MsgExpectedRFC4122UUID = messageUUID
	validation.MsgExpectedRFC3339DateTime = messageTime
	validation.MsgExpectedRFC3986URI = "must be a URI"
	validation.MsgExpectedBase64String = "must be base64"
	validation.MsgExpectedOneOf = "must be one of %s"
	validation.MsgExpectedConst = "must be %v"
	validation.MsgExpectedBePattern = "must be %s"
	validation.MsgExpectedMatchPattern = "must match the pattern %s"
	validation.MsgExpectedMinLength = "must have at least %d characters"
	validation.MsgExpectedMaxLength = "must have at most %d characters"
	validation.MsgExpectedMinItems = "must have at least %d items"
	validation.MsgExpectedMaxItems = "must have at most %d items"
	validation.MsgExpectedArrayItemsUnique = "must not have an item twice"
	validation.MsgExpectedMinProperties = "must have at least %d fields"
	validation.MsgExpectedMaxProperties = "must have at most %d fields"
	validation.MsgExpectedMinimumNumber = "must be at least %v"
	validation.MsgExpectedMaximumNumber = "must be at most %v"
	validation.MsgExpectedExclusiveMinimumNumber = "must be greater than %v"
	validation.MsgExpectedExclusiveMaximumNumber = "must be less than %v"
	validation.MsgExpectedNumberBeMultipleOf = "must be a multiple of %v"
	huma.ErrorFormatter = formatMessage
}

// formatMessage formats a message of huma's validation. A message without verbs leaves its arguments out.
func formatMessage(format string, args ...any) string {
	switch {
	case !strings.Contains(format, "%"):
		return format
	case format == validation.MsgExpectedMinLength && args[0] == 1:
		return "must not be empty"
	}
	return fmt.Sprintf(format, args...)
}

// parameterMessages replace the messages of huma that no variable sets.
var parameterMessages = map[string]string{
	"invalid boolean":                      messageBoolean,
	"invalid integer":                      messageInteger,
	"invalid float":                        messageNumber,
	"invalid floating value":               messageNumber,
	"required query parameter is missing":  messageRequired,
	"required header parameter is missing": messageRequired,
	"request body is required":             messageRequired,
}

// fieldError returns the error that huma reports for a field, with the location of the field and without the value.
func fieldError(d *huma.ErrorDetail) FieldError {
	message := strings.TrimPrefix(d.Message, "invalid value: ") // huma's prefix for errors of UnmarshalText
	if replaced, ok := parameterMessages[message]; ok {
		return FieldError{Location: d.Location, Message: replaced}
	}
	// huma locates a missing field at its object.
	if name, ok := strings.CutSuffix(message, " "+messageRequired); ok {
		return FieldError{Location: d.Location + "." + name, Message: messageRequired}
	}
	if isForLater(d.Location, d.Value) {
		return notSupported(d.Location)
	}
	return FieldError{Location: d.Location, Message: message}
}
