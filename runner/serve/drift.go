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

// maxDriftSubjects is the number of servers of agents that a DriftBook remembers. It reports no further ones.
const maxDriftSubjects = 1024

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

// driftState has the comparisons of a subject.
type driftState struct {
	// pending is true until the comparisons are reported.
	pending bool
	// tools are the tools of all comparisons since the last report.
	tools []string
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

// Add adds a comparison. tools are the pinned tools that the server has changed or removed. Until a report, the tools of several
// comparisons are united: runs with other headers, such as other tenants, can get other tools from the same server. A comparison
// without a valid deployment is dropped.
func (b *DriftBook) Add(deployment, agent, server string, tools []string) {
	id, err := uuid.Parse(deployment)
	if err != nil {
		return
	}
	subject := driftSubject{id, agent, server}
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
	if !state.pending {
		state.pending, state.tools = true, nil
	}
	state.addTools(tools)
}

// addTools adds further tools, as far as a report can have them. It does not change the slice of tools, because reports share it.
func (s *driftState) addTools(tools []string) {
	known := slices.Clone(s.tools)
	for _, name := range tools {
		if len(known) == dispatchapi.MaxDriftTools {
			break
		}
		if name = excerpt.Of(strings.ToValidUTF8(name, "_"), dispatchapi.MaxDriftTool, ""); !slices.Contains(known, name) {
			known = append(known, name)
		}
	}
	slices.Sort(known)
	s.tools = known
}

// deleteOld makes room: it deletes subjects whose report was sent so long ago that the next one is due. The caller holds mu.
func (b *DriftBook) deleteOld() {
	if len(b.reports) < maxDriftSubjects {
		return
	}
	now := b.now()
	maps.DeleteFunc(b.reports, func(_ driftSubject, s *driftState) bool {
		return !s.pending && now.Sub(s.sentAt) >= dispatchapi.DriftReportInterval
	})
}

// Due returns the reports for the next request, at most dispatchapi.MaxDriftReports.
func (b *DriftBook) Due() (reports dispatchapi.DriftReports) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	for subject, state := range b.reports {
		if state.pending && now.Sub(state.sentAt) >= dispatchapi.DriftReportInterval {
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
