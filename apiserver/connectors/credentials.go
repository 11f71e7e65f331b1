// SPDX-License-Identifier: Apache-2.0

package connectors

import (
	"maps"
	"slices"

	"github.com/agentplatform/agentplatform/apiserver/rest"
)

// keepCredentials sorts the values of a credential field of a config (an object of
// names and values, at a location of the request) into those that are new and those
// that stay as they are stored: a value that is empty, or masked as answers show it,
// stands for the stored one. A stored value whose name is not sent goes. 422 names
// each that stands for a value which is not stored.
func keepCredentials[T any](location string, sent map[string]string, stored map[string]T) (fresh map[string]string, kept map[string]T, err error) {
	fresh, kept = map[string]string{}, map[string]T{}
	var missing []rest.FieldError
	for _, name := range slices.Sorted(maps.Keys(sent)) {
		value, there := stored[name]
		switch {
		case sent[name] != "" && sent[name] != rest.Masked:
			fresh[name] = sent[name]
		case there:
			kept[name] = value
		default:
			missing = append(missing, rest.FieldError{Location: location + "." + name, Message: "has no stored value to keep: send the value"})
		}
	}
	if len(missing) > 0 {
		return nil, nil, rest.Invalid(missing...)
	}
	return fresh, kept, nil
}
