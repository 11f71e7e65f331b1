// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/agentplatform/agentplatform/cmd/internal/flagenv"
	"github.com/agentplatform/agentplatform/cmd/internal/open"
	"github.com/agentplatform/agentplatform/internal/testenv/refpage"
)

// The page docs/reference/flags-webhookgw.md lists all flags of the program.
func TestReference_ListsAllFlags(t *testing.T) {
	t.Parallel()
	refpage.Check(t, "flags-webhookgw.md", "# Flags of webhookgw\n"+refpage.Flags(newCommand(&open.SchemaWatch{}), flagenv.Name))
}
