// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// DeliveryColumns are of an open delivery.
const DeliveryColumns = `id, project_id, environment_id, connector_id, link_id, run_id, kind, attempt, tries, started_at, hops`

// ScanDelivery reads them.
func ScanDelivery(row scanner) (d store.Delivery, err error) {
	err = row.Scan(&d.ID, &d.ProjectID, &d.EnvironmentID, &d.ConnectorID, &d.LinkID, &d.RunID, &d.Kind, &d.Attempt, &d.Tries, at(&d.StartedAt), &d.Hops)
	return d, err
}

// Share is how many attempts of a connector may begin.
type Share struct {
	Connector store.Key
	Limit     int
}

// destination is a connector of which deliveries are due, while it is locked.
type destination struct {
	store.Key
	failures         int
	rejected         int
	pausedGeneration *int64
	pausedReason     string
}

func scanDestination(row scanner) (d destination, err error) {
	err = row.Scan(&d.ProjectID, &d.ID, &d.failures, &d.rejected, &d.pausedGeneration, &d.pausedReason)
	return d, err
}

const destinationColumns = `project_id, connector_id, failures, rejected, paused_generation, paused_reason`

// readTimeout bounds reading what claimed deliveries send.
const readTimeout = 10 * time.Second

// window is how many times as many destinations are looked at as attempts may begin, so that
// projects have their parts.
const window = 4

// shareOut says how many attempts of destinations may begin: each project has its part of the
// limit, and in it each of its destinations, so that who has many leaves some to the others.
// left is how many more may be under way, of those that have a share or of which as many are as
// may be; the others keep their turn.
func shareOut(open []destination, underWay map[store.Key]int, claim store.DeliveryClaim, limit int) (shares []Share, left map[store.Key]int) {
	left = map[store.Key]int{}
	projects := byProject(open)
	for i, those := range projects {
		part, held := min(max(limit/(len(projects)-i), 1), limit), claim.UnderWay[those[0].ProjectID]
		for j, d := range those {
			free := claim.PerConnector - underWay[d.Key]
			if d.failures >= store.BreakAfter {
				free = 1 - underWay[d.Key]
			}
			most := min(max(part/(len(those)-j), 1), free, part)
			if claim.PerProject > 0 {
				most = min(most, claim.Left(d.Key, held))
			}
			if most > 0 {
				shares = append(shares, Share{d.Key, most})
				part, held, limit = part-most, held+most, limit-most
			}
			if most > 0 || free <= 0 {
				left[d.Key] = free
			}
		}
	}
	return shares, left
}

// byProject are destinations by their projects, in the order of the first of each.
func byProject(all []destination) (projects [][]destination) {
	at := map[uuid.UUID]int{}
	for _, d := range all {
		i, known := at[d.ProjectID]
		if !known {
			i, at[d.ProjectID] = len(projects), len(projects)
			projects = append(projects, nil)
		}
		projects[i] = append(projects[i], d)
	}
	return projects
}

// connectorsBy reads connectors by their keys.
func (c *Core) connectorsBy(ctx context.Context, q Queryer, keys []store.Key) (map[store.Key]store.Connector, error) {
	var l list
	all, err := collect(ctx, q, func(row scanner) (store.Connector, error) { return scanConnector(row) },
		selectConnectors+` AND `+c.keys(&l, "c.id", keys), l.args...)
	of := map[store.Key]store.Connector{}
	for _, connector := range all {
		of[connector.Key()] = connector
	}
	return of, err
}

// closed is why nothing is sent to a destination; "" where it is.
func (d destination) closed(connector store.Connector, known bool) string {
	switch {
	case !known:
		return closedGone
	case connector.Retired:
		return closedRetired
	case !connector.Enabled:
		return closedDisabled
	case d.pausedGeneration != nil && *d.pausedGeneration == connector.Ref.Generation:
		return closedPaused + d.pausedReason
	}
	return ""
}

// fullPause is how soon is looked again at a destination of which as many attempts are
// under way as may be, if nobody has recorded one before.
const fullPause = time.Second

// dueAgain sets when a claim may find something of destinations: their first delivery that
// is due, but not before now, so that those which were not served come first; where as many
// are under way as may be, a little later. Whoever calls it has locked them: a statement
// that waits for a lock does not see what was written meanwhile.
func (c *Core) dueAgain(ctx context.Context, tx *Tx, keys []store.Key, full bool) error {
	if len(keys) == 0 {
		return nil
	}
	var after time.Duration
	if full {
		after = fullPause
	}
	l := list{args: []any{after.Microseconds()}}
	_, err := tx.exec(ctx, `UPDATE destinations SET due_at = (SELECT CASE WHEN o.due_at < now_us() + $1 THEN now_us() + $1 ELSE o.due_at END
			FROM deliveries o WHERE o.project_id = destinations.project_id AND o.connector_id = destinations.connector_id
			ORDER BY o.due_at LIMIT 1)
		WHERE `+c.keys(&l, "connector_id", keys), l.args...)
	return err
}

// pause lets a destination wait for a while, as long as something waits for it.
func pause(ctx context.Context, tx *Tx, key store.Key, d time.Duration) error {
	_, err := tx.exec(ctx, `UPDATE destinations SET due_at = now_us() + $3 WHERE project_id = $1 AND connector_id = $2 AND due_at < now_us() + $3`,
		key.ProjectID, key.ID, d.Microseconds())
	return err
}

// endDeliveries moves deliveries to history.
func (c *Core) endDeliveries(ctx context.Context, tx *Tx, keys []store.Key, status store.ConnectorRunStatus, reason string) error {
	for part := range slices.Chunk(keys, chunk) {
		l := list{args: []any{string(status), Text(reason)}}
		if _, err := tx.exec(ctx, `INSERT INTO ended_connector_runs (project_id, id, environment_id, connector_id, status, trigger_type,
				content_type, run_ids, kind, error, hops, replay_of, started_at, ended_at)
			SELECT project_id, id, environment_id, connector_id, $1, 'outbound', '`+DeliveryType+`', id_list(run_id), kind, $2, hops, replay_of, started_at, now_us()
			FROM deliveries WHERE `+c.keys(&l, "id", part), l.args...); err != nil {
			return err
		}
		l = list{}
		ended, err := collect(ctx, tx, scanKey, `DELETE FROM deliveries WHERE `+c.keys(&l, "id", part)+` RETURNING project_id, id`, l.args...)
		if err != nil {
			return err
		}
		if err := postConnectorRuns(ctx, tx, ended); err != nil {
			return err
		}
	}
	return nil
}

// DeliveryOverhead is how many bytes a delivery, and each of its attempts, count for beside
// its contents.
const DeliveryOverhead = 512

// countDeliveries lets bytes be counted that deliveries have stored: more, by delivery, beside
// the overhead of each.
func countDeliveries(ctx context.Context, tx *Tx, keys []store.Key, more map[store.Key]int64) error {
	bytes := map[store.Key]int64{}
	for _, key := range keys {
		bytes[key] = DeliveryOverhead + more[key]
	}
	return countMore(ctx, tx, keys, bytes)
}

// countMore lets bytes be counted that rows of history have, each at the time of its id.
func countMore(ctx context.Context, tx *Tx, keys []store.Key, more map[store.Key]int64) error {
	bytes, of := map[projectDay]int64{}, map[projectDay]uuid.UUID{}
	for _, key := range keys {
		on := projectDay{key.ProjectID, DayOf(key.ID)}
		bytes[on] += more[key]
		of[on] = key.ID
	}
	var r rows
	for _, on := range slices.SortedFunc(maps.Keys(bytes), compareDays) {
		r.add(on.project, storage, of[on], bytes[on])
	}
	return r.insert(ctx, tx, `INSERT INTO outbox AS o (project_id, consumer, ended_id, bytes, posted_at) VALUES `, `(%, %, %, %, now_us())`,
		` ON CONFLICT (project_id, consumer, ended_id) DO UPDATE SET bytes = o.bytes + excluded.bytes`)
}

// addRuns reads the results that claimed deliveries send, but for outputs that are in blobs.
func (c *Core) addRuns(ctx context.Context, claimed []store.ClaimedDelivery) error {
	var results []store.Key
	for _, d := range claimed {
		if d.Kind == store.DeliverResult {
			results = append(results, d.Result())
		}
	}
	of := map[store.Key]pastRun{}
	for _, same := range c.keysByPart("ended_runs", results) {
		var l list
		past, err := pastRows(ctx, c, c.engine.Reader(), same[0].ID, scanPastRun, `SELECT `+pastRunColumns+` FROM {ended_runs} r
			WHERE `+c.keys(&l, "r.id", same)+readable("r.project_id"), l.args...)
		if err != nil {
			return err
		}
		for _, run := range past {
			of[run.Key()] = run
		}
	}
	for i, d := range claimed {
		if run, known := of[d.Result()]; known && d.Kind == store.DeliverResult {
			claimed[i].Run, claimed[i].OutputBlob = run.Run, run.blob
		}
	}
	return nil
}

// postPause is how soon is looked at least for what somebody makes deliveries of now.
const postPause = time.Second

// NextDelivery implements store.Deliveries.
func (c *Core) NextDelivery(ctx context.Context, claim store.DeliveryClaim) (in time.Duration, waits bool, err error) {
	var (
		results, word, due *int64
		l                  list
	)
	others := c.others(&l, claim)
	err = c.engine.Reader().QueryRowContext(ctx, `SELECT (SELECT posted_at - now_us() FROM outbox WHERE consumer = '`+outbound+`' ORDER BY posted_at LIMIT 1),
		(SELECT posted_at - now_us() FROM outbox WHERE consumer = '`+failures+`' ORDER BY posted_at LIMIT 1),
		(SELECT due_at - now_us() FROM destinations WHERE due_at IS NOT NULL`+others+` ORDER BY due_at LIMIT 1)`, l.args...).Scan(&results, &word, &due)
	if err != nil {
		return 0, false, wrap(err, "looking when a delivery is due")
	}
	for _, posted := range []*int64{results, word} {
		if posted == nil {
			continue
		}
		if in := max(*posted, postPause.Microseconds()); due == nil || in < *due {
			due = &in
		}
	}
	if due == nil {
		return 0, false, nil
	}
	return max(time.Duration(*due)*time.Microsecond, 0), true, nil
}
