// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/object"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// RecordDrift implements store.Drifts.
func (s *Store) RecordDrift(ctx context.Context, environment store.Key, reports []store.DriftReport) error {
	if len(reports) > store.MaxDriftReports {
		return fmt.Errorf("recording %d drift reports, more than %d: %w", len(reports), store.MaxDriftReports, store.ErrTooLarge)
	}
	var errs []error
	of := map[uuid.UUID][]store.DriftReport{}
	for _, r := range reports {
		r, err := r.Bounded()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		of[r.DeploymentID] = append(of[r.DeploymentID], r)
	}
	for id, some := range of {
		if err := s.recordDrift(ctx, environment, id, some); err != nil {
			errs = append(errs, sqldb.Wrap(err, "recording the drift of deployment %s", store.Key{ProjectID: environment.ProjectID, ID: id}))
		}
	}
	return errors.Join(errs...)
}

// recordDrift records the reports of one deployment. Most reports change nothing, so it reads before it locks.
func (s *Store) recordDrift(ctx context.Context, environment store.Key, id uuid.UUID, reports []store.DriftReport) error {
	key := store.Key{ProjectID: environment.ProjectID, ID: id}
	if _, outcome, err := driftAfter(ctx, s.db.Reader(), key, environment.ID, reports, ""); err != nil || outcome == driftUnchanged {
		return err
	}
	return s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		all, outcome, err := driftAfter(ctx, tx, key, environment.ID, reports, tx.Exclusive)
		if err != nil || outcome == driftUnchanged {
			return err
		}
		if len(all) == 0 {
			_, err = tx.Exec(ctx, `UPDATE deployments SET drift = NULL, drift_changed_at = NULL WHERE project_id = $1 AND id = $2`,
				key.ProjectID, key.ID)
			return err
		}
		text, err := sqldb.MarshalText(all)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `UPDATE deployments SET drift = $3,
			drift_changed_at = CASE WHEN $4 THEN now_us() ELSE drift_changed_at END WHERE project_id = $1 AND id = $2`,
			key.ProjectID, key.ID, text, outcome == driftChanged)
		return err
	})
}

// driftAfter returns the drift of a deployment after some reports. It returns driftUnchanged if the environment has another
// live deployment.
func driftAfter(
	ctx context.Context, q sqldb.Queryer, key store.Key, environment uuid.UUID, reports []store.DriftReport, lock string,
) (all []store.MCPDrift, outcome driftOutcome, err error) {
	type row struct {
		drift []store.MCPDrift
		now   time.Time
	}
	rows, err := sqldb.Collect(ctx, q, func(s sqldb.Scanner) (r row, err error) {
		err = s.Scan(sqldb.ScanJSON(&r.drift), sqldb.ScanTime(&r.now))
		return r, err
	}, `SELECT drift, now_us() FROM deployments WHERE project_id = $1 AND id = $2 AND environment_id = $3
		AND id = (SELECT live_deployment_id FROM environments WHERE project_id = $1 AND id = $3) `+lock, key.ProjectID, key.ID, environment)
	if err != nil || len(rows) == 0 {
		return nil, driftUnchanged, err
	}
	all, outcome = addReports(rows[0].drift, reports, rows[0].now)
	return all, outcome, nil
}

// driftOutcome is the effect of reports on the recorded drift.
type driftOutcome int

const (
	driftUnchanged driftOutcome = iota
	// driftRefreshed means that only the times of reports changed.
	driftRefreshed
	driftChanged
)

// addReports adds reports to recorded drift.
func addReports(known []store.MCPDrift, reports []store.DriftReport, now time.Time) (all []store.MCPDrift, outcome driftOutcome) {
	all = slices.Clone(known)
	for _, r := range reports {
		at := slices.IndexFunc(all, func(d store.MCPDrift) bool { return d.Agent == r.Agent && d.Server == r.Server })
		if at < 0 {
			if len(r.Tools) == 0 || len(all) >= store.MaxDrift {
				continue
			}
			all = append(all, store.MCPDrift{Agent: r.Agent, Server: r.Server})
			at = len(all) - 1
		}
		tools, effect := addTools(all[at].Tools, r.Tools, now)
		outcome = max(outcome, effect)
		if all[at].Tools = tools; len(tools) == 0 {
			all = slices.Delete(all, at, at+1)
		}
	}
	slices.SortStableFunc(all, func(a, b store.MCPDrift) int {
		return cmp.Or(cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.Server, b.Server))
	})
	return all, outcome
}

// addTools adds the tools of a report to the recorded ones of its server, and deletes the ones that no report has named for
// store.DriftKept. So a server whose list alternates changes the record a limited number of times.
func addTools(known []store.DriftedTool, names []string, now time.Time) (tools []store.DriftedTool, outcome driftOutcome) {
	for _, t := range known {
		age := now.Sub(t.ReportedAt)
		named := slices.Contains(names, t.Name)
		switch {
		case !named && age >= store.DriftKept:
			outcome = driftChanged
			continue
		case named && age >= store.DriftRefresh:
			t.ReportedAt, outcome = now, max(outcome, driftRefreshed)
		}
		tools = append(tools, t)
	}
	for _, name := range names {
		isName := func(t store.DriftedTool) bool { return t.Name == name }
		if len(tools) < store.MaxDriftTools && !slices.ContainsFunc(tools, isName) {
			tools, outcome = append(tools, store.DriftedTool{Name: name, Since: now, ReportedAt: now}), driftChanged
		}
	}
	return tools, outcome
}

// Drift implements store.DriftReader.
func (s *Store) Drift(ctx context.Context, deployment store.Key) (drift []store.MCPDrift, err error) {
	err = sqldb.MapNoRows(s.db.Reader().QueryRowContext(ctx, `SELECT drift FROM deployments WHERE project_id = $1 AND id = $2`,
		deployment.ProjectID, deployment.ID).Scan(sqldb.ScanJSON(&drift)))
	return drift, sqldb.Wrap(err, "reading the drift of deployment %s", deployment)
}

// DriftedEnvironments implements store.DriftReader.
func (s *Store) DriftedEnvironments(ctx context.Context, after store.Key, limit int) ([]store.DriftedEnvironment, error) {
	list, err := sqldb.Collect(ctx, s.db.Reader(), func(row sqldb.Scanner) (e store.DriftedEnvironment, err error) {
		err = row.Scan(append([]any{&e.Environment.ProjectID, &e.Environment.ID, sqldb.ScanTime(&e.ChangedAt)}, object.RefFields(&e.Ref)...)...)
		return e, err
	}, `SELECT d.project_id, d.environment_id, d.drift_changed_at, `+object.RefColumns+`
		FROM deployments d JOIN environments e ON e.project_id = d.project_id AND e.id = d.environment_id AND e.live_deployment_id = d.id
		JOIN object_ids k ON k.project_id = e.project_id AND k.id = e.id
		WHERE d.drift_changed_at IS NOT NULL AND (d.project_id, d.environment_id) > ($1, $2)
		ORDER BY d.project_id, d.environment_id LIMIT $3`, after.ProjectID, after.ID, limit)
	return list, sqldb.Wrap(err, "listing environments with drift")
}
