// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"strings"
	"testing"

	"github.com/agentplatform/agentplatform/internal/testenv/refpage"
)

// The page docs/reference/limits.md states how projects share slots.
func TestReference_StatesTheShareOfAProject(t *testing.T) {
	refpage.CheckPart(t, "limits.md", "slots", fmt.Sprintf(`- A project gets at most %s of the slots that the other projects leave free.
- A project that already has a slot cannot use the last %s of the slots. If these are fewer than %d, it
  cannot use the last %d slots, or the last %s of fewer than %d slots.
`, refpage.Part(leftParts), strings.TrimPrefix(refpage.Part(reservedParts), "an "), reservedSlots,
		reservedSlots, strings.TrimPrefix(refpage.Part(maxReservedParts), "a "), reservedSlots*maxReservedParts))
}
