// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"strings"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/store"
)

// failure is what a webhook's caller is told of why a run failed, or nil. What a
// model service said is for the project, which reads it with the run.
func failure(run store.Run) *string {
	text := run.Error
	if code := string(run.ErrorCode); strings.HasPrefix(code, dispatchapi.ModelErrors) {
		text = code + ": the agent could not get an answer from its model"
	}
	if text == "" {
		return nil
	}
	return &text
}
