// SPDX-License-Identifier: Apache-2.0

// Package features lists the features of agents. Every engine has all of them: of runners, of tests in builds, and of
// checks, so that a build accepts exactly what a runner executes.
package features

import (
	"net/http"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/runner/engine"
	"github.com/agentplatform/agentplatform/runner/engine/httptool"
	"github.com/agentplatform/agentplatform/runner/engine/mcp"
	"github.com/agentplatform/agentplatform/runner/engine/scripts"
	"github.com/agentplatform/agentplatform/runner/oauth"
	"github.com/agentplatform/agentplatform/runner/script"
)

// MaxResponse limits a response to a tool, in bytes: the largest file that a script can save.
const MaxResponse = dispatchapi.MaxSavedFile

// Config has the parts of a process that features use. The zero value is enough to check a repository.
type Config struct {
	// ToolHTTP sends the requests of tools and scripts: a client of the egress guard. Mocks answer instead in tests of agents.
	ToolHTTP *http.Client
	// MCP calls the tools of MCP servers; nil offers none. Tests of agents have a feature of their own, with mocks.
	MCP *mcp.Client
	// OAuthApps has the access tokens of OAuth apps; nil if no request needs one.
	OAuthApps *oauth.Apps
	// Variables returns the environment's current variables; nil means none.
	Variables func() (runnerconfig.Variables, error)
	// Scripts executes the scripts of tools.
	Scripts *script.Pool
	// Mocked is true in tests of agents. Missing and sensitive variables then have a stand-in.
	Mocked bool
}

// New returns all features.
func New(cfg Config) []engine.Feature {
	requests := httptool.New(httptool.Config{Client: cfg.ToolHTTP, Apps: cfg.OAuthApps, Variables: cfg.Variables, Mocked: cfg.Mocked})
	all := []engine.Feature{
		requests.Feature(),
		scripts.New(scripts.Config{Pool: cfg.Scripts, HTTP: requests, Variables: cfg.Variables, Mocked: cfg.Mocked}),
	}
	if cfg.MCP != nil {
		all = append(all, cfg.MCP.Feature(cfg.Variables))
	}
	return all
}
