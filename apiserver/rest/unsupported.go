// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"strings"

	"github.com/agentplatform/agentplatform/internal/unsupported"
)

// notSupported is the error of a field that has no effect in this release.
func notSupported(location string) FieldError {
	return FieldError{Location: location, Message: "is not supported in this release"}
}

// isForLater reports whether a field has a value that this release does not support. Items of lists have locations such
// as list[0].
func isForLater(location string, value any) bool {
	text, _ := value.(string)
	location, _, _ = strings.Cut(location, "[")
	part, field, _ := strings.Cut(location, ".")
	return text != "" && unsupported.Has(unsupported.Location(part), field, text)
}
