// SPDX-License-Identifier: Apache-2.0

package connectorrun

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/runrow"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/timewindow"
)

// connectorRunsOf returns a page of a connector's runs that belong to one agent run: the connector
// run that started it, by ID, and its deliveries, by an index. So the cost is that of this run,
// however many runs the connector has had.
func (s *Store) connectorRunsOf(ctx context.Context, q store.ConnectorRunQuery) (runs []store.ConnectorRun, total int64, err error) {
	reader := s.db.Lists()
	now, seen, err := s.nowAndReadableFrom(ctx, reader, q.Connector.ProjectID)
	if err != nil {
		return nil, 0, err
	}
	of := timewindow.Period{From: max(seen, store.TimeOf(q.Run).UnixMicro()), To: timewindow.Never}
	if q.Since > 0 {
		of.From = max(of.From, now-q.Since.Microseconds())
	}
	if runs, err = s.deliveriesOf(ctx, reader, q, of); err != nil {
		return nil, 0, err
	}
	event, err := s.startOf(ctx, reader, store.Key{ProjectID: q.Connector.ProjectID, ID: q.Run})
	if err != nil {
		return nil, 0, err
	}
	if event != nil && (q.Since == 0 || store.TimeOf(event.ID).UnixMicro() >= now-q.Since.Microseconds()) {
		runs = append(runs, *event)
	}
	runs = slices.DeleteFunc(runs, func(run store.ConnectorRun) bool {
		return run.ConnectorID != q.Connector.ID || len(q.Statuses) > 0 && !slices.Contains(q.Statuses, run.Status) || q.Trigger != "" && run.Trigger != q.Trigger
	})
	slices.SortFunc(runs, func(a, b store.ConnectorRun) int { return bytes.Compare(b.ID[:], a.ID[:]) })
	total = int64(len(runs))
	runs = runs[min(q.Offset, len(runs)):]
	runs = runs[:min(q.Limit, len(runs))]
	return runs, total, s.addErrors(ctx, runs)
}

// nowAndReadableFrom returns the time and the time from which history of a project is readable, in
// microseconds.
func (s *Store) nowAndReadableFrom(ctx context.Context, q sqldb.Queryer, project uuid.UUID) (now, seen int64, err error) {
	if err = q.QueryRowContext(ctx, `SELECT now_us()`).Scan(&now); err != nil {
		return 0, 0, err
	}
	seen, err = s.db.ReadableSince(ctx, q, project)
	return now, seen, err
}

// startOf returns the connector run that started a run; nil if there is none, or it is no longer
// kept.
func (s *Store) startOf(ctx context.Context, q sqldb.Queryer, run store.Key) (*store.ConnectorRun, error) {
	var event *uuid.UUID
	err := sqldb.MapNoRows(q.QueryRowContext(ctx, `SELECT r.connector_run_id FROM open_runs r WHERE r.project_id = $1 AND r.id = $2`, run.ProjectID, run.ID).Scan(&event))
	if errors.Is(err, store.ErrNotFound) {
		err = s.db.ReadHistory(ctx, q, run, `SELECT r.connector_run_id FROM {ended_runs} r WHERE r.project_id = $1 AND r.id = $2`+sqldb.SinceCondition("r.id", "$1"), &event)
	}
	if errors.Is(err, store.ErrNotFound) || err == nil && event == nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	started, err := runrow.ReadConnectorRun(ctx, s.db, q, store.Key{ProjectID: run.ProjectID, ID: *event})
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	return &started, err
}

// deliveriesOf returns a run's deliveries by a connector in a period. It reads open ones first. A
// delivery that ends meanwhile is read twice and counts as ended.
func (s *Store) deliveriesOf(ctx context.Context, q sqldb.Queryer, of store.ConnectorRunQuery, within timewindow.Period) (runs []store.ConnectorRun, err error) {
	args := []any{of.Connector.ProjectID, of.Run, of.Connector.ID}
	l := sqldb.Args{Values: slices.Clone(args)}
	runs, err = sqldb.Collect(ctx, q, runrow.ScanConnectorRun, `SELECT `+runrow.OpenDeliveryColumns+` FROM `+runrow.OpenDeliveries+` c
		WHERE c.project_id = $1 AND c.run_id = $2 AND c.connector_id = $3`+timewindow.Condition("c.id", within, &l), l.Values...)
	if err != nil {
		return nil, err
	}
	windows, err := timewindow.OfHistory(ctx, s.db, q, "ended_connector_runs", of.Connector.ProjectID, within)
	if err != nil {
		return nil, err
	}
	for _, window := range windows {
		l := sqldb.Args{Values: slices.Clone(args)}
		some, err := sqldb.Collect(ctx, q, runrow.ScanConnectorRun, `SELECT `+runrow.EndedConnectorRunColumns+` FROM ended_connector_runs c
			WHERE c.project_id = $1 AND c.kind <> '' AND `+s.db.FirstElement("c.run_ids")+` = $2 AND c.connector_id = $3`+timewindow.DaysCondition("c.id", window, &l), l.Values...)
		if err != nil {
			return nil, err
		}
		runs = slices.DeleteFunc(runs, func(open store.ConnectorRun) bool {
			return slices.ContainsFunc(some, func(ended store.ConnectorRun) bool { return ended.ID == open.ID })
		})
		runs = append(runs, some...)
	}
	return runs, nil
}
