// SPDX-License-Identifier: Apache-2.0

package layout

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAddresses_BelongToTheirNetworks(t *testing.T) {
	t.Parallel()
	for address, network := range map[string]string{
		BridgeAddress: PodSubnet, ServiceAPI: ServiceSubnet, ServiceDNS: ServiceSubnet,
	} {
		t.Run(address, func(t *testing.T) {
			require.True(t, netip.MustParsePrefix(network).Contains(netip.MustParseAddr(address)))
		})
	}
	require.True(t, netip.MustParsePrefix(ClusterSubnet).Overlaps(netip.MustParsePrefix(PodSubnet)))
	require.False(t, netip.MustParsePrefix(ClusterSubnet).Overlaps(netip.MustParsePrefix(ServiceSubnet)))
}

func TestSocket_FitsPathLimit(t *testing.T) {
	t.Parallel()
	longest := "/" + strings.Repeat("x", maxDir-1)
	dir, err := NewDir(longest)
	require.NoError(t, err)
	require.LessOrEqual(t, len(dir.Path("run", "s", strings.Repeat("f", 64))), 107)
	_, err = NewDir(longest + "x")
	require.ErrorContains(t, err, "--state-dir")
}
