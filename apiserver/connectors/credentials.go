// SPDX-License-Identifier: Apache-2.0

package connectors

import (
	"maps"
	"slices"

	"github.com/agentplatform/agentplatform/apiserver/rest"
)

// keepCredentials splits the values of a credential field of a config into new values and values that stay as stored.
// sent has the values by name, at a location of the request. An empty or masked value keeps the stored value. Stored
// values without a name in sent are dropped. It returns 422 for each name that has no stored value to keep.
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
