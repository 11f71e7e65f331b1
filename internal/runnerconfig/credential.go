// SPDX-License-Identifier: Apache-2.0

package runnerconfig

import (
	"strings"
	"unicode"
)

// Credential is a token or a password as it is sent, without surrounding white space: a Secret that was made of a
// file often ends in a line break. problem says, in words that follow what the value is called, why nobody can send
// it; "" if it can be sent.
func Credential(value string) (credential, problem string) {
	credential = strings.TrimSpace(value)
	if strings.ContainsFunc(credential, unicode.IsControl) {
		return "", "holds a line break or another control character, which nobody can send; correct it"
	}
	return credential, ""
}
