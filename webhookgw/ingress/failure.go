// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"cmp"

	"github.com/agentplatform/agentplatform/store"
)

// failureText returns the error text and code of a failed run as in the REST API, or nil.
func failureText(run store.Run) (text, code *string) {
	if run.ErrorCode != "" {
		code = (*string)(&run.ErrorCode)
	}
	if said := cmp.Or(run.Error, string(run.ErrorCode)); said != "" {
		text = &said
	}
	return text, code
}
