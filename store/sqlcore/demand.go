// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"strconv"
	"time"

	"github.com/agentplatform/agentplatform/store"
)

// demandStatement has a row for each line of queued runs of the environment $2 of the project
// $1, and for what runs of each agent: $3 is how many of a line are enough, $4 how many of
// those that run; address is the engine's of a row.
func demandStatement(address string) string {
	return `WITH RECURSIVE ` + QueuedLines(address, QueuedHere) + `,
		l AS (SELECT q.address FROM q WHERE q.address IS NOT NULL LIMIT ` + strconv.Itoa(MaxLines) + `)
		SELECT r.agent_name, FALSE, r.class > 0 AND r.fresh, COALESCE(a.max_concurrent_runs, 0),
			(SELECT count(*) FROM (SELECT 1 AS one FROM open_runs n WHERE n.status = 'queued' AND n.blocked = FALSE AND n.project_id = $1
				AND n.environment_id = $2 AND n.class = r.class AND n.agent_name = r.agent_name AND n.fresh = r.fresh AND n.not_before <= now_us()
				LIMIT ` + HeadsOf("$3", "(SELECT count(*) FROM l)") + `) counted),
			now_us() - r.queued_at
		FROM l JOIN open_runs r ON r.` + address + ` = l.address
		JOIN environments e ON e.project_id = $1 AND e.id = $2 AND e.live_deployment_id IS NOT NULL
		LEFT JOIN deployment_agents a ON a.project_id = $1 AND a.name = r.agent_name
			AND a.deployment_id = COALESCE(r.deployment_id, e.live_deployment_id)
		UNION ALL
		SELECT r.agent_name, TRUE, r.lower, 0, count(*), 0
		FROM (SELECT n.agent_name, n.class > 0 AND n.fresh AS lower FROM open_runs n
			WHERE n.project_id = $1 AND n.environment_id = $2 AND n.status = 'running' LIMIT $4) r
		GROUP BY r.agent_name, r.lower`
}

// asked is what the runs of an agent in an environment ask for.
type asked struct {
	running, waiting store.Runs
	// most is how many of them may be under way; 0 is any number.
	most int
	// oldest is how long the first of those that wait does.
	oldest time.Duration
}

// Demand implements store.Demands.
func (c *Core) Demand(ctx context.Context, environment store.Key, enough int) (d store.Demand, err error) {
	of := map[string]asked{}
	_, err = collect(ctx, c.engine.Reader(), func(row scanner) (none struct{}, err error) {
		var (
			agent          string
			running, lower bool
			most, runs     int
			age            int64
		)
		if err := row.Scan(&agent, &running, &lower, &most, &runs, &age); err != nil {
			return none, err
		}
		a := of[agent]
		a.add(running, lower, runs)
		a.most = max(a.most, most)
		if runs > 0 {
			a.oldest = max(a.oldest, time.Duration(age)*time.Microsecond)
		}
		of[agent] = a
		return none, nil
	}, demandStatement(c.address), environment.ProjectID, environment.ID, min(enough, maxHeads), enough)
	for _, a := range of {
		d = a.addTo(d)
	}
	return d, wrap(err, "measuring what is asked of the pool of environment %s", environment)
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
