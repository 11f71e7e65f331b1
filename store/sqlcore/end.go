// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

// RunOverhead is how many bytes a run counts for beside its contents.
const RunOverhead = 512

// What an idempotency key counts as stored beside its own length, in bytes: its row, and each ID of a run in it.
const (
	KeyOverhead = 256
	KeyRunBytes = 40
)

// KeySize returns how many bytes the idempotency key of an event counts as stored. They count with the input of the
// event, and as long as the input, although the row of the key is deleted earlier.
func KeySize(e store.Event) int64 {
	if e.Idempotency == nil {
		return 0
	}
	return KeyOverhead + int64(len(e.Idempotency.Key)) + KeyRunBytes*int64(len(e.Runs))
}

// Ending is how an open run ends.
type Ending struct {
	Run store.Key
	// Token, unless nil, is of the claim that must be current, Only, unless empty, the
	// status that the run must have; without either it ends whoever works on it.
	Token *int64
	Only  store.RunStatus
	// TestName is what the runner says; "" leaves what is known.
	TestName string
	Status   store.RunStatus
	Code     store.RunErrorCode
	// Error and Output are storable, see Text.
	Error, Output string
	Usage         store.TokenUsage
	// Journal continues the run's journal, or the run does not end.
	Journal []store.JournalEntry
	// Large are the blobs of what is too large for a row of Output and Journal.
	Large Large
}

// EndedRun is a run that has ended.
type EndedRun struct {
	Run, Environment store.Key
	// ConnectorRun is set of the last run of one, which has ended with it.
	ConnectorRun *uuid.UUID
	Status       store.RunStatus
	// Keyed says that it had a concurrency key, or waited for one.
	Keyed bool
	// Posted says that somebody may want to hear of it: the outbox has it for the
	// consumer 'deliveries'.
	Posted bool
}

// OutcomeOf is SQL for the status with which a connector run ends, of two expressions that count
// those of its runs that have failed and completed: store.ConnectorRunOutcome says the same.
func OutcomeOf(failed, completed string) string {
	return `CASE WHEN ` + failed + ` > 0 THEN 'failed' WHEN ` + completed + ` > 0 THEN 'completed' ELSE 'cancelled' END`
}

// end is where runs end. It moves them to history, closes the connector runs of
// which they were the last, posts to the outbox what is to be done for them, and hands
// their concurrency keys over, which takes more than one statement. It returns those
// that have ended; the others are not open, not as the Ending says, or have a key in a
// transaction of a single statement.
func (c *Core) end(ctx context.Context, tx *Tx, endings []Ending) ([]EndedRun, error) {
	if len(endings) == 0 {
		return nil, nil
	}
	ended, err := c.engine.End(ctx, tx, endings, !tx.single)
	if err == nil {
		err = c.keep(ctx, tx, blobsOf(endings, ended))
	}
	if err != nil {
		return nil, wrap(err, "ending runs")
	}
	tx.ended(ended, endings)
	return ended, c.handOver(ctx, tx, ended)
}

// blobsOf are the blobs that endings name, of runs that have ended.
func blobsOf(endings []Ending, ended []EndedRun) (blobs []store.Key) {
	for _, e := range endings {
		if len(e.Large) > 0 && slices.ContainsFunc(ended, func(run EndedRun) bool { return run.Run == e.Run }) {
			blobs = append(blobs, e.blobs()...)
		}
	}
	return blobs
}

// ended hints at connector runs that have ended, and at the places that are free.
func (t *Tx) ended(runs []EndedRun, endings []Ending) {
	for _, run := range runs {
		t.Hint(store.TopicFreed, run.Environment)
		if run.Posted {
			t.Hint(store.TopicDelivery, run.Environment)
		}
		if run.ConnectorRun != nil {
			done := store.Key{ProjectID: run.Run.ProjectID, ID: *run.ConnectorRun}
			t.hints = append(t.hints, store.Hint{Topic: store.TopicDone, Key: done, End: endOf(run.Run, endings)})
		}
	}
}

// endOf is what a hint says of the end of a run; nil of a large one.
func endOf(run store.Key, endings []Ending) *store.RunEnd {
	i := slices.IndexFunc(endings, func(e Ending) bool { return e.Run == run })
	if e := endings[i]; len(e.Error)+len(e.Output) <= store.MaxHintedEnd {
		return &store.RunEnd{Run: run, Status: e.Status, ErrorCode: e.Code, Error: e.Error, Output: e.Output}
	}
	return nil
}

// Complete implements store.Dispatch. What a statement for all cannot end is looked
// at one by one: it is a repetition, another's by now, its journal does not simply
// continue, or its data is at fault, which then fails itself alone.
func (c *Core) Complete(ctx context.Context, completions []store.Completion) ([]error, error) {
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
	ended, err := c.endTogether(ctx, endings)
	if err != nil {
		return nil, wrap(err, "completing %d runs", len(completions))
	}
	for i, completion := range completions {
		if at, together := common[completion.Run]; answers[i] == nil && (!together || at != i || ended[completion.Run] != hasEnded) {
			answers[i] = wrap(c.completeAlone(ctx, completion), "completing run %s", completion.Run)
		}
	}
	return answers, nil
}

// together is what became of a run among others that were to end.
type together int

// A run is open, or its data was at fault, or it has ended.
const (
	isOpen together = iota
	atFault
	hasEnded
)

// endTogether ends runs and says what became of them: in one transaction those without a
// concurrency key and without blobs, in another the rest, which has none where all went
// well.
func (c *Core) endTogether(ctx context.Context, endings []Ending) (map[store.Key]together, error) {
	fate := make(map[store.Key]together, len(endings))
	// Runs are locked in the order of their ids, as by heartbeats: two transactions do not
	// wait for each other.
	slices.SortFunc(endings, func(a, b Ending) int { return CompareKeys(a.Run, b.Run) })
	var large []Ending
	if slices.ContainsFunc(endings, Ending.isLarge) {
		large = slices.DeleteFunc(slices.Clone(endings), func(e Ending) bool { return !e.isLarge() })
		endings = slices.DeleteFunc(endings, Ending.isLarge)
	}
	if err := c.endSplit(ctx, c.single, endings, fate); err != nil {
		return nil, err
	}
	rest := slices.DeleteFunc(endings, func(e Ending) bool { return fate[e.Run] != isOpen })
	large = c.putAll(ctx, large)
	err := c.endSplit(ctx, c.Write, append(rest, large...), fate)
	var loose []store.Key
	for _, e := range large {
		if fate[e.Run] != hasEnded {
			loose = append(loose, e.blobs()...)
		}
	}
	c.dropLoose(ctx, loose)
	return fate, err
}

// endSplit ends runs in one transaction; where the data of one is at fault it halves them
// until that one is alone.
func (c *Core) endSplit(ctx context.Context, transaction func(context.Context, func(context.Context, *Tx) error) error,
	endings []Ending, fate map[store.Key]together,
) error {
	if len(endings) == 0 {
		return nil
	}
	var ended []EndedRun
	err := transaction(ctx, func(ctx context.Context, tx *Tx) (err error) {
		ended, err = c.end(ctx, tx, endings)
		return err
	})
	switch {
	case err == nil:
		for _, run := range ended {
			fate[run.Run] = hasEnded
		}
		return nil
	case !c.badData(err):
		return err
	case len(endings) == 1:
		fate[endings[0].Run] = atFault
		return nil
	}
	half := len(endings) / 2
	if err := c.endSplit(ctx, transaction, endings[:half], fate); err != nil {
		return err
	}
	return c.endSplit(ctx, transaction, endings[half:], fate)
}

func endingOf(completion store.Completion) Ending {
	completion = Bounded(completion)
	return Ending{
		Run: completion.Run, Token: &completion.Token, TestName: completion.TestName, Status: completion.Status, Code: completion.ErrorCode,
		Error: Text(completion.Error), Output: Text(completion.Output), Usage: completion.Usage, Journal: completion.Journal,
	}
}

// completeAlone ends a run whose journal the completion repeats in part, or says why not.
func (c *Core) completeAlone(ctx context.Context, completion store.Completion) error {
	whole := endingOf(completion)
	large, err := c.putLarge(ctx, completion.Lease, whole.Output, whole.Journal)
	if err != nil {
		return err
	}
	return c.writeWith(ctx, large.of(whole.Run.ProjectID, true, whole.Journal), func(ctx context.Context, tx *Tx) error {
		held, err := lockClaim(ctx, tx, completion.Lease)
		if errors.Is(err, store.ErrNotFound) {
			return c.repeatedEnd(ctx, tx, completion.Lease)
		}
		if err != nil {
			return err
		}
		ending := whole
		ending.Large = large
		ending.Journal, err = c.continued(ctx, tx, completion.Lease, held.length, ending.Journal)
		switch {
		case err != nil:
			return err
		case held.size+SizeOf(ending.Journal) > store.MaxJournal:
			ending = Ending{
				Run: ending.Run, Token: ending.Token, TestName: ending.TestName, Status: store.RunFailed, Code: store.RunErrorJournalTooLarge,
				Error: fmt.Sprintf("the journal has more than %d bytes", store.MaxJournal), Usage: ending.Usage,
			}
		case !large.has(ending.Output, ending.Journal): // its journal did not continue a moment ago
			return store.ErrConflict
		}
		ended, err := c.end(ctx, tx, []Ending{ending})
		if err == nil && len(ended) == 0 {
			err = store.ErrConflict
		}
		return err
	})
}

// repeatedEnd judges a completion of a run that does not run under its claim: nil
// when that claim has completed it before.
func (c *Core) repeatedEnd(ctx context.Context, q Queryer, l store.Lease) error {
	var token int64
	err := found(q.QueryRowContext(ctx, `SELECT token FROM open_runs WHERE project_id = $1 AND id = $2`, l.Run.ProjectID, l.Run.ID).Scan(&token))
	if !errors.Is(err, store.ErrNotFound) {
		return errors.Join(err, store.ErrFenced)
	}
	// What the platform ended has the token 0.
	err = c.inHistory(ctx, q, l.Run, `SELECT CASE WHEN error_code = '`+string(store.RunErrorToolInterrupted)+`' THEN 0 ELSE token END
		FROM `+endedRuns+` WHERE project_id = $1 AND id = $2`, &token)
	if err == nil && (token == 0 || token != l.Token) {
		err = store.ErrFenced
	}
	return err
}
