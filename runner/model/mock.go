// SPDX-License-Identifier: Apache-2.0

package model

import (
	adkmodel "google.golang.org/adk/v2/model"

	"github.com/agentplatform/agentplatform/bundle"
)

// Scripted is a model that answers from a script, under a name.
func Scripted(name string, script *bundle.Script) adkmodel.LLM {
	return &scriptedModel{name: name, script: script}
}
