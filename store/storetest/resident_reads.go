// SPDX-License-Identifier: Apache-2.0

package storetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// describeEvent describes a connector run.
func (r *resident) describeEvent(run store.ConnectorRun) string {
	got, err := r.s.ConnectorRun(r.ctx, run.Key())
	r.NoError(err)
	r.Equal(run.Status, got.Status)
	outcome, err := r.s.Outcome(r.ctx, run.Key())
	r.NoError(err)
	var runs []string
	for _, of := range outcome.Runs {
		runs = append(runs, string(of.Status))
	}
	text := fmt.Sprint(run.Status, " ", run.Trigger, " ", run.Kind, " ", run.Error, " replay:", run.ReplayOf != nil, " ended:", run.EndedAt != nil, " ", runs)
	if run.Trigger != store.TriggerOutbound {
		in, err := r.s.EventInput(r.ctx, run.Key())
		r.NoError(err)
		return text + " " + string(in.Data)
	}
	attempts, next := r.listAttempts(run.Key())
	for _, a := range attempts {
		text += fmt.Sprint(" ", a.Number, ":", a.StatusCode)
	}
	return text + fmt.Sprint(" next:", next != nil)
}

// connector describes a connector, in lines.
func (r *resident) connector(name string) (lines []string) {
	key := r.connectors[name].Key()
	c, err := r.s.Connector(r.ctx, key)
	r.recordResult("connector "+name, err)
	route, err := r.s.Route(r.ctx, key)
	r.recordResult("route "+name, err)
	var agents []string
	for _, l := range route.Links {
		agents = append(agents, l.AgentName)
	}
	lines = append(lines, fmt.Sprint(c.Name, c.Mode, c.Enabled, c.Retired, c.Ref.Generation, agents, len(route.Connector.Secrets), route.Live))
	destinations, err := r.s.DestinationsOf(r.ctx, r.project.ID, []uuid.UUID{key.ID})
	r.NoError(err)
	d, known := destinations[key.ID]
	lines = append(lines, fmt.Sprint(known, d.Failures, d.Rejected, d.RejectedReason, d.PausedGeneration, d.PausedReason))
	times, err := r.s.TickTimes(r.ctx, r.project.ID, []uuid.UUID{key.ID})
	r.NoError(err)
	lines = append(lines, fmt.Sprint("ticks: ", times[key.ID].Active, times[key.ID].Last != nil))
	rejections, err := r.s.Rejections(r.ctx, key)
	r.NoError(err)
	known, err = r.s.KnownKey(r.ctx, key, "key:a")
	r.NoError(err)
	lines = append(lines, fmt.Sprint(rejections.Counts, known))
	replays := r.listReplays(key)
	for _, one := range replays {
		lines = append(lines, fmt.Sprint("replays ", one.Status, one.Match.Matched, one.Replayed, one.Refused))
	}
	runs, total := r.listConnectorRuns(store.ConnectorRunQuery{Connector: key, Limit: 100})
	lines = append(lines, fmt.Sprint(total))
	for _, run := range runs {
		lines = append(lines, r.describeEvent(run))
	}
	return lines
}

// environmentLines describe an environment.
func (r *resident) environmentLines(name string) (lines []string) {
	key := r.places[name].Key()
	e, err := r.s.Environment(r.ctx, key)
	r.recordResult("environment "+name, err)
	names := map[uuid.UUID]string{}
	for version, spec := range r.versions {
		names[spec.ID] = version
	}
	if e.LiveDeploymentID != nil {
		lines = append(lines, "live: "+names[*e.LiveDeploymentID])
	}
	deployments := r.listDeployments(key)
	for _, d := range deployments {
		lines = append(lines, fmt.Sprint("deployment ", names[d.ID], d.Status, d.Message, len(d.Agents)))
	}
	agents, err := r.s.Agents(r.ctx, key)
	r.NoError(err)
	for _, a := range agents {
		lines = append(lines, fmt.Sprint("agent ", a.Name, a.Agent != nil, a.RunCount, a.QueueCount, a.HasInboundConnector))
	}
	actions, err := r.s.Actions(r.ctx, key, []string{"first", "second"})
	r.NoError(err)
	for _, a := range actions {
		lines = append(lines, fmt.Sprint("action ", a.AgentName, a.Name, a.Connector))
	}
	return lines
}

// recordReads records all that the resident can read, each list in a stable order.
func (r *resident) recordReads() {
	var lines []string
	for _, name := range sortedNames(r.connectors) {
		for _, line := range r.connector(name) {
			lines = append(lines, name+": "+line)
		}
	}
	for _, name := range sortedNames(r.places) {
		for _, line := range r.environmentLines(name) {
			lines = append(lines, name+": "+line)
		}
	}
	runs := r.listRuns(store.RunQuery{ProjectID: r.project.ID, Limit: 200})
	for _, listed := range runs {
		run := r.run(listed.ID)
		r.Equal(run.Status, listed.Status)
		journal := r.readJournal(run.Key())
		_, body, err := r.s.RunInput(r.ctx, run.Key())
		input := r.readAll(body, err)
		lines = append(lines, fmt.Sprint("run ", run.AgentName, run.Status, run.ErrorCode, run.Error, run.Output, run.Attempt, len(journal), len(input)))
	}
	load := r.projectLoad()
	for name, e := range r.places {
		lines = append(lines, fmt.Sprint("load ", name, load.Backlog[e.ID]))
	}
	slices.Sort(lines)
	r.recordLine("stored: %t", load.Stored > 0) // it depends on the number of digits of times
	r.said = append(r.said, strings.Join(lines, "\n"))
}
