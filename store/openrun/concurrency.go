// SPDX-License-Identifier: Apache-2.0

package openrun

import (
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/concurrency"
	"github.com/agentplatform/agentplatform/store/runrow"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// maxEvaluatedKeys is the maximum number of keys that one claim evaluates, because it holds their inputs
// in memory.
const maxEvaluatedKeys = 64

// TakeSlots gives free slots to blocked runs, and cancels runs that do not wait for one.
func (s *Store) TakeSlots(ctx context.Context, tx *sqldb.Tx, contenders []concurrency.Contender) error {
	dropped, err := concurrency.TakeSlots(ctx, s.db, tx, contenders)
	if err != nil {
		return err
	}
	endings := make([]Ending, len(dropped))
	for i, run := range dropped {
		endings[i] = Ending{
			Run: run, Only: store.RunQueued, Status: store.RunCancelled, Code: runerror.ConcurrencyDropped,
			Error: "another open run of the agent has the concurrency key",
		}
	}
	_, err = s.EndRuns(ctx, tx, endings)
	return err
}

// evaluateKeys evaluates the keys of queued runs that were accepted without a live deployment, and
// gives them free slots.
func (s *Store) evaluateKeys(ctx context.Context, environment store.Key, runs []Waiting) error {
	if s.evaluate == nil {
		return errors.New("this process evaluates no concurrency keys")
	}
	runs = slices.SortedFunc(slices.Values(runs[:min(len(runs), maxEvaluatedKeys)]), func(a, b Waiting) int { return sqldb.CompareIDs(a.ID, b.ID) })
	ids := make([]uuid.UUID, len(runs))
	for i, w := range runs {
		ids[i] = w.Input
	}
	inputs, err := runrow.Inputs(ctx, s.db, s.db.Reader(), environment.ProjectID, ids)
	if err != nil {
		return sqldb.Wrap(err, "reading the inputs of runs without a key")
	}
	keys, problems := make([]store.ConcurrencyKey, len(runs)), make([]error, len(runs))
	for i, w := range runs {
		input := inputs[w.Input].Data
		keys[i], problems[i] = w.Concurrency.KeyOf(input, s.evaluate(input))
	}
	return s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		var (
			contenders []concurrency.Contender
			failed     []Ending
		)
		for i, w := range runs {
			run := store.Key{ProjectID: environment.ProjectID, ID: w.ID}
			if problems[i] != nil {
				failed = append(failed, Ending{
					Run: run, Only: store.RunQueued, Status: store.RunFailed, Code: runerror.KeyUnavailable,
					Error: store.Cut(sqldb.Text(problems[i].Error()), store.MaxError),
				})
				continue
			}
			key := sqldb.Text(keys[i].Text)
			n, err := tx.Exec(ctx, `UPDATE open_runs SET concurrency_key = $3, blocked = $4
				WHERE project_id = $1 AND id = $2 AND concurrency_key IS NULL AND status || '' = 'queued'`, run.ProjectID, run.ID, key, key != "")
			if err != nil {
				return sqldb.Wrap(err, "recording the concurrency key of run %s", run)
			}
			if n == 1 && key != "" {
				contenders = append(contenders, concurrency.Contender{Environment: environment.ID, Agent: w.Agent, Key: key, Run: run, Drop: keys[i].Drop})
			}
		}
		if err := s.TakeSlots(ctx, tx, contenders); err != nil {
			return err
		}
		_, err := s.EndRuns(ctx, tx, failed)
		return err
	})
}
