// SPDX-License-Identifier: Apache-2.0

package connector

import "strings"

// MaxActionName limits the name of a sending tool, in bytes, because model services accept no
// longer names.
const MaxActionName = 64

// DefaultActionName returns the default name of the tool that sends to a connector: lower-case
// letters, digits and underscores, at most MaxActionName bytes.
func DefaultActionName(connector string) string {
	const prefix = "send_to_"
	words := strings.FieldsFunc(strings.ToLower(connector), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
	if len(words) == 0 {
		words = []string{"connector"}
	}
	name := prefix + strings.Join(words, "_")
	return strings.TrimRight(name[:min(len(name), MaxActionName)], "_")
}
