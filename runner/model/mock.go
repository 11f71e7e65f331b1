// SPDX-License-Identifier: Apache-2.0

package model

import (
	"github.com/agentplatform/agentplatform/bundle"
)

// Scripted returns a model that answers from a script.
func Scripted(name string, script *bundle.Script) Model {
	return &scriptedModel{name: name, script: script}
}
