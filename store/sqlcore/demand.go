// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"slices"
	"time"

	"github.com/agentplatform/agentplatform/store"
)

// demandStatement has a row for each line of queued runs of some environments, and for what
// runs of each agent: where is the condition on the environments e, address the engine's of
// a row, most the SQL of how many of a line are counted.
func demandStatement(address, where, most string) string {
	return `WITH RECURSIVE e AS (SELECT e.project_id, e.id, e.live_deployment_id FROM environments e WHERE ` + where + `),
		` + QueuedLines(address, QueuedInEach) + `
		SELECT r.project_id, r.environment_id, r.agent_name, FALSE, r.class > 0 AND r.fresh, COALESCE(a.max_concurrent_runs, 0),
			(SELECT count(*) FROM (SELECT 1 AS one FROM open_runs n WHERE n.status = 'queued' AND NOT n.blocked AND n.project_id = r.project_id
				AND n.environment_id = r.environment_id AND n.class = r.class AND n.agent_name = r.agent_name AND n.fresh = r.fresh LIMIT ` + most + `) counted),
			now_us() - r.queued_at
		FROM q JOIN open_runs r ON r.` + address + ` = q.address
		JOIN e ON e.project_id = r.project_id AND e.id = r.environment_id AND e.live_deployment_id IS NOT NULL
		LEFT JOIN deployment_agents a ON a.project_id = r.project_id AND a.name = r.agent_name
			AND a.deployment_id = COALESCE(r.deployment_id, e.live_deployment_id)
		UNION ALL
		SELECT r.project_id, r.environment_id, r.agent_name, TRUE, r.class > 0 AND r.fresh, 0, count(*), 0
		FROM e JOIN open_runs r ON r.project_id = e.project_id AND r.environment_id = e.id AND r.status = 'running'
		GROUP BY r.project_id, r.environment_id, r.agent_name, r.class > 0 AND r.fresh`
}

// asked is what the runs of an agent in an environment ask for.
type asked struct {
	running, waiting store.Runs
	// most is how many of them may be under way; 0 is any number.
	most int
	// oldest is how long the first of those that wait does.
	oldest time.Duration
}

// asking are the runs of an agent in an environment.
type asking struct {
	environment store.Key
	agent       string
}

// Demands implements store.Demands.
func (c *Core) Demands(ctx context.Context, environments []store.Key) (map[store.Key]store.Demand, error) {
	of := map[asking]asked{}
	for some := range slices.Chunk(environments, chunk) {
		if err := c.readDemands(ctx, some, of); err != nil {
			return nil, wrap(err, "measuring what is asked of pools")
		}
	}
	out := map[store.Key]store.Demand{}
	for who, a := range of {
		out[who.environment] = a.addTo(out[who.environment])
	}
	return out, nil
}

func (c *Core) readDemands(ctx context.Context, environments []store.Key, of map[asking]asked) error {
	var l list
	statement := demandStatement(c.address, c.keys(&l, "e.id", environments), l.add(store.MaxDemandCount))
	_, err := collect(ctx, c.engine.Reader(), func(row scanner) (none struct{}, err error) {
		var (
			who            asking
			running, lower bool
			most, runs     int
			age            int64
		)
		if err := row.Scan(&who.environment.ProjectID, &who.environment.ID, &who.agent, &running, &lower, &most, &runs, &age); err != nil {
			return none, err
		}
		a := of[who]
		a.add(running, lower, runs)
		a.most = max(a.most, most)
		a.oldest = max(a.oldest, time.Duration(age)*time.Microsecond)
		of[who] = a
		return none, nil
	}, statement, l.args...)
	return err
}

func (a *asked) add(running, lower bool, runs int) {
	to := &a.waiting
	if running {
		to = &a.running
	}
	to.All += runs
	if lower {
		to.Lower += runs
	}
}

// addTo adds what an agent asks for, as far as its limit lets its runs be under way: those
// that need not leave places free come first.
func (a asked) addTo(d store.Demand) store.Demand {
	first, lower := a.waiting.All-a.waiting.Lower, a.waiting.Lower
	if a.most > 0 {
		room := max(a.most-a.running.All, 0)
		first = min(first, room)
		lower = min(lower, room-first)
	}
	d.Running.All += a.running.All
	d.Running.Lower += a.running.Lower
	d.Waiting.All += first + lower
	d.Waiting.Lower += lower
	if first+lower > 0 {
		d.Oldest = max(d.Oldest, a.oldest)
	}
	return d
}
