// SPDX-License-Identifier: Apache-2.0

package build

import (
	"fmt"

	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
)

// warnOAuthApps writes a line for each place that names an OAuth app that the environment lacks. The calls of such a tool fail
// until the app is there. A build that lists the tools of an MCP server with such an app has failed before.
func warnOAuthApps(
	readVariables func() (runnerconfig.Variables, error), project *bundle.Project, addLine func(format string, args ...any),
) error {
	uses := project.OAuthAppUses()
	if len(uses) == 0 {
		return nil
	}
	var known runnerconfig.Variables
	if readVariables != nil {
		var err error
		if known, err = readVariables(); err != nil {
			return fmt.Errorf("looking for OAuth apps: %w", err)
		}
	}
	for _, use := range uses {
		if _, found := known.FindOAuthApp(use.App); !found {
			addLine("warning: %s: %s", use.Position, runnerconfig.NoOAuthApp(use.App))
		}
	}
	return nil
}
