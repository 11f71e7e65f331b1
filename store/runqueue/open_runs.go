// SPDX-License-Identifier: Apache-2.0

package runqueue

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// OpenQuery selects open runs of an environment, which the first two of Args name.
type OpenQuery struct {
	*sqldb.DB
	// Only limits to runs of these agents; nil does not limit. Within is a condition on the IDs of
	// runs r. Begun is a condition on fields that runs have after their start.
	Only          []string
	Within, Begun string
	Args          sqldb.Args
	// Fresh means that never started runs are counted, which have neither deployment nor variant.
	Fresh bool
}

// OpenCount is the number of open runs with equal fields, and when the last of them was queued or
// started.
type OpenCount struct {
	Agent, TestName string
	Status          store.RunStatus
	Runs            int64
	Last            *time.Time
}

const (
	// openHere limits to the environment. openColumns are the grouping columns.
	openHere    = `r.project_id = $1 AND r.environment_id = $2`
	openColumns = `r.agent_name, r.test_name, r.status, r.deployment_id, r.queued_at, r.started_at`
)

// Count counts the runs. Nearly all runs of a backlog have never started. These are counted
// index-only, queue by queue, because grouping them would cost more.
func (o OpenQuery) Count(ctx context.Context, q sqldb.Queryer) ([]OpenCount, error) {
	heads, names := o.selectHeads()
	some := ``
	if !o.Fresh {
		some = ` WHERE NOT h.fresh`
	}
	branch := func(state, agent string) string {
		text := ` UNION ALL SELECT ` + openColumns + ` FROM open_runs r WHERE ` + openHere + ` AND ` + state + o.Within
		if names != `` {
			text += ` AND ` + agent + ` IN (` + names + `)`
		}
		return text
	}
	return sqldb.Collect(ctx, q, func(row sqldb.Scanner) (n OpenCount, err error) {
		err = row.Scan(&n.Agent, &n.TestName, &n.Status, &n.Runs, sqldb.ScanNullTime(&n.Last))
		return n, err
	}, `WITH RECURSIVE `+heads+`, lines AS MATERIALIZED (SELECT h.class, h.agent_name, h.fresh, (SELECT count(*) FROM open_runs r
			WHERE `+openHere+` AND r.status = 'queued' AND r.blocked = FALSE AND r.class = h.class AND r.agent_name = h.agent_name AND r.fresh = h.fresh`+o.Within+`) AS runs FROM heads h`+some+`)
		SELECT l.agent_name, '', 'queued', l.runs, (SELECT n.queued_at FROM open_runs n WHERE n.project_id = $1 AND n.environment_id = $2 AND n.status = 'queued'
			AND n.blocked = FALSE AND n.class = l.class AND n.agent_name = l.agent_name AND n.fresh = l.fresh ORDER BY n.id DESC LIMIT 1) FROM lines l WHERE l.fresh AND l.runs > 0
		UNION ALL
		SELECT r.agent_name, r.test_name, r.status, count(*), MAX(COALESCE(r.started_at, r.queued_at)) FROM (
			SELECT `+openColumns+` FROM lines l CROSS JOIN open_runs r WHERE `+openHere+` AND r.status = 'queued' AND r.blocked = FALSE
				AND r.class = l.class AND r.agent_name = l.agent_name AND r.fresh = l.fresh`+o.Within+` AND NOT l.fresh AND l.runs > 0`+
		branch(`r.blocked`, `r.agent_name`+o.Bytewise)+branch(`r.status = 'running'`, `r.agent_name`)+branch(`r.status = 'awaiting_approval'`, `r.agent_name`)+`) r
		WHERE TRUE`+o.Begun+` GROUP BY r.agent_name, r.test_name, r.status`, o.Args.Values...)
}

// selectHeads selects the common fields of queues: of the agents in names, or of all agents.
func (o *OpenQuery) selectHeads() (heads, names string) {
	if o.Only == nil {
		return WalkQueues(o.Address, InEnvironment) + `, heads AS (SELECT c.class, c.agent_name, c.fresh FROM q
			JOIN open_runs c ON c.project_id = $1 AND c.` + o.Address + ` = q.address)`, ``
	}
	var classes, agents, all []string
	for class := range store.Classes {
		classes = append(classes, `SELECT `+strconv.Itoa(class)+` AS class`)
	}
	for _, agent := range o.Only {
		name := o.Args.Add(sqldb.Text(agent))
		agents, all = append(agents, `SELECT CAST(`+name+` AS text) AS agent_name`), append(all, name)
	}
	const either = ` UNION ALL `
	return `heads AS (SELECT c.class, a.agent_name, f.fresh FROM (` + strings.Join(classes, either) + `) AS c, (` + strings.Join(agents, either) + `) AS a,
			(SELECT FALSE AS fresh` + either + `SELECT TRUE) AS f)`, strings.Join(all, `, `)
}
