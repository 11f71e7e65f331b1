// SPDX-License-Identifier: Apache-2.0

package project

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/egress"
)

// If all addresses are denied, there is no rule for addresses, because a rule without peers would allow
// everything.
func TestPolicy_OmitsEmptyRule(t *testing.T) {
	t.Parallel()
	rules, err := egress.Flags{Allow: "git=10.0.0.0/8", Deny: "0.0.0.0/0,::/0"}.Rules()
	require.NoError(t, err)
	policy := Network{SystemNamespace: "system", Egress: rules}.newPolicy("team", podKinds[0])
	require.Len(t, policy.Spec.Egress, 2, "DNS and dispatch")
	require.NotEmpty(t, policy.Spec.Egress[0].Ports)
	require.NotEmpty(t, policy.Spec.Egress[1].To)
}
