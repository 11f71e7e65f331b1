// SPDX-License-Identifier: Apache-2.0

package command

import (
	"testing"

	"github.com/agentplatform/agentplatform/cmd/internal/flagenv"
	"github.com/agentplatform/agentplatform/internal/testenv/refpage"
)

// The page docs/reference/flags-runner.md lists all flags of the program.
func TestReference_ListsAllFlags(t *testing.T) {
	t.Parallel()
	refpage.Check(t, "flags-runner.md", "# Flags of runner\n"+refpage.Flags(rootCommand(nil), flagenv.Name))
}
