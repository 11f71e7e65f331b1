// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// departedMargin is how much longer than history what an object leaves is kept: the last day of
// its history has gone by then, whole.
const departedMargin = 2 * day

// goes notes that an object goes whose numbers and builds stay as long as its history does. One
// that is made again with the same id has them again.
func goes(ctx context.Context, tx *Tx, kind string, key store.Key) error {
	return goesNamed(ctx, tx, kind, key, "")
}

// goesNamed also notes what it was called: what it leaves is shown with that.
func goesNamed(ctx context.Context, tx *Tx, kind string, key store.Key, name string) error {
	_, err := tx.exec(ctx, `INSERT INTO departed (project_id, kind, id, gone_at, name) VALUES ($1, $2, $3, now_us(), $4)
		ON CONFLICT (project_id, kind, id) DO UPDATE SET gone_at = excluded.gone_at,
			name = CASE WHEN excluded.name = '' THEN departed.name ELSE excluded.name END`, key.ProjectID, kind, key.ID, name)
	return wrap(err, "noting that it goes")
}

// The first object that went before $1 and has come back since, or whose time is over: nothing of
// it is open, nothing waits to be counted, and it has no history any more.
const (
	isBack = `EXISTS (SELECT 1 FROM object_ids k WHERE k.project_id = d.project_id AND k.id = d.id AND k.kind = d.kind)`
	isOver = `CASE d.kind WHEN '` + store.KindProject + `' THEN
			NOT EXISTS (SELECT 1 FROM object_ids k WHERE k.project_id = d.project_id)
			AND NOT EXISTS (SELECT 1 FROM open_runs r WHERE r.project_id = d.project_id)
			AND NOT EXISTS (SELECT 1 FROM open_connector_runs r WHERE r.project_id = d.project_id)
			AND NOT EXISTS (SELECT 1 FROM deliveries r WHERE r.project_id = d.project_id)
			AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.project_id = d.project_id)
			AND NOT EXISTS (SELECT 1 FROM outbox_rollups o WHERE o.project_id = d.project_id)
			AND NOT EXISTS (SELECT 1 FROM outbox_words o WHERE o.project_id = d.project_id)
			AND NOT EXISTS (SELECT 1 FROM stored_days s WHERE s.project_id = d.project_id)
		ELSE TRUE END`
	pickDeparted = `SELECT d.project_id, d.id, d.kind, ` + isBack + ` FROM departed d WHERE d.gone_at < $1 AND (` + isBack + ` OR ` + isOver + `)`
)

// departure is an object that went.
type departure struct {
	store.Key
	kind string
	back bool
}

func scanDeparture(row scanner) (d departure, err error) {
	err = row.Scan(&d.ProjectID, &d.ID, &d.kind, &d.back)
	return d, err
}

// departures is what objects are set aside for of which something cannot be deleted.
const departures = "departures"

// dropDeparted deletes about limit rows of what an object has left that went so long ago, and
// returns how many; 0 once nothing is left of any. An object of which something cannot be deleted
// is passed over for some calls.
func (c *Core) dropDeparted(ctx context.Context, age time.Duration, limit int) (n int, err error) {
	now, err := c.Now(ctx)
	if err != nil {
		return 0, err
	}
	c.asides.turn(departures)
	before := now.Add(-age - departedMargin).UnixMicro()
	var failed []error
	for ctx.Err() == nil {
		l := list{args: []any{before}}
		others := ``
		if passed := c.asides.passed(departures); len(passed) > 0 {
			others = ` AND NOT (` + c.keys(&l, "d.id", passed) + `)`
		}
		d, err := scanDeparture(c.engine.Reader().QueryRowContext(ctx, pickDeparted+others+` ORDER BY d.gone_at LIMIT 1`, l.args...))
		if err = found(err); errors.Is(err, store.ErrNotFound) {
			break
		}
		if err == nil {
			err = isolation[departure]{
				all: func(ctx context.Context, of []departure) (err error) {
					n, err = c.dropLeftBy(ctx, of[0], before, limit)
					return err
				},
				atFault: c.atFault, can: c.canWrite,
				aside: func(_ context.Context, d departure, because error) error {
					return c.asides.put(departures, d.Key, because)
				},
			}.apart(ctx, []departure{d})
		}
		var aside *store.SetAsideError
		if failed = append(failed, wrap(err, "deleting what %s %s has left", d.kind, d.ID)); !errors.As(err, &aside) {
			break
		}
	}
	return n, joinAsides(failed...)
}

// dropLeftBy deletes about limit rows of what an object has left that went before a time.
func (c *Core) dropLeftBy(ctx context.Context, d departure, before int64, limit int) (n int, err error) {
	err = c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		if err := c.engine.Lock(ctx, tx, d.ProjectID); err != nil {
			return err
		}
		// It may have come back, and gone again, meanwhile.
		d, err := scanDeparture(tx.QueryRowContext(ctx, pickDeparted+` AND d.project_id = $2 AND d.id = $3 AND d.kind = $4`,
			before, d.ProjectID, d.ID, d.kind))
		if err = found(err); errors.Is(err, store.ErrNotFound) {
			n = 1 // maybe another one is
			return nil
		}
		if err == nil {
			n, err = c.forget(ctx, tx, d, min(limit, chunk))
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

// isInUse says of a deployment, $2, whether it is live, one of the last $3 that were deployed of an
// environment that is there, where a connector that is in effect comes from, or what an open run has
// begun with.
const isInUse = `SELECT EXISTS (SELECT 1 FROM deployments d JOIN environments e ON e.project_id = d.project_id AND e.id = d.environment_id
		JOIN object_ids k ON k.project_id = e.project_id AND k.id = e.id AND k.kind = '` + store.KindEnvironment + `'
		WHERE d.project_id = $1 AND d.id = $2 AND (d.id = e.live_deployment_id OR ` + isOneOfTheLast + `))
	OR EXISTS (SELECT 1 FROM connectors c WHERE c.project_id = $1 AND c.deployment_id = $2 AND NOT c.retired)
	OR EXISTS (SELECT 1 FROM open_runs r WHERE r.project_id = $1 AND r.deployment_id = $2)`

// stays says whether what an object has left is in use still, as only a deployment's can be. It counts
// as gone from now on then: what is from its time has as long to go.
func (d departure) stays(ctx context.Context, tx *Tx) (used bool, err error) {
	if d.kind != store.KindDeployment {
		return false, nil
	}
	if err := tx.QueryRowContext(ctx, isInUse, d.ProjectID, d.ID, store.BundlesKept).Scan(&used); err != nil || !used {
		return false, wrap(err, "looking for what needs deployment %s", d.ID)
	}
	return true, goes(ctx, tx, d.kind, d.Key)
}

// forget deletes about limit rows of what an object has left, and that it went once nothing is.
func (c *Core) forget(ctx context.Context, tx *Tx, d departure, limit int) (n int, err error) {
	if !d.back {
		if stays, err := d.stays(ctx, tx); err != nil || stays {
			return 1, err
		}
		if n, err = c.dropLeft(ctx, tx, d, limit); err != nil || n >= limit {
			return n, err
		}
	}
	_, err = tx.exec(ctx, `DELETE FROM departed WHERE project_id = $1 AND kind = $2 AND id = $3`, d.ProjectID, d.kind, d.ID)
	return n + 1, err
}

func (c *Core) dropLeft(ctx context.Context, tx *Tx, d departure, limit int) (n int, err error) {
	if n, err = dropNumbers(ctx, tx, d, limit); err != nil || n >= limit {
		return n, err
	}
	left := map[string]func() []string{
		store.KindProject: leftByProject, store.KindEnvironment: func() []string { return nil }, store.KindConnector: leftByConnector,
		store.KindDeployment: leftByDeployment,
	}
	for _, statement := range left[d.kind]() {
		args := []any{d.ProjectID, limit - n, d.ID}
		if d.kind == store.KindProject {
			args = args[:2]
		}
		went, err := tx.exec(ctx, statement, args...)
		if n += int(went); err != nil || n >= limit {
			return n, err
		}
	}
	switch d.kind {
	case store.KindProject:
	case store.KindDeployment:
		return n, dropDeployment(ctx, tx, d.Key)
	default:
		return n, nil
	}
	blobs, err := c.dropBlobsOf(ctx, tx, d.ProjectID, limit-n)
	return n + blobs, err
}

// dropNumbers deletes some of the numbers that an object has left, which count as stored no more.
func dropNumbers(ctx context.Context, tx *Tx, d departure, limit int) (n int, err error) {
	of, grown := map[string][]string{store.KindEnvironment: numbersOfEnvironment(), store.KindConnector: numbersOfConnector()}, growth{}
	for _, statement := range of[d.kind] {
		if n >= limit {
			break
		}
		went, err := tx.exec(ctx, statement, d.ProjectID, limit-n, d.ID)
		if err != nil {
			return n, err
		}
		grown.rows(d.ProjectID, -went)
		n += int(went)
	}
	return n, grown.write(ctx, tx)
}

// dropBlobsOf deletes some of the blobs of a project.
func (c *Core) dropBlobsOf(ctx context.Context, tx *Tx, project uuid.UUID, limit int) (n int, err error) {
	blobs, err := collect(ctx, tx, scanSized, `SELECT project_id, id, size FROM blobs WHERE project_id = $1 ORDER BY id LIMIT $2`, project, limit)
	if err != nil {
		return 0, err
	}
	some := someOf(blobs)
	if err := c.dropBlobs(ctx, tx, some); err != nil || len(some) == len(blobs) {
		return len(some), err
	}
	return limit, nil // there are more
}

// leftByProject are statements that delete so many rows ($2) of what a project ($1) has: all but
// history and blobs, each table after those that refer to it.
func leftByProject() []string {
	return []string{
		`DELETE FROM build_log WHERE project_id = $1 AND (deployment_id, number) IN (SELECT deployment_id, number FROM build_log WHERE project_id = $1 LIMIT $2)`,
		`DELETE FROM deployment_agents WHERE project_id = $1 AND (deployment_id, name) IN (SELECT deployment_id, name FROM deployment_agents WHERE project_id = $1 LIMIT $2)`,
		`DELETE FROM deployments WHERE project_id = $1 AND id IN (SELECT id FROM deployments WHERE project_id = $1 LIMIT $2)`,
		`DELETE FROM run_rollups WHERE project_id = $1 AND id IN (SELECT id FROM run_rollups WHERE project_id = $1 LIMIT $2)`,
		`DELETE FROM usage_rollups WHERE project_id = $1 AND id IN (SELECT id FROM usage_rollups WHERE project_id = $1 LIMIT $2)`,
		`DELETE FROM connector_rollups WHERE project_id = $1 AND (connector_id, grain, begins_at, trigger_type, status) IN
			(SELECT connector_id, grain, begins_at, trigger_type, status FROM connector_rollups WHERE project_id = $1 LIMIT $2)`,
		`DELETE FROM agent_totals WHERE project_id = $1 AND (environment_id, agent_name, test_name) IN
			(SELECT environment_id, agent_name, test_name FROM agent_totals WHERE project_id = $1 LIMIT $2)`,
		`DELETE FROM bundles WHERE project_id = $1 AND digest IN (SELECT digest FROM bundles WHERE project_id = $1 LIMIT $2)`,
		`DELETE FROM uploads WHERE project_id = $1 AND digest IN (SELECT digest FROM uploads WHERE project_id = $1 LIMIT $2)`,
		`DELETE FROM idempotency_keys WHERE project_id = $1 AND (connector_id, key) IN (SELECT connector_id, key FROM idempotency_keys WHERE project_id = $1 LIMIT $2)`,
		`DELETE FROM links WHERE project_id = $1 AND id IN (SELECT id FROM links WHERE project_id = $1 LIMIT $2)`,
		`DELETE FROM connectors WHERE project_id = $1 AND id IN (SELECT id FROM connectors WHERE project_id = $1 LIMIT $2)`,
		`DELETE FROM cron_ticks WHERE project_id = $1 AND connector_id IN (SELECT connector_id FROM cron_ticks WHERE project_id = $1 LIMIT $2)`,
		`DELETE FROM destinations WHERE project_id = $1 AND connector_id IN (SELECT connector_id FROM destinations WHERE project_id = $1 LIMIT $2)`,
		`DELETE FROM rejections WHERE project_id = $1 AND connector_id IN (SELECT connector_id FROM rejections WHERE project_id = $1 LIMIT $2)`,
		`DELETE FROM replays WHERE project_id = $1 AND id IN (SELECT id FROM replays WHERE project_id = $1 LIMIT $2)`,
		`DELETE FROM derivations WHERE project_id = $1 AND (connector_id, version) IN (SELECT connector_id, version FROM derivations WHERE project_id = $1 LIMIT $2)`,
		`DELETE FROM concurrency_slots WHERE project_id = $1 AND run_id IN (SELECT run_id FROM concurrency_slots WHERE project_id = $1 LIMIT $2)`,
		`DELETE FROM sends WHERE project_id = $1 AND (run_id, position) IN (SELECT run_id, position FROM sends WHERE project_id = $1 LIMIT $2)`,
		`DELETE FROM tokens WHERE project_id = $1 AND sha256 IN (SELECT sha256 FROM tokens WHERE project_id = $1 LIMIT $2)`,
		`DELETE FROM runners WHERE project_id = $1 AND (environment_id, id) IN (SELECT environment_id, id FROM runners WHERE project_id = $1 LIMIT $2)`,
		`DELETE FROM pools WHERE project_id = $1 AND environment_id IN (SELECT environment_id FROM pools WHERE project_id = $1 LIMIT $2)`,
		`DELETE FROM environment_places WHERE project_id = $1 AND environment_id IN (SELECT environment_id FROM environment_places WHERE project_id = $1 LIMIT $2)`,
		`DELETE FROM environments WHERE project_id = $1 AND id IN (SELECT id FROM environments WHERE project_id = $1 LIMIT $2)`,
		`DELETE FROM departed WHERE project_id = $1 AND kind <> '` + store.KindProject + `' AND (kind, id) IN (SELECT kind, id FROM departed
			WHERE project_id = $1 AND kind <> '` + store.KindProject + `' LIMIT $2)`,
		`DELETE FROM looks WHERE project_id = $1 AND $2 > 0`,
		`DELETE FROM stored_bytes WHERE project_id = $1 AND $2 > 0`,
	}
}

// numbersOfEnvironment are those of the numbers that an environment ($3) has left: all that goes
// with it, for its deployments go by themselves.
func numbersOfEnvironment() []string {
	return []string{
		`DELETE FROM run_rollups WHERE project_id = $1 AND id IN (SELECT id FROM run_rollups WHERE project_id = $1 AND environment_id = $3 LIMIT $2)`,
		`DELETE FROM usage_rollups WHERE project_id = $1 AND id IN (SELECT id FROM usage_rollups WHERE project_id = $1 AND environment_id = $3 LIMIT $2)`,
		`DELETE FROM agent_totals WHERE project_id = $1 AND environment_id = $3 AND (agent_name, test_name) IN
			(SELECT agent_name, test_name FROM agent_totals WHERE project_id = $1 AND environment_id = $3 LIMIT $2)`,
	}
}

// numbersOfConnector are those of the numbers of a connector ($3).
func numbersOfConnector() []string {
	return []string{
		`DELETE FROM connector_rollups WHERE project_id = $1 AND connector_id = $3 AND (grain, begins_at, trigger_type, status) IN
			(SELECT grain, begins_at, trigger_type, status FROM connector_rollups WHERE project_id = $1 AND connector_id = $3 LIMIT $2)`,
	}
}

// leftByConnector are those of what else it has left.
func leftByConnector() []string {
	return []string{
		`DELETE FROM destinations WHERE project_id = $1 AND connector_id = $3 AND $2 > 0`,
	}
}

// leftByDeployment are those of what a deployment ($3) has left, but for its row.
func leftByDeployment() []string {
	return []string{
		`DELETE FROM build_log WHERE project_id = $1 AND deployment_id = $3 AND number IN
			(SELECT number FROM build_log WHERE project_id = $1 AND deployment_id = $3 LIMIT $2)`,
		`DELETE FROM deployment_agents WHERE project_id = $1 AND deployment_id = $3 AND name IN
			(SELECT name FROM deployment_agents WHERE project_id = $1 AND deployment_id = $3 LIMIT $2)`,
		`DELETE FROM tokens WHERE project_id = $1 AND sha256 IN (SELECT sha256 FROM tokens WHERE project_id = $1 AND deployment_id = $3 LIMIT $2)`,
	}
}

// dropDeployment deletes the row of a deployment; what it has stored counts no more.
func dropDeployment(ctx context.Context, tx *Tx, key store.Key) error {
	var size int64
	err := found(tx.QueryRowContext(ctx, `DELETE FROM deployments WHERE project_id = $1 AND id = $2 RETURNING log_size + result_size`,
		key.ProjectID, key.ID).Scan(&size))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return nil
	case err == nil:
		err = addStored(ctx, tx, map[uuid.UUID]int64{key.ProjectID: -size})
	}
	return wrap(err, "deleting deployment %s", key)
}
