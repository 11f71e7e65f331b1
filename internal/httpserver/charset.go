// SPDX-License-Identifier: Apache-2.0

package httpserver

import "strings"

// IsUTF8 reports whether text of a charset, a parameter of Content-Type, is UTF-8. US-ASCII is a
// subset of UTF-8, and text without a charset counts as UTF-8.
func IsUTF8(charset string) bool {
	switch strings.ToLower(charset) {
	case "", "utf-8", "utf8", "us-ascii":
		return true
	}
	return false
}
