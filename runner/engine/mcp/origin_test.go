// SPDX-License-Identifier: Apache-2.0

package mcp

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// The metadata of another server cannot name the authorization server.
func TestHasOrigin_ComparesWholeHost(t *testing.T) {
	t.Parallel()
	origin := &url.URL{Scheme: "https", Host: "crm.example"}
	for address, want := range map[string]bool{
		"https://crm.example/mcp": true, "https://crm.example": true,
		"https://crm.example.evil.com": false, "https://crm.example@evil.com/": false, "http://crm.example/": false, "https://crm.example:444/": false, "::": false,
	} {
		t.Run(address, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, want, hasOrigin(address, origin))
		})
	}
}
