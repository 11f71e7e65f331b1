// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"cmp"
	"slices"
)

// OAuthAppUse is a place of a repository that names an OAuth app.
type OAuthAppUse struct {
	App string
	// Position is the place: a file in tools/, the credentials of a document in apis/, or an MCP server.
	Position Position
}

// OAuthAppUses returns the places that name OAuth apps, sorted by app and place.
func (p *Project) OAuthAppUses() (uses []OAuthAppUse) {
	add := func(app string, at Position) {
		if app != "" {
			uses = append(uses, OAuthAppUse{app, at})
		}
	}
	for _, t := range p.httpTools {
		add(t.OAuthApp, t.appAt)
	}
	for _, a := range p.Agents {
		for name, access := range a.access {
			add(access.app, a.At("apis", name, "auth", "oauth_app"))
		}
		for i := range a.MCPServers {
			add(a.MCPServers[i].OAuthApp, a.AtServer(i))
		}
	}
	slices.SortFunc(uses, func(a, b OAuthAppUse) int {
		return cmp.Or(cmp.Compare(a.App, b.App), cmp.Compare(a.Position.File, b.Position.File),
			cmp.Compare(a.Position.Line, b.Position.Line), cmp.Compare(a.Position.Column, b.Position.Column))
	})
	return slices.Compact(uses)
}
