// SPDX-License-Identifier: Apache-2.0

package bundle_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
)

// Each place is named once, although several tools and agents share it.
func TestOAuthAppUses_NamesPlaces(t *testing.T) {
	t.Parallel()
	p, err := bundle.Parse(newFiles(
		"tools/t.yaml", "base_url: https://a.example\noauth_app: crm\ntools:\n  x: {description: X, request: GET /x}\n  y: {description: Y, request: GET /y}\n",
		"tools/u.yaml", "base_url: https://a.example\ntools: {x: {description: X, request: GET /x}}\n",
		"apis/pets.yaml", petAPI,
		"agents/_defaults.yaml", "model: openai/x\napis:\n  pets: {auth: {oauth_app: pets}}\n",
		"agents/a.yaml", "name: a\nmcp_servers:\n  - {name: s, url: 'https://s.example', oauth_app: crm}\n  - {name: t, url: 'https://t.example'}\n",
		"agents/b.yaml", "name: b\n"))
	require.NoError(t, err)
	require.Equal(t, []bundle.OAuthAppUse{
		{App: "crm", Position: bundle.Position{File: "agents/a.yaml", Line: 3, Column: 6}},
		{App: "crm", Position: bundle.Position{File: "tools/t.yaml", Line: 2, Column: 12}},
		{App: "pets", Position: bundle.Position{File: "agents/_defaults.yaml", Line: 3, Column: 17}},
	}, p.OAuthAppUses())
}
