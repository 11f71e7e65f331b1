// SPDX-License-Identifier: Apache-2.0

// Package runqueue walks the queues of runs, and counts the open runs of an environment. A queue has the runs of an agent in a
// class. Released and resumed runs have separate queues.
package runqueue

import (
	"fmt"
	"slices"
	"strings"

	"github.com/agentplatform/agentplatform/store"
)

const (
	// MaxQueues is the number of queues that a claim reads: enough for all agents of a deployment,
	// so that each gets its turn.
	MaxQueues = 2 * store.Classes * store.MaxAgents
	// MaxHeads is the number of queued runs that a claim reads, at least one per queue.
	MaxHeads = 16384
)

// HeadClause selects the first of queued runs n, in the order of their index.
const HeadClause = ` ORDER BY n.project_id, n.environment_id, n.class, n.agent_name, n.fresh, n.id LIMIT 1`

// Scopes of WalkQueues.
const (
	// InEnvironment limits to the environment $2 of the project $1.
	InEnvironment = ` AND n.project_id = $1 AND n.environment_id = $2`
	// InAllProjects covers all projects.
	InAllProjects = ``
)

// columns distinguish queues, in the order of the index.
var columns = []string{"project_id", "environment_id", "class", "agent_name", "fresh"}

// HeadsOf returns SQL for the number of runs to read per queue, if a runner may take limit and
// there are so many queues.
func HeadsOf(limit, queues string) string {
	return fmt.Sprintf(`CASE WHEN %[1]s * %[2]s <= %[3]d THEN %[1]s WHEN %[2]s >= %[3]d THEN 1 ELSE %[3]d / %[2]s END`, limit, queues, MaxHeads)
}

// WalkQueues walks the index of queued runs, without blocked ones, from the first run of a queue
// to the first of the next. So its cost is the number of queues, not of runs. q names their rows,
// and the last row is empty. A queue has the runs of an agent in a class. Released and resumed runs
// have separate queues, so new runs are visible even if no runner can open the bundle of the
// others. scope is InEnvironment or InAllProjects. address is the engine's column for the address of
// a row.
//
// The next queue is searched in the same class and agent, then in the next agent, and so on, each
// time by the columns of the index. With a row comparison, as in (class, agent_name) > (c.class,
// c.agent_name), SQLite uses only the first column and walks the whole queue. With columns that the
// scope fixes, it would start at the first run of the scope each time.
func WalkQueues(address, scope string) string {
	first := func(where string) string {
		return `(SELECT n.` + address + ` FROM open_runs n WHERE n.status = 'queued' AND n.blocked = FALSE` + where + HeadClause + `)`
	}
	of, same := columns, scope
	if scope == InEnvironment {
		of = of[2:]
	}
	var next []string
	for _, column := range of {
		next = append(next, first(same+` AND n.`+column+` > c.`+column))
		same += ` AND n.` + column + ` = c.` + column
	}
	slices.Reverse(next)
	return `q (address) AS (
		SELECT ` + first(scope) + `
		UNION ALL
		SELECT COALESCE(` + strings.Join(next, `, `) + `) FROM q JOIN open_runs c ON c.` + address + ` = q.address
	) `
}
