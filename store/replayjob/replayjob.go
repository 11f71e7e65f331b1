// SPDX-License-Identifier: Apache-2.0

// Package replayjob stores bulk replays of connector runs.
package replayjob

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/runrow"
	"github.com/agentplatform/agentplatform/store/sqldb"
	"github.com/agentplatform/agentplatform/store/timewindow"
)

// Store has the bulk replays, which advance step by step.
type Store struct{ db *sqldb.DB }

// New returns a Store.
func New(db *sqldb.DB) *Store { return &Store{db: db} }

// replayColumns are the columns of a replay.
const replayColumns = `id, project_id, connector_id, status, statuses, trigger_type, since, until, per_minute, matched, more,
	position, tries, replayed, refused, reason, detail, created_at, ended_at`

func replayFields(r *store.Replay) []any {
	return []any{
		&r.ID, &r.ProjectID, &r.ConnectorID, &r.Status, sqldb.ScanJSON(&r.Filter.Statuses), &r.Filter.Trigger, sqldb.ScanTime(&r.Filter.Since), sqldb.ScanTime(&r.Filter.Until),
		&r.PerMinute, &r.Match.Matched, &r.Match.More, &r.Position, &r.Tries, &r.Replayed, sqldb.ScanJSON(&r.Refused), &r.Reason, &r.Detail,
		sqldb.ScanTime(&r.CreatedAt), sqldb.ScanNullTime(&r.EndedAt),
	}
}

func scanReplay(row sqldb.Scanner) (r store.Replay, err error) {
	err = row.Scan(replayFields(&r)...)
	return r, err
}

// MatchReplay implements store.ReplayJobs.
func (s *Store) MatchReplay(ctx context.Context, connector store.Key, f store.ReplayFilter) (m store.ReplayMatch, err error) {
	windows, err := timewindow.OfHistory(ctx, s.db, s.db.Lists(), "ended_connector_runs", connector.ProjectID, timewindow.Period{From: sqldb.Instant(f.Since), To: sqldb.Instant(f.Until)})
	left := int64(store.MaxReplayLook + 1)
	for _, window := range windows {
		var looked, matched int64
		looked, matched, err = s.countMatches(ctx, connector, f, window, left)
		left, m.Matched = left-looked, m.Matched+matched
		if err != nil || left == 0 {
			break
		}
	}
	m.More = left == 0
	return m, sqldb.Wrap(err, "counting the matches of a replay of connector %s", connector)
}

// countMatches counts the matches of a replay among the first connector runs of a window, at most so
// many.
func (s *Store) countMatches(ctx context.Context, connector store.Key, f store.ReplayFilter, window timewindow.Window, most int64) (looked, matched int64, err error) {
	l := sqldb.Args{Values: []any{connector.ProjectID, connector.ID, sqldb.Instant(f.Since), sqldb.Instant(f.Until), most}}
	cause := ``
	if f.Trigger != "" {
		cause = ` AND x.trigger_type = ` + l.Add(string(f.Trigger))
	}
	err = s.db.Lists().QueryRowContext(ctx, `SELECT COUNT(*), COALESCE(SUM(CASE WHEN x.replay_of IS NULL AND x.kind <> 'test' AND x.status IN `+sqldb.AddTexts(&l, f.Statuses)+cause+` THEN 1 ELSE 0 END), 0)
		FROM (SELECT c.status, c.trigger_type, c.kind, c.replay_of FROM ended_connector_runs c WHERE c.project_id = $1 AND c.connector_id = $2
			AND c.id > id_at($3) AND c.id < id_at(CASE WHEN CAST($4 AS bigint) < now_us() THEN CAST($4 AS bigint) ELSE now_us() END)`+
		timewindow.DaysCondition("c.id", window, &l)+sqldb.SinceCondition("c.id", "$1")+` ORDER BY c.id LIMIT $5) AS x`, l.Values...).Scan(&looked, &matched)
	return looked, matched, err
}

// StartReplay implements store.ReplayJobs. It counts the matches before its transaction, to keep
// that short.
func (s *Store) StartReplay(ctx context.Context, n store.NewReplay) (r store.Replay, verdict store.Verdict, err error) {
	key := store.Key{ProjectID: n.Connector.ProjectID, ID: n.ID}
	if r, verdict, err = startedReplay(ctx, s.db.Reader(), key, n.Fingerprint); err == nil || !errors.Is(err, store.ErrNotFound) {
		return r, verdict, sqldb.Wrap(err, "reading replay %s", key)
	}
	if err := checkReplayLimits(ctx, s.db.Reader(), n); err != nil { // to avoid a useless count
		r, verdict, err = repeatedReplay(ctx, s.db.Reader(), n, err)
		return r, verdict, sqldb.Wrap(err, "creating a replay of connector %s", n.Connector)
	}
	match, err := s.MatchReplay(ctx, n.Connector, n.Filter)
	if err != nil {
		return r, verdict, err
	}
	statuses, err := sqldb.MarshalText(n.Filter.Statuses)
	if err != nil {
		return r, verdict, err
	}
	err = s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		if err := s.db.Lock(ctx, tx, key.ProjectID); err != nil { // so that no other replay starts meanwhile
			return err
		}
		if err := checkReplayLimits(ctx, tx, n); err != nil {
			r, verdict, err = repeatedReplay(ctx, tx, n, err)
			return err
		}
		var one int
		if err := tx.QueryRowContext(ctx, `SELECT 1 FROM connectors WHERE project_id = $1 AND id = $2`, key.ProjectID, n.Connector.ID).Scan(&one); err != nil {
			return sqldb.MapNoRows(err)
		}
		made, err := tx.Exec(ctx, `INSERT INTO replays (project_id, id, connector_id, status, statuses, trigger_type, since, until, per_minute,
				matched, more, position, replayed, refused, reason, detail, fingerprint, due_at, created_at)
			VALUES ($1, $2, $3, 'running', $4, $5, $6, CASE WHEN CAST($7 AS bigint) < now_us() THEN CAST($7 AS bigint) ELSE now_us() END, $8, $9, $10, id_at($6), 0, '{}', '', '', $11, now_us(), now_us())
			ON CONFLICT DO NOTHING`, key.ProjectID, key.ID, n.Connector.ID, statuses, string(n.Filter.Trigger), sqldb.Instant(n.Filter.Since),
			sqldb.Instant(n.Filter.Until), n.PerMinute, match.Matched, match.More, append([]byte{}, n.Fingerprint...))
		if err != nil {
			return err
		}
		r, verdict, err = startedReplay(ctx, tx, key, n.Fingerprint)
		if err != nil || made == 0 {
			return err
		}
		verdict = store.Accepted
		return forgetReplays(ctx, tx, n.Connector)
	})
	return r, verdict, sqldb.Wrap(err, "creating a replay of connector %s", n.Connector)
}

// checkReplayLimits returns store.ErrReplayRunning or store.ErrTooManyReplays if a replay cannot start.
func checkReplayLimits(ctx context.Context, q sqldb.Queryer, n store.NewReplay) error {
	running, err := sqldb.Collect(ctx, q, sqldb.ScanUUID, `SELECT connector_id FROM replays WHERE project_id = $1 AND status = 'running'`, n.Connector.ProjectID)
	switch {
	case err != nil:
		return err
	case slices.Contains(running, n.Connector.ID):
		return store.ErrReplayRunning
	case len(running) >= store.MaxRunningReplays:
		return store.ErrTooManyReplays
	}
	return nil
}

// repeatedReplay returns the replay of the same request, if the start was rejected because that request has
// started it meanwhile.
func repeatedReplay(ctx context.Context, q sqldb.Queryer, n store.NewReplay, refused error) (store.Replay, store.Verdict, error) {
	r, verdict, err := startedReplay(ctx, q, store.Key{ProjectID: n.Connector.ProjectID, ID: n.ID}, n.Fingerprint)
	if errors.Is(err, store.ErrNotFound) {
		err = refused
	}
	return r, verdict, err
}

// startedReplay returns the replay with an ID: Repeated, or KeyReused if another request has
// started it.
func startedReplay(ctx context.Context, q sqldb.Queryer, key store.Key, fingerprint []byte) (r store.Replay, v store.Verdict, err error) {
	var first []byte
	err = q.QueryRowContext(ctx, `SELECT `+replayColumns+`, fingerprint FROM replays WHERE project_id = $1 AND id = $2`, key.ProjectID, key.ID).
		Scan(append(replayFields(&r), &first)...)
	if err == nil && !bytes.Equal(first, fingerprint) {
		return store.Replay{}, store.KeyReused, nil
	}
	return r, store.Repeated, sqldb.MapNoRows(err)
}

// forgetReplays deletes the oldest replays of a connector that has too many.
func forgetReplays(ctx context.Context, tx *sqldb.Tx, connector store.Key) error {
	_, err := tx.Exec(ctx, `DELETE FROM replays WHERE project_id = $1 AND connector_id = $2 AND ended_at IS NOT NULL AND created_at <
		(SELECT MIN(n.created_at) FROM (SELECT k.created_at FROM replays k WHERE k.project_id = $1 AND k.connector_id = $2
			ORDER BY k.created_at DESC, k.id DESC LIMIT $3) AS n)`, connector.ProjectID, connector.ID, store.MaxReplays)
	return sqldb.Wrap(err, "deleting old replays")
}

// Replay implements store.ReplayJobs.
func (s *Store) Replay(ctx context.Context, key store.Key) (store.Replay, error) {
	r, err := scanReplay(s.db.Reader().QueryRowContext(ctx, `SELECT `+replayColumns+` FROM replays WHERE project_id = $1 AND id = $2`,
		key.ProjectID, key.ID))
	return r, sqldb.Wrap(sqldb.MapNoRows(err), "reading replay %s", key)
}

// ListReplays implements store.ReplayJobs.
func (s *Store) ListReplays(ctx context.Context, connector store.Key) ([]store.Replay, error) {
	replays, err := sqldb.Collect(ctx, s.db.Reader(), scanReplay, `SELECT `+replayColumns+` FROM replays
		WHERE project_id = $1 AND connector_id = $2 ORDER BY created_at DESC, id DESC LIMIT $3`, connector.ProjectID, connector.ID, store.MaxReplays)
	return replays, sqldb.Wrap(err, "listing the replays of connector %s", connector)
}

// CancelReplay implements store.ReplayJobs.
func (s *Store) CancelReplay(ctx context.Context, key store.Key) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		n, err := tx.Exec(ctx, `UPDATE replays SET status = 'cancelled', reason = '', detail = '', ended_at = now_us()
			WHERE project_id = $1 AND id = $2 AND status = 'running'`, key.ProjectID, key.ID)
		if err != nil || n == 1 {
			return err
		}
		var one int
		err = tx.QueryRowContext(ctx, `SELECT 1 FROM replays WHERE project_id = $1 AND id = $2`, key.ProjectID, key.ID).Scan(&one)
		return cmp.Or(sqldb.MapNoRows(err), store.ErrConflict)
	})
	return sqldb.Wrap(err, "cancelling replay %s", key)
}

// NextReplay implements store.ReplayJobs.
func (s *Store) NextReplay(ctx context.Context) (now time.Time, next *time.Time, err error) {
	err = s.db.Reader().QueryRowContext(ctx, `SELECT now_us(), (SELECT MIN(r.due_at) FROM replays r WHERE r.status = 'running')`).
		Scan(sqldb.ScanTime(&now), sqldb.ScanNullTime(&next))
	return now, next, sqldb.Wrap(err, "reading the next replay")
}

// TakeReplays implements store.ReplayJobs.
func (s *Store) TakeReplays(ctx context.Context, limit int, lease time.Duration) (taken []store.Replay, err error) {
	err = s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) (err error) {
		now, err := sqldb.ReadNow(ctx, tx)
		if err != nil {
			return err
		}
		taken, err = sqldb.Collect(ctx, tx, scanReplay, `UPDATE replays SET due_at = $2 WHERE (project_id, id) IN
			(SELECT project_id, id FROM replays WHERE status = 'running' AND due_at <= $3 ORDER BY due_at LIMIT $1 `+s.db.SkipLocked+`)
			RETURNING `+replayColumns, limit, sqldb.Instant(now.Add(lease)), sqldb.Instant(now))
		for i := range taken {
			taken[i].TakenAt = now
		}
		return err
	})
	return taken, sqldb.Wrap(err, "taking due replays")
}

// ReplayOriginals implements store.ReplayJobs.
func (s *Store) ReplayOriginals(ctx context.Context, r store.Replay, limit int) (page store.ReplayPage, err error) {
	looked, err := s.replayedRuns(ctx, r)
	if err != nil {
		return page, sqldb.Wrap(err, "reading the originals of replay %s", r.Key())
	}
	page.Last = r.Position
	for _, run := range looked {
		page.Last = run.ID
		if !r.Filter.Matches(run) {
			continue
		}
		if page.Originals = append(page.Originals, run); len(page.Originals) == limit {
			return page, nil
		}
	}
	page.End = len(looked) < store.MaxReplayPage
	return page, nil
}

// replayedRuns returns the next connector runs of a replay, at most store.MaxReplayPage.
func (s *Store) replayedRuns(ctx context.Context, r store.Replay) (runs []store.ConnectorRun, err error) {
	of := timewindow.Period{From: store.TimeOf(r.Position).UnixMicro(), To: sqldb.Instant(r.Filter.Until)}
	windows, err := timewindow.OfHistory(ctx, s.db, s.db.Lists(), "ended_connector_runs", r.ProjectID, of)
	for _, window := range windows {
		if err != nil || len(runs) == store.MaxReplayPage {
			break
		}
		l := sqldb.Args{Values: []any{r.ProjectID, r.ConnectorID, r.Position, store.MaxReplayPage - len(runs)}}
		var some []store.ConnectorRun
		some, err = sqldb.Collect(ctx, s.db.Lists(), runrow.ScanConnectorRun, `SELECT `+runrow.EndedConnectorRunColumns+` FROM ended_connector_runs c
			WHERE c.project_id = $1 AND c.connector_id = $2 AND c.id > $3`+timewindow.DaysCondition("c.id", window, &l)+sqldb.SinceCondition("c.id", "$1")+` ORDER BY c.id LIMIT $4`, l.Values...)
		runs = append(runs, some...)
	}
	return runs, err
}

// MoveReplay implements store.ReplayJobs.
func (s *Store) MoveReplay(ctx context.Context, step store.ReplayStep) error {
	err := s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error { return Move(ctx, tx, step) })
	return sqldb.Wrap(err, "advancing replay %s", step.To.Key())
}

// Move advances a replay in a transaction, unless another process has.
func Move(ctx context.Context, tx *sqldb.Tx, step store.ReplayStep) error {
	to := step.To
	refused, err := sqldb.MarshalText(to.Refused)
	if err != nil {
		return err
	}
	if to.Refused == nil {
		refused = `{}`
	}
	var due *int64
	if !step.Due.IsZero() {
		at := sqldb.Instant(step.Due)
		due = &at
	}
	n, err := tx.Exec(ctx, `UPDATE replays SET status = $4, position = $5, replayed = $6, refused = $7, reason = $8, detail = $9,
			due_at = COALESCE($10, due_at), tries = $11, ended_at = CASE WHEN $4 = 'running' THEN NULL ELSE now_us() END
		WHERE project_id = $1 AND id = $2 AND status = 'running' AND position = $3`,
		to.ProjectID, to.ID, step.From, string(to.Status), to.Position, to.Replayed, refused, sqldb.Text(to.Reason), store.Cut(sqldb.Text(to.Detail), store.MaxReplayDetail), due, to.Tries)
	if err == nil && n == 0 {
		err = store.ErrReplayMoved
	}
	return err
}

// TakeSteps advances the replays of accepted events, in the accepting transaction. If it cannot,
// all is rolled back.
func TakeSteps(ctx context.Context, tx *sqldb.Tx, events []store.Event) error {
	for _, e := range events {
		if e.Step == nil {
			continue
		}
		if err := Move(ctx, tx, *e.Step); err != nil {
			return fmt.Errorf("replaying connector run %s: %w", maybeID(e.ReplayOf), err)
		}
	}
	return nil
}

func maybeID(id *uuid.UUID) uuid.UUID {
	if id == nil {
		return uuid.Nil
	}
	return *id
}
