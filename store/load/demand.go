// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"strconv"
	"time"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/runqueue"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// demandStatement returns a row for each queue of the environment $2 of the project $1, and for the
// running runs of each agent. $3 is the maximum count per queue, $4 of running runs. address is the
// engine's column for the address of a row.
func demandStatement(address string) string {
	return `WITH RECURSIVE ` + runqueue.WalkQueues(address, runqueue.InEnvironment) + `,
		l AS (SELECT q.address FROM q WHERE q.address IS NOT NULL LIMIT ` + strconv.Itoa(runqueue.MaxQueues) + `)
		SELECT r.agent_name, FALSE, r.class > 0 AND r.fresh, COALESCE(a.max_concurrent_runs, 0),
			(SELECT count(*) FROM (SELECT 1 AS one FROM open_runs n WHERE n.status = 'queued' AND n.blocked = FALSE AND n.project_id = $1
				AND n.environment_id = $2 AND n.class = r.class AND n.agent_name = r.agent_name AND n.fresh = r.fresh AND n.not_before <= now_us()
				LIMIT ` + runqueue.HeadsOf("$3", "(SELECT count(*) FROM l)") + `) counted),
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

// agentDemand is the demand of an agent's runs in an environment.
type agentDemand struct {
	running, waiting store.Runs
	// most is the agent's limit; 0 means no limit.
	most int
	// oldest is the waiting time of the first waiting run.
	oldest time.Duration
}

// Demand implements store.Demands.
func (s *Store) Demand(ctx context.Context, environment store.Key, enough int) (d store.Demand, err error) {
	of := map[string]agentDemand{}
	err = sqldb.EachRow(ctx, s.db.Reader(), func(row sqldb.Scanner) error {
		var (
			agent          string
			running, lower bool
			most, runs     int
			age            int64
		)
		if err := row.Scan(&agent, &running, &lower, &most, &runs, &age); err != nil {
			return err
		}
		a := of[agent]
		a.addRuns(running, lower, runs)
		a.most = max(a.most, most)
		if runs > 0 {
			a.oldest = max(a.oldest, time.Duration(age)*time.Microsecond)
		}
		of[agent] = a
		return nil
	}, demandStatement(s.db.Address), environment.ProjectID, environment.ID, min(enough, runqueue.MaxHeads), enough)
	for _, a := range of {
		d = a.addDemand(d)
	}
	return d, sqldb.Wrap(err, "measuring the demand of environment %s", environment)
}

func (a *agentDemand) addRuns(running, lower bool, runs int) {
	to := &a.waiting
	if running {
		to = &a.running
	}
	to.All += runs
	if lower {
		to.Lower += runs
	}
}

// addDemand adds the demand of an agent, up to its limit. Runs that may use reserved slots count first.
func (a agentDemand) addDemand(d store.Demand) store.Demand {
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
