// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/excerpt"
)

const (
	// driftInterval is the minimum interval between two reports about the same server of an agent.
	driftInterval = 10 * time.Minute
	// maxDriftSubjects is the number of servers of agents that a DriftBook remembers. It reports no further ones.
	maxDriftSubjects = 1024
)

// DriftBook collects comparisons of pinned MCP tools for the next claim requests. It is safe for concurrent use.
type DriftBook struct {
	now func() time.Time

	mu      sync.Mutex
	reports map[driftSubject]*driftState
}

// driftSubject is a server of an agent of a deployment.
type driftSubject struct {
	deployment    uuid.UUID
	agent, server string
}

// driftState is the last comparison of a subject.
type driftState struct {
	// pending is true until the comparison is reported.
	pending bool
	tools   []string
	// sentAt is the time of the last report.
	sentAt time.Time
}

// NewDriftBook returns an empty book. now is its clock; nil means time.Now.
func NewDriftBook(now func() time.Time) *DriftBook {
	if now == nil {
		now = time.Now
	}
	return &DriftBook{now: now, reports: map[driftSubject]*driftState{}}
}

// Add adds a comparison, which replaces an unreported one. tools are the pinned tools that the server has changed or removed. A
// comparison without a valid deployment is dropped.
func (b *DriftBook) Add(deployment, agent, server string, tools []string) {
	id, err := uuid.Parse(deployment)
	if err != nil {
		return
	}
	subject := driftSubject{id, agent, server}
	tools = slices.Clone(tools[:min(len(tools), dispatchapi.MaxDriftTools)])
	for i, name := range tools {
		tools[i] = excerpt.Of(strings.ToValidUTF8(name, "_"), dispatchapi.MaxDriftTool, "")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	state := b.reports[subject]
	if state == nil {
		b.deleteOld()
		if len(b.reports) >= maxDriftSubjects {
			return
		}
		state = &driftState{}
		b.reports[subject] = state
	}
	state.pending, state.tools = true, tools
}

// deleteOld makes room: it deletes subjects whose report was sent so long ago that the next one is due. The caller holds mu.
func (b *DriftBook) deleteOld() {
	if len(b.reports) < maxDriftSubjects {
		return
	}
	now := b.now()
	maps.DeleteFunc(b.reports, func(_ driftSubject, s *driftState) bool { return !s.pending && now.Sub(s.sentAt) >= driftInterval })
}

// Due returns the reports for the next request, at most dispatchapi.MaxDriftReports.
func (b *DriftBook) Due() (reports dispatchapi.DriftReports) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	for subject, state := range b.reports {
		if state.pending && now.Sub(state.sentAt) >= driftInterval {
			reports = append(reports, dispatchapi.DriftReport{
				DeploymentID: subject.deployment, Agent: subject.agent, Server: subject.server, Tools: state.tools,
			})
		}
	}
	slices.SortFunc(reports, func(a, b dispatchapi.DriftReport) int {
		return cmp.Or(cmp.Compare(a.DeploymentID.String(), b.DeploymentID.String()), cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.Server, b.Server))
	})
	return reports[:min(len(reports), dispatchapi.MaxDriftReports)]
}

// MarkSent marks reports as sent, except those with a newer comparison.
func (b *DriftBook) MarkSent(reports dispatchapi.DriftReports) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range reports {
		if state := b.reports[driftSubject{r.DeploymentID, r.Agent, r.Server}]; state != nil {
			state.pending, state.sentAt = !slices.Equal(state.tools, r.Tools), b.now()
		}
	}
}
