// SPDX-License-Identifier: Apache-2.0

package httpserver

import "strings"

// IsUTF8 says whether text of a charset, a parameter of Content-Type, is UTF-8. US-ASCII is a
// part of it, and text without a charset is taken for UTF-8.
func IsUTF8(charset string) bool {
	switch strings.ToLower(charset) {
	case "", "utf-8", "utf8", "us-ascii":
		return true
	}
	return false
}
