// SPDX-License-Identifier: Apache-2.0

package runrow

import (
	"slices"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// NotCompleted narrows ended runs to those with an index of their own.
const NotCompleted = ` AND r.status <> 'completed'`

// StatusCondition uses that index if it covers all requested statuses.
func StatusCondition(statuses []store.RunStatus) string {
	if len(statuses) == 0 || slices.Contains(statuses, store.RunCompleted) {
		return ""
	}
	return NotCompleted
}

// TrimForList drops the output and a large context, which lists do not return.
func TrimForList(run store.Run) store.Run {
	if run.Output = ""; len(run.Context) > store.MaxListedContext {
		run.Context = nil
	}
	return run
}

// CanBeOpen reports whether runs with these statuses (none means any) can be open.
func CanBeOpen[S Status](statuses []S) bool {
	return len(statuses) == 0 || slices.ContainsFunc(statuses, func(s S) bool { return !s.Terminal() })
}

// CanHaveEnded is CanBeOpen for ended runs.
func CanHaveEnded[S Status](statuses []S) bool {
	return len(statuses) == 0 || slices.ContainsFunc(statuses, S.Terminal)
}

// Status is a status of runs or connector runs.
type Status interface {
	~string
	Terminal() bool
}

// QueryCondition returns the condition on candidates with an alias, "" if all match.
func QueryCondition(alias string, q store.RunQuery, l *sqldb.Args) (narrow string) {
	if q.EnvironmentIDs != nil {
		narrow += ` AND ` + alias + `.environment_id IN ` + l.AddIDs(q.EnvironmentIDs)
	}
	if len(q.Statuses) > 0 {
		narrow += ` AND ` + alias + `.status IN ` + sqldb.AddTexts(l, q.Statuses)
	}
	if q.TestName != "" {
		narrow += ` AND ` + alias + `.test_name = ` + l.Add(StoredTestName(q.TestName))
	}
	for _, of := range []struct {
		column string
		id     uuid.UUID
	}{{"deployment_id", q.DeploymentID}, {"connector_id", q.ConnectorID}, {"connector_run_id", q.ConnectorRunID}} {
		if of.id != uuid.Nil {
			narrow += ` AND ` + alias + `.` + of.column + ` = ` + l.Add(of.id)
		}
	}
	return narrow
}

// StoredTestName returns the stored form of a variant name in a query.
func StoredTestName(name string) string {
	if name == store.BaseRuns {
		return ""
	}
	return sqldb.Text(name)
}
