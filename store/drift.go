// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/excerpt"
)

// Limits of the recorded drift of MCP tools.
const (
	// MaxDrift is the maximum number of servers of agents with drift per deployment. Further ones are not recorded.
	MaxDrift = 64
	// MaxDriftTools is the maximum number of tools with drift per server of an agent. Further ones are not recorded.
	MaxDriftTools = 16
	// MaxDriftTool is the maximum size of a tool's name in bytes. A longer name is cut.
	MaxDriftTool = 64
	// MaxDriftReports is the maximum number of reports per call.
	MaxDriftReports = 16
	// DriftRefresh is the minimum interval between two writes about drift that is already recorded.
	DriftRefresh = 10 * time.Minute
	// DriftKept is how long a tool is kept after the last report that named it. So the record of a server whose list changes
	// again and again does not change each time.
	DriftKept = time.Hour
)

// DriftReport is a comparison of the tools that a deployment pins for an agent with the tools that their MCP server lists.
type DriftReport struct {
	DeploymentID  uuid.UUID
	Agent, Server string
	// Tools are the pinned tools that the server has changed or removed. It is empty if there are none.
	Tools []string
}

// Bounded returns the report in its stored form: printable names within the limits. It returns ErrInvalid for a name of an
// agent or a server that no repository can have.
func (r DriftReport) Bounded() (DriftReport, error) {
	if len(r.Agent) > MaxAgentName || !agentName.MatchString(r.Agent) || !fileStem.MatchString(r.Server) {
		return r, fmt.Errorf("the agent or the MCP server of a drift report has an invalid name: %w", ErrInvalid)
	}
	r.Tools = slices.Clone(r.Tools[:min(len(r.Tools), MaxDriftTools)])
	for i, name := range r.Tools {
		r.Tools[i] = printableName(name)
	}
	return r, nil
}

// printableName replaces characters that terminals and pages do not show. Servers choose the names of their tools.
func printableName(name string) string {
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return '_'
		}
		return r
	}, excerpt.Of(strings.ToValidUTF8(name, "_"), MaxDriftTool, ""))
}

// MCPDrift is the drift of an MCP server: the difference between the tools that a deployment pins for an agent and the tools
// that the server lists.
type MCPDrift struct {
	Agent  string `json:"agent"`
	Server string `json:"server"`
	// Tools are the pinned tools that the server has changed or removed, in the order of their first reports. There is at least
	// one.
	Tools []DriftedTool `json:"tools"`
}

// DriftedTool is a pinned tool that its server has changed or removed.
type DriftedTool struct {
	Name string `json:"name"`
	// Since is the time of the first report. ReportedAt is the time of the last one, accurate to DriftRefresh.
	Since      time.Time `json:"since"`
	ReportedAt time.Time `json:"reported_at"`
}

// Names returns the names of the tools.
func (d MCPDrift) Names() []string {
	names := make([]string, len(d.Tools))
	for i, t := range d.Tools {
		names[i] = t.Name
	}
	return names
}

// Since returns the time of the oldest first report.
func (d MCPDrift) Since() time.Time {
	return slices.MinFunc(d.Tools, func(a, b DriftedTool) int { return a.Since.Compare(b.Since) }).Since
}

// GrownAt returns the time at which a tool was last added.
func (d MCPDrift) GrownAt() time.Time {
	return slices.MaxFunc(d.Tools, func(a, b DriftedTool) int { return a.Since.Compare(b.Since) }).Since
}

// DriftedEnvironment is an environment whose live deployment has drift.
type DriftedEnvironment struct {
	Environment Key
	Ref         ObjectRef
	// ChangedAt is the time of the last change of the servers or tools with drift.
	ChangedAt time.Time
}

// Drifts stores the drift of MCP tools with the deployment that pins them.
type Drifts interface {
	// RecordDrift adds at most MaxDriftReports reports to the record of the environment's live deployment. Reports about other
	// deployments are ignored. A report about a server deletes the tools of the server that no report has named for DriftKept.
	// An invalid report does not prevent the record of the others. The activation of another deployment deletes the record.
	RecordDrift(ctx context.Context, environment Key, reports []DriftReport) error
	DriftReader
}

// DriftReader reads the drift of MCP tools.
type DriftReader interface {
	// Drift returns the drift of a deployment, sorted by agent and server.
	Drift(ctx context.Context, deployment Key) ([]MCPDrift, error)
	// DriftedEnvironments lists a page of at most limit environments whose live deployment has drift, of all projects, in the
	// order of their keys after the given one.
	DriftedEnvironments(ctx context.Context, after Key, limit int) ([]DriftedEnvironment, error)
}
