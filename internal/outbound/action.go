// SPDX-License-Identifier: Apache-2.0

package outbound

import "strings"

// MaxActionName is how many bytes the name of a tool that sends has at most: model services
// take no longer ones.
const MaxActionName = 64

// DefaultActionName is what the tool is called that sends to a connector of a name, where
// its link does not say: of lower-case letters, digits and underscores, at most
// MaxActionName bytes.
func DefaultActionName(connector string) string {
	const prefix = "send_to_"
	words := strings.FieldsFunc(strings.ToLower(connector), func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
	if len(words) == 0 {
		words = []string{"connector"}
	}
	name := prefix + strings.Join(words, "_")
	return strings.TrimRight(name[:min(len(name), MaxActionName)], "_")
}
