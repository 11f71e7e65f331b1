// SPDX-License-Identifier: Apache-2.0

package runnerconfig

import (
	"strings"
	"unicode"
)

// Credential returns a token or a password without surrounding white space, because a Secret from a
// file often ends with a line break. problem is the reason why it cannot be sent, which continues
// the name of the value, or "".
func Credential(value string) (credential, problem string) {
	credential = strings.TrimSpace(value)
	if strings.ContainsFunc(credential, unicode.IsControl) {
		return "", "contains a line break or another control character, which cannot be sent; correct it"
	}
	return credential, ""
}
