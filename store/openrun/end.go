// SPDX-License-Identifier: Apache-2.0

package openrun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/concurrency"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// RunOverhead is the number of bytes that a run counts in addition to its contents.
const RunOverhead = 512

// Ending is the end of an open run.
type Ending struct {
	Run store.Key
	// Token, unless nil, is the claim that must be current. Only, unless empty, is the status that
	// the run must have. Without either, the run ends whichever runner has it.
	Token *int64
	Only  store.RunStatus
	// TestName is the variant that the runner reported; "" keeps the recorded one.
	TestName string
	Status   store.RunStatus
	Code     runerror.Code
	// Error and Output are storable, see Text.
	Error, Output string
	FinishReason  string
	Usage         store.TokenUsage
	// Context is storable JSON, or nil.
	Context     json.RawMessage
	Unpublished bool
	// Journal continues the run's journal. Otherwise the run does not end.
	Journal []store.JournalEntry
	// Large are the blobs of parts of Output and Journal that are too large for a row.
	Large Large
}

// TextBytes returns the stored bytes of the texts.
func (e Ending) TextBytes() int64 { return int64(len(e.Error) + len(e.Output) + len(e.Context)) }

// EndedRun is a run that has ended.
type EndedRun struct {
	Run, Environment store.Key
	// ConnectorRun is set if the run was the last one of its connector run, which has ended with
	// it.
	ConnectorRun *uuid.UUID
	Status       store.RunStatus
	// Keyed means that the run had a concurrency key, or waited for one.
	Keyed bool
	// Posted means that deliveries may follow: the outbox has a row for the consumer 'deliveries'.
	Posted bool
}

// OutcomeOf returns SQL for the final status of a connector run, from two expressions that count
// its failed and completed runs. It matches store.ConnectorRunOutcome.
func OutcomeOf(failed, completed string) string {
	return `CASE WHEN ` + failed + ` > 0 THEN 'failed' WHEN ` + completed + ` > 0 THEN 'completed' ELSE 'cancelled' END`
}

// EndRuns is the only function that ends runs. It moves runs to history, closes connector runs without open
// runs, and adds outbox rows. It also hands over concurrency slots, which takes more than one statement. It
// returns the ended runs. A run does not end in three cases: it is not open, it does not match the Ending, or
// it has a key and the transaction is a single statement.
func (s *Store) EndRuns(ctx context.Context, tx *sqldb.Tx, endings []Ending) ([]EndedRun, error) {
	if len(endings) == 0 {
		return nil, nil
	}
	ended, err := s.engine.End(ctx, tx, endings, !tx.Single)
	if err == nil {
		err = s.blobs.MarkBlobs(ctx, tx, blobsOf(endings, ended))
	}
	if err != nil {
		return nil, sqldb.Wrap(err, "ending runs")
	}
	hintEnded(tx, ended, endings)
	var keyed []store.Key
	for _, run := range ended {
		if run.Keyed {
			keyed = append(keyed, run.Run)
		}
	}
	return ended, concurrency.HandOver(ctx, s.db, tx, keyed)
}

// blobsOf returns the blobs that endings name, for runs that have ended.
func blobsOf(endings []Ending, ended []EndedRun) (blobs []store.Key) {
	for _, e := range endings {
		if len(e.Large) > 0 && slices.ContainsFunc(ended, func(run EndedRun) bool { return run.Run == e.Run }) {
			blobs = append(blobs, e.blobKeys()...)
		}
	}
	return blobs
}

// hintEnded sends hints for ended connector runs and free slots.
func hintEnded(tx *sqldb.Tx, runs []EndedRun, endings []Ending) {
	for _, run := range runs {
		tx.Hint(store.TopicFreed, run.Environment)
		tx.Hint(store.TopicRun, run.Run)
		if run.Posted {
			tx.Hint(store.TopicDelivery, run.Environment)
		}
		if run.ConnectorRun != nil {
			done := store.Key{ProjectID: run.Run.ProjectID, ID: *run.ConnectorRun}
			tx.Hints = append(tx.Hints, store.Hint{Topic: store.TopicDone, Key: done, End: hintedEnd(run.Run, endings)})
		}
	}
}

// hintedEnd returns the end of a run for a hint; nil if it is large.
func hintedEnd(run store.Key, endings []Ending) *store.RunEnd {
	i := slices.IndexFunc(endings, func(e Ending) bool { return e.Run == run })
	if e := endings[i]; len(e.Error)+len(e.Output) <= store.MaxHintedEnd {
		return &store.RunEnd{Run: run, Status: e.Status, ErrorCode: e.Code, Error: e.Error, Output: e.Output, FinishReason: e.FinishReason}
	}
	return nil
}

// Complete implements store.Dispatch. If the common statement cannot end a completion, the completion is
// processed alone. Such a completion is repeated or no longer current, its journal does not continue
// exactly, or its data is invalid.
func (s *Store) Complete(ctx context.Context, completions []store.Completion) ([]error, error) {
	answers, common := make([]error, len(completions)), map[store.Key]int{}
	endings := make([]Ending, 0, len(completions))
	for i, completion := range completions {
		if !completion.Status.Terminal() {
			answers[i] = fmt.Errorf("completing run %s as %s: %w", completion.Run, completion.Status, store.ErrConflict)
			continue
		}
		ending := endingOf(completion)
		if _, twice := common[completion.Run]; !twice && inOrder(ending.Journal) {
			common[completion.Run] = i
			endings = append(endings, ending)
		}
	}
	ended, err := s.endTogether(ctx, endings)
	if err != nil {
		return nil, sqldb.Wrap(err, "completing %d runs", len(completions))
	}
	for i, completion := range completions {
		if at, together := common[completion.Run]; answers[i] == nil && (!together || at != i || ended[completion.Run] != resultEnded) {
			answers[i] = sqldb.Wrap(s.completeAlone(ctx, completion), "completing run %s", completion.Run)
		}
	}
	return answers, nil
}

// batchResult is the result of a run that was ended in a batch.
type batchResult int

// Results: the run is still open, its data was invalid, or it has ended.
const (
	resultOpen batchResult = iota
	resultBadData
	resultEnded
)

// endTogether ends runs and returns their results. One transaction ends the runs without concurrency
// keys and blobs, another one the rest, if there are any.
func (s *Store) endTogether(ctx context.Context, endings []Ending) (map[store.Key]batchResult, error) {
	fate := make(map[store.Key]batchResult, len(endings))
	// Runs are locked in ID order, as in heartbeats, which prevents deadlocks.
	slices.SortFunc(endings, func(a, b Ending) int { return sqldb.CompareKeys(a.Run, b.Run) })
	var large []Ending
	if slices.ContainsFunc(endings, Ending.isLarge) {
		large = slices.DeleteFunc(slices.Clone(endings), func(e Ending) bool { return !e.isLarge() })
		endings = slices.DeleteFunc(endings, Ending.isLarge)
	}
	if err := s.endSplit(ctx, s.db.WriteSingle, endings, fate); err != nil {
		return nil, err
	}
	rest := slices.DeleteFunc(endings, func(e Ending) bool { return fate[e.Run] != resultOpen })
	large = s.putLargeBlobs(ctx, large)
	err := s.endSplit(ctx, s.db.Write, append(rest, large...), fate)
	var loose []store.Key
	for _, e := range large {
		if fate[e.Run] != resultEnded {
			loose = append(loose, e.blobKeys()...)
		}
	}
	s.blobs.DropUnmarked(ctx, loose)
	return fate, err
}

// endSplit ends runs in one transaction. If the data of a run is invalid, it halves the batch until
// that run is alone.
func (s *Store) endSplit(ctx context.Context, transaction func(context.Context, func(context.Context, *sqldb.Tx) error) error,
	endings []Ending, fate map[store.Key]batchResult,
) error {
	if len(endings) == 0 {
		return nil
	}
	var ended []EndedRun
	err := transaction(ctx, func(ctx context.Context, tx *sqldb.Tx) (err error) {
		ended, err = s.EndRuns(ctx, tx, endings)
		return err
	})
	switch {
	case err == nil:
		for _, run := range ended {
			fate[run.Run] = resultEnded
		}
		return nil
	case !s.db.BadData(err):
		return err
	case len(endings) == 1:
		fate[endings[0].Run] = resultBadData
		return nil
	}
	half := len(endings) / 2
	if err := s.endSplit(ctx, transaction, endings[:half], fate); err != nil {
		return err
	}
	return s.endSplit(ctx, transaction, endings[half:], fate)
}

func endingOf(completion store.Completion) Ending {
	completion = bounded(completion)
	return Ending{
		Run: completion.Run, Token: &completion.Token, TestName: completion.TestName, Status: completion.Status, Code: completion.ErrorCode,
		Error: sqldb.Text(completion.Error), Output: sqldb.Text(completion.Output), FinishReason: completion.FinishReason, Usage: completion.Usage, Journal: completion.Journal,
		Context: completion.Context, Unpublished: completion.Unpublished,
	}
}

// completeAlone ends a run whose completion repeats part of its journal, or returns why not.
func (s *Store) completeAlone(ctx context.Context, completion store.Completion) error {
	whole := endingOf(completion)
	large, err := s.putLarge(ctx, completion.Lease, whole.Output, whole.Journal)
	if err != nil {
		return err
	}
	return s.blobs.WriteWith(ctx, large.blobsOf(whole.Run.ProjectID, true, whole.Journal), func(ctx context.Context, tx *sqldb.Tx) error {
		held, err := LockClaim(ctx, tx, completion.Lease)
		if errors.Is(err, store.ErrNotFound) {
			return s.repeatedEnd(ctx, tx, completion.Lease)
		}
		if err != nil {
			return err
		}
		ending := whole
		ending.Large = large
		ending.Journal, err = s.newEntries(ctx, tx, completion.Lease, held.Length, ending.Journal)
		switch {
		case err != nil:
			return err
		case held.Size+SizeOf(ending.Journal) > store.MaxJournal:
			ending = Ending{
				Run: ending.Run, Token: ending.Token, TestName: ending.TestName, Status: store.RunFailed, Code: runerror.JournalTooLarge,
				Error: fmt.Sprintf("the journal has more than %d bytes", store.MaxJournal), Usage: ending.Usage, FinishReason: ending.FinishReason,
			}
		case !large.hasBlobs(ending.Output, ending.Journal): // the journal did not continue when the blobs were written
			return store.ErrConflict
		}
		ended, err := s.EndRuns(ctx, tx, []Ending{ending})
		if err == nil && len(ended) == 0 {
			err = store.ErrConflict
		}
		return err
	})
}

// repeatedEnd checks a completion whose claim is not running: nil if that claim completed the run
// before.
func (s *Store) repeatedEnd(ctx context.Context, q sqldb.Queryer, l store.Lease) error {
	var token int64
	err := sqldb.MapNoRows(q.QueryRowContext(ctx, `SELECT token FROM open_runs WHERE project_id = $1 AND id = $2`, l.Run.ProjectID, l.Run.ID).Scan(&token))
	if !errors.Is(err, store.ErrNotFound) {
		return errors.Join(err, store.ErrFenced)
	}
	// Runs that the platform ended have the token 0.
	err = s.db.ReadHistory(ctx, q, l.Run, `SELECT CASE WHEN error_code = '`+string(runerror.ToolInterrupted)+`' THEN 0 ELSE token END
		FROM {ended_runs} WHERE project_id = $1 AND id = $2`, &token)
	if err == nil && (token == 0 || token != l.Token) {
		err = store.ErrFenced
	}
	return err
}
