// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"log"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/storetest/storebench"
)

// These flags set the sizes of Scale. hack/bench.sh passes them on.
var (
	scaleBase  = flag.Int("scale.base", 10_000, "stored runs of the yardstick of BenchmarkScale")
	scaleCalls = flag.Int("scale.calls", 400, "how often each call of BenchmarkScale is made")
)

// scaleRuns is the number of stored ended runs at scale.
var scaleRuns = map[string]*int{
	"postgres": flag.Int("scale.postgres", 10_000_000, "runs that are stored on PostgreSQL at scale"),
	"sqlite":   flag.Int("scale.sqlite", 2_000_000, "runs that are stored on SQLite at scale"),
}

const (
	// scaleAim limits the ratio of a call's 99th percentile at scale to its yardstick. A call that takes at most cheap meets
	// the aim in any case.
	scaleAim = 2
	cheap    = 5 // ms
	// warm is the number of warm-up calls. callsTime is how long the benchmark repeats each call. searchAim is the longest time
	// that a search may take.
	warm      = 20
	callsTime = time.Minute
	searchAim = 300 // ms
)

// call is a call of the store. ready prepares each call and is not measured.
type call struct {
	ready func(tb testing.TB)
	do    func(ctx context.Context) error
}

// BenchmarkScale measures the cost of a platform's history:
//   - the 99th percentile of each call, compared with the same call with little history,
//   - the rates of webhooks and runs, compared with the rates without history,
//   - the response times of webhooks while a partition is dropped,
//   - the lag of the outbox consumers.
func BenchmarkScale(b *testing.B) {
	engines(b, func(b *testing.B, large *database) {
		base := populate(b, databases[large.name](b), *scaleProjects, *scaleBase)
		little := base.costs(b, base.calls(b))
		p := populate(b, large, *scaleProjects, *scaleRuns[large.name])
		for name, cost := range p.costs(b, p.calls(b)) {
			print(b, Cost("scale/"+large.name+"/"+name, "ms", cost, little[name], max(scaleAim, cheap/little[name])))
		}
		for name, cost := range p.costs(b, p.searches()) {
			print(b, Cost("scale/"+large.name+"/"+name, "ms", cost, searchAim, 1))
		}
		b.Run("rates", p.rates)
		b.Run("drop", p.drop)
		b.Run("outbox", p.outbox)
	})
}

// costs returns the 99th percentile of each call in milliseconds.
func (p *population) costs(b *testing.B, calls map[string]call) map[string]float64 {
	b.Helper()
	out := map[string]float64{}
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		out[name] = Percentile(p.measureTimes(b, name, calls[name]), 0.99)
	}
	return out
}

// measureTimes returns the times of a call. A rejected search counts with its time.
func (p *population) measureTimes(b *testing.B, name string, c call) []time.Duration {
	b.Helper()
	took, over, refused := make([]time.Duration, 0, *scaleCalls), after(callsTime), 0
	for i := range warm + *scaleCalls {
		if i > 2*warm && over() { // the store rejects a search that has used up its time
			break
		}
		if c.ready != nil {
			c.ready(b)
		}
		begun := time.Now()
		err := c.do(b.Context())
		if errors.Is(err, store.ErrSearchTooBroad) {
			refused, err = refused+1, nil
		}
		require.NoError(b, err, name)
		if i >= warm {
			took = append(took, time.Since(begun))
		}
	}
	log.Printf("bench: %s %s: %.2f ms, the slowest hundredth of %d %.2f ms, %d refused",
		p.name, name, Percentile(took, 0.5), len(took), Percentile(took, 0.99), refused)
	return took
}

// calls returns the calls that the benchmark measures: each step of a run, each list and each statistic.
func (p *population) calls(tb testing.TB) map[string]call {
	tb.Helper()
	calls := p.way(tb)
	for name, do := range p.reads() {
		calls[name] = call{do: do}
	}
	return calls
}

// way are the transactions of a run's way.
func (p *population) way(tb testing.TB) map[string]call {
	tb.Helper()
	scene, agent, hook := p.largest()
	route, err := p.store.Route(tb.Context(), store.Key{ProjectID: scene.Project, ID: hook})
	require.NoError(tb, err)
	event := func() store.Event {
		return store.Event{
			ConnectorRunID: newID(), ProjectID: scene.Project, EnvironmentID: scene.Environment, ConnectorID: hook, ConnectorVersion: route.Connector.Version,
			Trigger: store.TriggerWebhook, Class: store.ClassInbound, Input: input, ContentType: "application/json",
			Runs: []store.EventRun{{ID: newID(), LinkID: route.Links[0].ID, AgentName: agent}},
		}
	}
	accept := func(ctx context.Context) error {
		admissions, err := p.store.Accept(ctx, []store.Event{event()})
		if err != nil {
			return err
		}
		return admissions[0].Err
	}
	var claimed []store.Claimed
	claim := func(ctx context.Context) error {
		result, err := p.store.Claim(ctx, store.Claim{
			Environment: store.Key{ProjectID: scene.Project, ID: scene.Environment}, RunnerID: "bench", Slots: 1 << 20, Limit: 1, Lease: time.Hour,
		})
		claimed = append(claimed, result.Runs...)
		return err
	}
	complete := func(ctx context.Context) error {
		run := claimed[len(claimed)-1]
		claimed = claimed[:len(claimed)-1]
		each, err := p.store.Complete(ctx, []store.Completion{{Lease: store.Lease{Run: run.Run.Key(), Token: run.Token}, Status: store.RunCompleted, Output: output}})
		if err != nil {
			return err
		}
		return each[0]
	}
	queued := func(tb testing.TB) {
		tb.Helper()
		require.NoError(tb, accept(tb.Context()))
	}
	return map[string]call{
		"accept": {do: accept},
		"claim":  {ready: queued, do: claim},
		"complete": {
			ready: func(tb testing.TB) {
				tb.Helper()
				queued(tb)
				require.NoError(tb, claim(tb.Context()))
				require.NotEmpty(tb, claimed)
			},
			do: complete,
		},
	}
}

// reads are lists and statistics.
func (p *population) reads() map[string]func(ctx context.Context) error {
	scene, agent, hook := p.largest()
	rare := p.scenes[len(p.scenes)-1]
	now := time.Now()
	middle := uuid.MustParse(idOf(p.oldest.Add(now.Sub(p.oldest) / 2)))
	out := map[string]func(ctx context.Context) error{
		"agents": func(ctx context.Context) error {
			_, err := p.store.Agents(ctx, store.Key{ProjectID: scene.Project, ID: scene.Environment})
			return err
		},
	}
	for name, q := range map[string]store.RunQuery{
		"runs":                 {},
		"runs/failed":          {Statuses: []store.RunStatus{store.RunFailed}},
		"runs/queued":          {Statuses: []store.RunStatus{store.RunQueued}},
		"runs/agent":           {AgentName: agent},
		"runs/agent,failed":    {AgentName: agent, Statuses: []store.RunStatus{store.RunFailed}},
		"runs/agent of nobody": {AgentName: "nobody"},
		"runs/environment":     {EnvironmentIDs: []uuid.UUID{scene.Environment}},
		"runs/deployment":      {DeploymentID: scene.Deployment},
		"runs/cancelled":       {Statuses: []store.RunStatus{store.RunCancelled}},
		"runs/deep":            {Before: &middle},
		"runs/of the smallest": {ProjectID: rare.Project},
	} {
		if q.ProjectID == uuid.Nil {
			q.ProjectID = scene.Project
		}
		q.Limit = 100
		out[name] = func(ctx context.Context) error {
			_, _, err := p.store.ListRuns(ctx, q)
			return err
		}
	}
	for name, q := range map[string]store.ConnectorRunQuery{
		"connector runs":         {},
		"connector runs/1h":      {Since: time.Hour},
		"connector runs/7d":      {Since: 7 * 24 * time.Hour},
		"connector runs/failed":  {Statuses: []store.ConnectorRunStatus{store.ConnectorRunFailed}},
		"connector runs/cron":    {Trigger: store.TriggerCron},
		"connector runs/offset":  {Offset: 10_000},
		"connector runs/30d,off": {Since: 30 * 24 * time.Hour, Offset: 1000},
	} {
		q.Connector, q.Limit = store.Key{ProjectID: scene.Project, ID: hook}, 100
		out[name] = func(ctx context.Context) error {
			_, _, err := p.store.ListConnectorRuns(ctx, q)
			return err
		}
	}
	for name, q := range p.statistics(scene, agent, now) {
		out["statistics/"+name] = func(ctx context.Context) error {
			_, err := p.store.RunStatistics(ctx, q)
			return err
		}
	}
	return out
}

// statistics returns the statistics queries of one agent.
func (p *population) statistics(scene *storebench.Scene, agent string, now time.Time) map[string]store.StatisticsQuery {
	out := map[string]store.StatisticsQuery{
		"all":        {},
		"an hour":    {Since: now.Add(-time.Hour)},
		"a day":      {Since: now.Add(-24 * time.Hour)},
		"30 days":    {Since: now.AddDate(0, 0, -30)},
		"ragged":     {Since: now.AddDate(0, 0, -20).Add(17 * time.Minute), Until: now.AddDate(0, 0, -3).Add(-41 * time.Minute)},
		"failed":     {Statuses: []store.RunStatus{store.RunFailed}},
		"deployment": {DeploymentID: scene.Deployment, Since: now.AddDate(0, 0, -7)},
	}
	for name, q := range out {
		q.Environment, q.AgentName = store.Key{ProjectID: scene.Project, ID: scene.Environment}, agent
		out[name] = q
	}
	return out
}

// idOf is the least id of a moment.
func idOf(at time.Time) string {
	var id uuid.UUID
	binary.BigEndian.PutUint64(id[:], uint64(at.UnixMilli())<<16)
	return id.String()
}
