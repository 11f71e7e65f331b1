// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/egress"
)

var allowPattern = regexp.MustCompile(`--allow-egress=(\S+)`)

// The demo lets tenants reach servers of their own at private addresses, as docs/operations/network.md says.
func TestDemo_OpensAllPurposesOfTenants(t *testing.T) {
	t.Parallel()
	for _, install := range []string{"default", "embedded"} {
		t.Run(install, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(root, "hack/platform", install, "kustomization.yaml"))
			require.NoError(t, err)
			var flags egress.Flags
			for _, found := range allowPattern.FindAllSubmatch(text, -1) {
				flags.Allow += "," + string(found[1])
			}
			rules, err := flags.Rules()
			require.NoError(t, err)
			for _, purpose := range []egress.Purpose{egress.Git, egress.Model, egress.MCP, egress.Tool, egress.Webhook, egress.Telemetry} {
				require.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, rules.Allowed[purpose], purpose)
			}
		})
	}
}
