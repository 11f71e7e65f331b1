// SPDX-License-Identifier: Apache-2.0

package build

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
)

func TestWarnOAuthApps_NamesMissingAppsAndPlaces(t *testing.T) {
	t.Parallel()
	file := func(app string) []byte {
		return []byte("base_url: https://a.example\noauth_app: " + app + "\ntools: {x: {description: X, request: GET /x}}\n")
	}
	project, err := bundle.Parse(bundle.Files{
		"agents/a.yaml": []byte("name: a\nmodel: openai/gpt-5\n"), "tools/crm.yaml": file("crm"), "tools/erp.yaml": file("erp"),
	})
	require.NoError(t, err)
	var lines []string
	addLine := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	known := runnerconfig.Variables{}.WithOAuthApps([]runnerconfig.OAuthApp{{Name: "crm"}})
	require.NoError(t, warnOAuthApps(func() (runnerconfig.Variables, error) { return known, nil }, project, addLine))
	require.Equal(t, []string{
		`warning: tools/erp.yaml:2:12: the environment has no OAuth app "erp"; add it to spec.oauthApps of the Environment`,
	}, lines)
}
