// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/outbox"
	"github.com/agentplatform/agentplatform/store/runrow"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/storedbytes"
)

// DeliveryColumns are the columns of an open delivery.
const DeliveryColumns = `id, project_id, environment_id, connector_id, link_id, run_id, kind, attempt, tries, started_at, hops, traceparent`

// ScanDelivery reads DeliveryColumns.
func ScanDelivery(row sqldb.Scanner) (d store.Delivery, err error) {
	var traceparent *string
	err = row.Scan(&d.ID, &d.ProjectID, &d.EnvironmentID, &d.ConnectorID, &d.LinkID, &d.RunID, &d.Kind, &d.Attempt, &d.Tries, sqldb.ScanTime(&d.StartedAt), &d.Hops, &traceparent)
	if traceparent != nil {
		d.Traceparent = *traceparent
	}
	return d, err
}

// Share is the number of attempts that may begin for a connector.
type Share struct {
	Connector store.Key
	Limit     int
}

// destination is a locked connector with due deliveries.
type destination struct {
	store.Key
	failures         int
	rejected         int
	pausedGeneration *int64
	pausedReason     string
}

func scanDestination(row sqldb.Scanner) (d destination, err error) {
	err = row.Scan(&d.ProjectID, &d.ID, &d.failures, &d.rejected, &d.pausedGeneration, &d.pausedReason)
	return d, err
}

const destinationColumns = `project_id, connector_id, failures, rejected, paused_generation, paused_reason`

// destinationsPerAttempt is the number of destinations to read per attempt, so that every project gets its
// share.
const destinationsPerAttempt = 4

// shareOut returns how many attempts of each destination may begin. Each project has an equal share
// of the limit, and each of its destinations has an equal share of that. left is the number of
// further attempts for destinations with a share and for full destinations. The others keep their
// turn.
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

// byProject groups destinations by project, in the order of the first of each.
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

// closedReason returns why nothing is sent to a destination; "" if it sends.
func (d destination) closedReason(connector store.Connector, known bool) string {
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

// fullPause is the time until a destination with the maximum number of attempts is checked again,
// if no attempt is recorded before.
const fullPause = time.Second

// dueAgain sets when a claim may find deliveries of destinations: at their first due delivery, but
// not before now, so that destinations without a turn come first. A full destination is due a
// little later. The caller has locked them, because a statement that waits for a lock does not see
// rows written meanwhile.
func (s *Store) dueAgain(ctx context.Context, tx *sqldb.Tx, keys []store.Key, full bool) error {
	if len(keys) == 0 {
		return nil
	}
	var after time.Duration
	if full {
		after = fullPause
	}
	l := sqldb.Args{Values: []any{after.Microseconds()}}
	_, err := tx.Exec(ctx, `UPDATE destinations SET due_at = (SELECT CASE WHEN o.due_at < now_us() + $1 THEN now_us() + $1 ELSE o.due_at END
			FROM deliveries o WHERE o.project_id = destinations.project_id AND o.connector_id = destinations.connector_id
			ORDER BY o.due_at LIMIT 1)
		WHERE `+s.db.KeyCondition(&l, "connector_id", keys), l.Values...)
	return err
}

// delayDestination delays a destination, if it has waiting deliveries.
func delayDestination(ctx context.Context, tx *sqldb.Tx, key store.Key, d time.Duration) error {
	_, err := tx.Exec(ctx, `UPDATE destinations SET due_at = now_us() + $3 WHERE project_id = $1 AND connector_id = $2 AND due_at < now_us() + $3`,
		key.ProjectID, key.ID, d.Microseconds())
	return err
}

// endDeliveries moves deliveries to history.
func (s *Store) endDeliveries(ctx context.Context, tx *sqldb.Tx, keys []store.Key, status store.ConnectorRunStatus, reason string) error {
	for part := range slices.Chunk(keys, sqldb.MaxIDs) {
		l := sqldb.Args{Values: []any{string(status), sqldb.Text(reason)}}
		if _, err := tx.Exec(ctx, `INSERT INTO ended_connector_runs (project_id, id, environment_id, connector_id, status, trigger_type,
				content_type, run_ids, kind, error, hops, replay_of, started_at, ended_at)
			SELECT project_id, id, environment_id, connector_id, $1, 'outbound', '`+runrow.DeliveryType+`', id_list(run_id), kind, $2, hops, replay_of, started_at, now_us()
			FROM deliveries WHERE `+s.db.KeyCondition(&l, "id", part), l.Values...); err != nil {
			return err
		}
		l = sqldb.Args{}
		ended, err := sqldb.Collect(ctx, tx, sqldb.ScanKey, `DELETE FROM deliveries WHERE `+s.db.KeyCondition(&l, "id", part)+` RETURNING project_id, id`, l.Values...)
		if err != nil {
			return err
		}
		if err := outbox.PostConnectorRuns(ctx, tx, ended); err != nil {
			return err
		}
	}
	return nil
}

// DeliveryOverhead is the number of bytes that a delivery, and each of its attempts, count in
// addition to their contents.
const DeliveryOverhead = 512

// countDeliveries posts the stored bytes of deliveries: more, by delivery, in addition to the
// overhead.
func countDeliveries(ctx context.Context, tx *sqldb.Tx, keys []store.Key, more map[store.Key]int64) error {
	bytes := map[store.Key]int64{}
	for _, key := range keys {
		bytes[key] = DeliveryOverhead + more[key]
	}
	return storedbytes.Post(ctx, tx, keys, bytes)
}

// addRuns reads the results for claimed deliveries, except for outputs in blobs.
func (s *Store) addRuns(ctx context.Context, claimed []store.ClaimedDelivery) error {
	var results []store.Key
	for _, d := range claimed {
		if d.Kind == store.DeliverResult {
			results = append(results, d.Result())
		}
	}
	of := map[store.Key]runrow.PastRun{}
	for _, same := range s.db.KeysByPart("ended_runs", results) {
		var l sqldb.Args
		past, err := sqldb.PastRows(ctx, s.db, s.db.Reader(), same[0].ID, runrow.ScanPast, `SELECT `+runrow.PastColumns+` FROM {ended_runs} r
			WHERE `+s.db.KeyCondition(&l, "r.id", same)+sqldb.ReadableCondition("r.project_id"), l.Values...)
		if err != nil {
			return err
		}
		for _, run := range past {
			of[run.Key()] = run
		}
	}
	for i, d := range claimed {
		if run, known := of[d.Result()]; known && d.Kind == store.DeliverResult {
			claimed[i].Run, claimed[i].OutputBlob = run.Run, run.Blob
		}
	}
	return nil
}

// postPause is the maximum time until the next check while deliveries are being created.
const postPause = time.Second

// NextDelivery implements store.Deliveries.
func (s *Store) NextDelivery(ctx context.Context, claim store.DeliveryClaim) (in time.Duration, waits bool, err error) {
	var (
		results, word, due *int64
		l                  sqldb.Args
	)
	others := s.otherDestinations(&l, claim)
	err = s.db.Reader().QueryRowContext(ctx, `SELECT (SELECT posted_at - now_us() FROM outbox WHERE consumer = '`+outbox.Deliveries+`' ORDER BY posted_at LIMIT 1),
		(SELECT posted_at - now_us() FROM outbox WHERE consumer = '`+outbox.FailureNotices+`' ORDER BY posted_at LIMIT 1),
		(SELECT due_at - now_us() FROM destinations WHERE due_at IS NOT NULL`+others+` ORDER BY due_at LIMIT 1)`, l.Values...).Scan(&results, &word, &due)
	if err != nil {
		return 0, false, sqldb.Wrap(err, "reading the next due time of deliveries")
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
