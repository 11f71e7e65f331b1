// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"time"

	"github.com/agentplatform/agentplatform/store"
)

// openRuns are open runs of an environment, the first two of args, that are counted.
type openRuns struct {
	// among is a condition on the agents and ids of runs r, begun one on what these have once they
	// have begun; args begins with the environment's.
	among, begun string
	args         list
	// fresh says whether runs are counted that have never begun: they have neither a deployment
	// nor a variant.
	fresh bool
}

// openCount are how many open runs are alike, and when the last of them was queued or begun.
type openCount struct {
	agent, testName string
	status          store.RunStatus
	runs            int64
	last            *time.Time
}

const (
	// openHere narrows to the environment, openColumns are what runs are counted by.
	openHere    = `r.project_id = $1 AND r.environment_id = $2`
	openColumns = `r.agent_name, r.test_name, r.status, r.deployment_id, r.queued_at, r.started_at`
)

// count counts them. Nearly all of a backlog are runs that have never begun: these are counted by
// the index of lines alone, without looking at a row.
func (o openRuns) count(ctx context.Context, q Queryer) ([]openCount, error) {
	fresh := ``
	if !o.fresh {
		fresh = ` AND NOT r.fresh`
	}
	branch := func(state string) string {
		return ` UNION ALL SELECT ` + openColumns + ` FROM open_runs r WHERE ` + openHere + ` AND ` + state + o.among
	}
	return collect(ctx, q, func(row scanner) (n openCount, err error) {
		err = row.Scan(&n.agent, &n.testName, &n.status, &n.runs, maybeAt(&n.last))
		return n, err
	}, `WITH lines AS MATERIALIZED (SELECT r.class, r.agent_name, r.fresh, count(*) AS runs FROM open_runs r
			WHERE `+openHere+` AND r.status = 'queued' AND NOT r.blocked AND r.class IN (0, 1, 2)`+fresh+o.among+` GROUP BY r.class, r.agent_name, r.fresh)
		SELECT l.agent_name, '', 'queued', l.runs, (SELECT n.queued_at FROM open_runs n WHERE n.project_id = $1 AND n.environment_id = $2 AND n.status = 'queued'
			AND NOT n.blocked AND n.class = l.class AND n.agent_name = l.agent_name AND n.fresh ORDER BY n.id DESC LIMIT 1) FROM lines l WHERE l.fresh
		UNION ALL
		SELECT r.agent_name, r.test_name, r.status, count(*), MAX(COALESCE(r.started_at, r.queued_at)) FROM (
			SELECT `+openColumns+` FROM lines l JOIN open_runs r ON `+openHere+` AND r.status = 'queued' AND NOT r.blocked
				AND r.class = l.class AND r.agent_name = l.agent_name AND NOT r.fresh`+o.among+` WHERE NOT l.fresh`+
		branch(`r.blocked`)+branch(`r.status = 'running'`)+branch(`r.status = 'awaiting_approval'`)+`) r
		WHERE TRUE`+o.begun+` GROUP BY r.agent_name, r.test_name, r.status`, o.args.args...)
}
