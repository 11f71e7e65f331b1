// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"cmp"

	"github.com/agentplatform/agentplatform/store"
)

// failure is why a run failed, with the text and the code that the REST API shows; nil if it did not.
func failure(run store.Run) (text, code *string) {
	if run.ErrorCode != "" {
		code = (*string)(&run.ErrorCode)
	}
	if said := cmp.Or(run.Error, string(run.ErrorCode)); said != "" {
		text = &said
	}
	return text, code
}
