// SPDX-License-Identifier: Apache-2.0

package host

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCleanup_RemovesOwnRulesOnly(t *testing.T) {
	t.Parallel()
	rules := `-P PREROUTING ACCEPT
-P OUTPUT ACCEPT
-N CNI-HOSTPORT-DNAT
-N CNI-DN-0123456789abcdef
-N DOCKER
-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-A PREROUTING -m comment --comment "from CNI-X, but not ours" -j DOCKER
-A CNI-HOSTPORT-DNAT -p tcp -m comment --comment "dnat name: \"devcluster\"" -j CNI-DN-0123456789abcdef
-A DOCKER -i docker0 -j RETURN
`
	require.Equal(t, `*nat
-D PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT
-F CNI-HOSTPORT-DNAT
-F CNI-DN-0123456789abcdef
-X CNI-HOSTPORT-DNAT
-X CNI-DN-0123456789abcdef
COMMIT
`, cleanupScript("nat", rules))
	require.Empty(t, cleanupScript("nat", "-P PREROUTING ACCEPT\n-N DOCKER\n"))
}

func TestRemovable_MatchesOwnRules(t *testing.T) {
	t.Parallel()
	empty := "table ip nat {\n\tchain PREROUTING {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n\t}\n}\n"
	used := "table ip nat {\n\tchain PREROUTING {\n\t\ttype nat hook prerouting priority dstnat; policy accept;\n\t\ttcp dport 80 drop\n\t}\n}\n"
	chain := "table ip nat {\n\tchain DOCKER {\n\t}\n}\n"
	for name, tc := range map[string]struct {
		table, text string
		want        bool
	}{
		"our own":                        {"ip agentplatform-devcluster", used, true},
		"of kube-proxy":                  {"ip6 kube-proxy", used, true},
		"of iptables, empty":             {"ip nat", empty, true},
		"of iptables, with a rule":       {"ip nat", used, false},
		"of iptables, with a chain":      {"ip nat", chain, false},
		"somebody else's, even if empty": {"inet firewall", empty, false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, removable(tc.table, tc.text))
		})
	}
}
