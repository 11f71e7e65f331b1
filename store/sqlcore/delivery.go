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

// ClaimDeliveries implements store.Deliveries. Whoever claims or records locks the
// connectors first: so the number of attempts that are under way is exact.
func (c *Core) ClaimDeliveries(ctx context.Context, claim store.DeliveryClaim) (claimed []store.ClaimedDelivery, err error) {
	limit := min(claim.Limit, store.MaxDeliveryClaim)
	err = c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		claimed = nil
		l := list{}
		due, err := collect(ctx, tx, scanDestination, `SELECT `+destinationColumns+` FROM destinations
			WHERE due_at <= now_us()`+c.others(&l, claim)+` ORDER BY due_at LIMIT `+l.add(min(window*limit, store.MaxDeliveryClaim))+` `+c.skipLocked, l.args...)
		if err != nil || len(due) == 0 {
			return err
		}
		claimed, err = c.claimFrom(ctx, tx, due, claim, limit)
		return err
	})
	if err != nil {
		return nil, wrap(err, "claiming deliveries")
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	err = c.addRuns(ctx, claimed)
	if err == nil {
		err = c.addPayloads(ctx, claimed)
	}
	return claimed, wrap(err, "reading what claimed deliveries send")
}

// others narrows destinations to those from which a claim takes something.
func (c *Core) others(l *list, claim store.DeliveryClaim) (where string) {
	if full := claim.Without(); len(full) > 0 {
		where = ` AND project_id NOT IN ` + l.ids(full)
	}
	if full := claim.Full(); len(full) > 0 {
		where += ` AND NOT (` + c.keys(l, "connector_id", full) + `)`
	}
	return where
}

// readTimeout bounds reading what claimed deliveries send.
const readTimeout = 10 * time.Second

// window is how many times as many destinations are looked at as attempts may begin, so that
// projects have their parts.
const window = 4

// maxClosed is of how many connectors that send nothing one claim ends deliveries.
const maxClosed = 4

// claimFrom begins attempts of connectors.
func (c *Core) claimFrom(ctx context.Context, tx *Tx, due []destination, claim store.DeliveryClaim, limit int) ([]store.ClaimedDelivery, error) {
	keys := make([]store.Key, len(due))
	for i, d := range due {
		keys[i] = d.Key
	}
	connectors, err := c.connectorsBy(ctx, tx, keys)
	if err != nil {
		return nil, err
	}
	underWay, err := c.underWay(ctx, tx, keys)
	if err != nil {
		return nil, err
	}
	open, err := c.endClosed(ctx, tx, due, connectors)
	if err != nil {
		return nil, err
	}
	shares, left := shareOut(open, underWay, claim, limit)
	begun, err := c.engine.TakeDue(ctx, tx, shares, claim.Lease)
	if err != nil {
		return nil, err
	}
	claimed := make([]store.ClaimedDelivery, len(begun))
	for i, delivery := range begun {
		claimed[i] = store.ClaimedDelivery{Delivery: delivery, Connector: connectors[delivery.Connector()]}
		left[delivery.Connector()]--
	}
	var full, free []store.Key
	for key, n := range left {
		if n <= 0 {
			full = append(full, key)
		} else {
			free = append(free, key)
		}
	}
	if err := c.dueAgain(ctx, tx, full, true); err != nil {
		return nil, err
	}
	return claimed, c.dueAgain(ctx, tx, free, false)
}

// endClosed ends what is due of destinations to which nothing is sent, of some in one claim,
// and returns the others.
func (c *Core) endClosed(ctx context.Context, tx *Tx, due []destination, connectors map[store.Key]store.Connector) (open []destination, err error) {
	ended := 0
	var later []store.Key
	for _, d := range due {
		connector, known := connectors[d.Key]
		closed := d.closed(connector, known)
		if closed == "" {
			open = append(open, d)
			continue
		}
		if ended++; ended > maxClosed {
			later = append(later, d.Key) // and behind the others
			continue
		}
		if err := c.endDue(ctx, tx, d, closed); err != nil {
			return nil, err
		}
	}
	return open, c.dueAgain(ctx, tx, later, true)
}

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

// underWay is how many attempts of connectors are. Those whose claims have ended are
// written down as lost, and are not.
func (c *Core) underWay(ctx context.Context, tx *Tx, keys []store.Key) (map[store.Key]int, error) {
	var l list
	of, lost := map[store.Key]int{}, []store.Key(nil)
	_, err := collect(ctx, tx, func(row scanner) (none struct{}, err error) {
		var (
			key      store.Key
			held, no int
		)
		err = row.Scan(&key.ProjectID, &key.ID, &held, &no)
		if of[key] = held; no > 0 {
			lost = append(lost, key)
		}
		return none, err
	}, `SELECT project_id, connector_id, count(*) FILTER (WHERE lease_until > now_us()), count(*) FILTER (WHERE lease_until <= now_us())
		FROM deliveries WHERE lease_until IS NOT NULL AND `+c.keys(&l, "connector_id", keys)+` GROUP BY project_id, connector_id`, l.args...)
	if err != nil {
		return nil, err
	}
	for _, d := range lost {
		if err := c.loseAttempts(ctx, tx, d); err != nil {
			return nil, err
		}
	}
	return of, nil
}

// lostError is what is said of an attempt that is lost.
const lostError = `nobody has said what came of this attempt`

// loseAttempts writes down those of a connector whose claims have ended. Those of which somebody
// says at this moment what came of them are left to who does: that one may wait for the connector,
// which is locked here.
func (c *Core) loseAttempts(ctx context.Context, tx *Tx, connector store.Key) error {
	ended, err := collect(ctx, tx, scanKey, `SELECT project_id, id FROM deliveries
		WHERE project_id = $1 AND connector_id = $2 AND lease_until <= now_us() `+c.skipLocked, connector.ProjectID, connector.ID)
	if err != nil || len(ended) == 0 {
		return err
	}
	var l list
	lost, err := collect(ctx, tx, scanKey, `INSERT INTO delivery_attempts (project_id, delivery_id, number, at, duration_us, status_code, error_class, error, response)
		SELECT project_id, id, tries + 1, now_us(), 0, 0, '`+store.ErrorClassLost+`', '`+lostError+`', ''
		FROM deliveries WHERE `+c.keys(&l, "id", ended)+` ON CONFLICT DO NOTHING RETURNING project_id, delivery_id`, l.args...)
	if err != nil {
		return err
	}
	bytes := map[store.Key]int64{}
	for _, key := range lost {
		bytes[key] = int64(len(lostError))
	}
	if err := countDeliveries(ctx, tx, lost, bytes); err != nil {
		return err
	}
	l = list{}
	_, err = tx.exec(ctx, `UPDATE deliveries SET lease_until = NULL, tries = tries + 1, waits_for = '' WHERE `+c.keys(&l, "id", ended), l.args...)
	return err
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

// endDue skips what is due of a destination, some at a time.
func (c *Core) endDue(ctx context.Context, tx *Tx, d destination, reason string) error {
	due, err := collect(ctx, tx, ScanDelivery, `SELECT `+DeliveryColumns+` FROM deliveries
		WHERE project_id = $1 AND connector_id = $2 AND due_at <= now_us() ORDER BY due_at, id LIMIT $3 `+c.skipLocked, d.ProjectID, d.ID, chunk)
	if err != nil {
		return err
	}
	keys := make([]store.Key, len(due))
	for i := range due {
		keys[i] = due[i].Key()
	}
	status := store.ConnectorRunSkipped
	if reason == closedGone {
		status = store.ConnectorRunCancelled
	}
	if err := c.endDeliveries(ctx, tx, keys, status, reason); err != nil {
		return err
	}
	return c.dueAgain(ctx, tx, []store.Key{d.Key}, false)
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
