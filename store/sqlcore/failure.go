// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// tellOf posts the deliveries to the outbox that attempts end as failed, where a link of the
// project tells of these. Of one that tells of another none is told: it could go on for ever.
func tellOf(ctx context.Context, tx *Tx, attempts []store.Attempt) error {
	for _, a := range attempts {
		failed := a.Outcome == store.DeliveryFailed || a.Outcome == store.DeliveryGone
		if !failed || a.Delivery.Kind == store.DeliverFailure {
			continue
		}
		n, err := tx.exec(ctx, `INSERT INTO outbox (project_id, consumer, ended_id, bytes, posted_at)
			SELECT $1, '`+outbound+`', $2, 0, now_us() WHERE EXISTS (SELECT 1 FROM links l WHERE l.project_id = $1 AND l.tells_failures)`,
			a.Delivery.ProjectID, a.Delivery.ID)
		if err != nil {
			return err
		}
		if n > 0 {
			tx.Hint(store.TopicDelivery, store.Key{ProjectID: a.Delivery.ProjectID, ID: a.Delivery.EnvironmentID})
		}
	}
	return nil
}

// failedDelivery is one that is told of.
type failedDelivery struct {
	store.Key
	environment uuid.UUID
	word        store.FailedDelivery
}

// told are the links over which word of failed deliveries goes out, which are those of what
// has ended that are no runs.
func (c *Core) told(ctx context.Context, ended []store.Key, runs []endedRun) (all []target, err error) {
	isRun := map[store.Key]bool{}
	for _, run := range runs {
		isRun[run.Key] = true
	}
	rest := slices.DeleteFunc(slices.Clone(ended), func(key store.Key) bool { return isRun[key] })
	if len(rest) == 0 {
		return nil, nil
	}
	failures, err := c.failedDeliveries(ctx, rest)
	if err != nil {
		return nil, err
	}
	links := map[store.Key][]target{}
	for _, f := range failures {
		of := store.Key{ProjectID: f.ProjectID, ID: f.environment}
		if _, known := links[of]; !known {
			if links[of], err = c.tellingLinks(ctx, of); err != nil {
				return nil, err
			}
		}
		payload, err := json.Marshal(f.word)
		if err != nil {
			return nil, err
		}
		others := slices.DeleteFunc(slices.Clone(links[of]), func(to target) bool { return to.connector == f.word.ConnectorID })
		for _, to := range others[:min(len(others), store.MaxTold)] {
			to.of, to.run.ID, to.payload = f.Key, f.word.RunID, payload
			all = append(all, to)
		}
	}
	return all, nil
}

// failedDeliveries reads deliveries that have failed, with what was seen last of each.
func (c *Core) failedDeliveries(ctx context.Context, keys []store.Key) (all []failedDelivery, err error) {
	for _, same := range c.keysByPart("ended_connector_runs", keys) {
		var l list
		past, err := pastRows(ctx, c, c.engine.Reader(), same[0].ID, func(row scanner) (f failedDelivery, err error) {
			var (
				runs  []uuid.UUID
				ended time.Time
			)
			err = row.Scan(&f.ProjectID, &f.ID, &f.environment, &f.word.ConnectorID, idList{&runs}, &f.word.Error, at(&ended))
			f.word.Type, f.word.DeliveryID, f.word.FailedAt, f.word.RunID = store.StatusDeliveryFailed, f.ID, ended, firstOf(runs)
			return f, err
		}, `SELECT project_id, id, environment_id, connector_id, run_ids, error, ended_at FROM {ended_connector_runs}
			WHERE status = 'failed' AND trigger_type = 'outbound' AND `+c.keys(&l, "id", same), l.args...)
		if err != nil {
			return nil, err
		}
		all = append(all, past...)
	}
	for i := range all {
		f := &all[i]
		last, err := pastRows(ctx, c, c.engine.Reader(), f.ID, func(row scanner) (a store.PastAttempt, err error) {
			return a, row.Scan(&a.Number, &a.StatusCode, &a.ErrorClass)
		}, `SELECT number, status_code, error_class FROM {delivery_attempts} WHERE project_id = $1 AND delivery_id = $2 ORDER BY number DESC LIMIT 1`,
			f.ProjectID, f.ID)
		if err != nil {
			return nil, err
		}
		f.word.Attempts, f.word.StatusCode, f.word.ErrorClass = firstOf(last).Number, firstOf(last).StatusCode, firstOf(last).ErrorClass
	}
	return all, nil
}

// tellingLinks are those of an environment that tell of failed deliveries, one of each
// connector.
func (c *Core) tellingLinks(ctx context.Context, environment store.Key) (all []target, err error) {
	links, err := collect(ctx, c.engine.Reader(), func(row scanner) (to target, err error) {
		return to, row.Scan(&to.link, &to.connector)
	}, `SELECT l.id, l.connector_id FROM links l JOIN connectors c ON c.project_id = l.project_id AND c.id = l.connector_id
		WHERE l.project_id = $1 AND l.tells_failures AND c.environment_id = $2 AND c.mode = 'outbound' AND NOT c.shadowed ORDER BY `+linkOrder, environment.ProjectID, environment.ID)
	if err != nil {
		return nil, err
	}
	for _, to := range links {
		if len(all) == store.MaxTold+1 { // one may be the one that has failed
			break
		}
		if slices.ContainsFunc(all, func(other target) bool { return other.connector == to.connector }) {
			continue
		}
		to.kind, to.environment, to.run.ProjectID = store.DeliverFailure, environment.ID, environment.ProjectID
		all = append(all, to)
	}
	return all, nil
}
