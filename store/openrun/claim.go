// SPDX-License-Identifier: Apache-2.0

package openrun

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/runerror"
	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/runrow"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

const (
	// RunnerSeenEvery is how often the presence of a claiming runner is recorded. A change of its
	// bundles is recorded at once.
	RunnerSeenEvery = 20 * time.Second
	// claimTries is how often a claim is decided again after another claim of the environment came
	// in between.
	claimTries = 20
)

// Waiting is a queued run as a claim reads it.
type Waiting struct {
	store.Candidate
	// Deployment is the deployment that executes the run. Digest is its bundle.
	Deployment uuid.UUID
	Digest     string
	// Known means that the deployment has the agent.
	Known bool
	// Concurrency is the agent's setting if the run's key still has to be evaluated.
	Concurrency store.Concurrency
	Input       uuid.UUID
}

// Look is the data on which a claim is decided.
type Look struct {
	// Live is the environment's live deployment, nil without one.
	Live *uuid.UUID
	// Version is the version of the pool. Start asserts it.
	Version int64
	Pool    store.Pool
	// Seen means that the record of the runner is current.
	Seen bool
	// Leased are the claims of the runner.
	Leased []store.Lease
	// Waiting are the runs at the heads of the queues; none if the limit is 0.
	Waiting []Waiting
}

// Start is the decision of a claim.
type Start struct {
	Version int64
	Pool    store.Pool
	Runs    []Waiting
	// Salts are the random parts of the tokens.
	Salts []int64
}

// Order returns the position of a run in the decision.
func (s Start) Order(id uuid.UUID) int {
	return slices.IndexFunc(s.Runs, func(w Waiting) bool { return w.ID == id })
}

// Claim implements store.Dispatch. It looks, decides and starts the chosen runs, unless another
// claim of the environment came in between. So limits hold exactly, and no claim holds a lock while
// it decides. Start statements of several environments, in all projects, share a transaction; the
// package comment documents their lock timeouts. A claim that finds nothing writes nothing, except
// the runner's record when that is due.
func (s *Store) Claim(ctx context.Context, claim store.Claim) (store.ClaimResult, error) {
	claim = claim.Bounded()
	var result store.ClaimResult
	for try := range claimTries {
		if err := s.db.CheckUsable(); err != nil {
			return result, err
		}
		look, err := s.engine.Look(ctx, claim)
		if err != nil {
			return result, sqldb.Wrap(err, "reading the runs of environment %s", claim.Environment)
		}
		if try == 0 {
			if result, err = s.reportRunner(ctx, claim, look); err != nil {
				return result, sqldb.Wrap(err, "recording runner %q", claim.RunnerID)
			}
		}
		runs, done, err := s.startPicked(ctx, claim, look)
		if err != nil {
			return result, sqldb.Wrap(err, "claiming runs of environment %s", claim.Environment)
		}
		if done {
			result.Runs = append(result.Runs, runs...)
			result.More = result.More || len(look.Waiting) > len(runs) && len(runs) < claim.Limit
			return result, nil
		}
	}
	result.More = true // other claims came first each time
	return result, nil
}

// reportRunner records the runner. It returns the lost claims of the runner, and the leased runs that the
// runner does not name.
func (s *Store) reportRunner(ctx context.Context, claim store.Claim, look Look) (result store.ClaimResult, err error) {
	result.Lost = otherLeases(claim.Holding, look.Leased)
	if !look.Seen {
		if err := s.recordRunner(ctx, claim); err != nil {
			return result, err
		}
	}
	again := otherLeases(look.Leased, claim.Holding)
	if len(again) == 0 {
		return result, nil
	}
	if len(again) > store.MaxClaim {
		again, result.More = again[:store.MaxClaim], true
	}
	result.Runs, err = s.readUnnamedRuns(ctx, claim, again)
	return result, err
}

// recordRunner records a runner as present, unless there are too many: tenants choose the names.
func (s *Store) recordRunner(ctx context.Context, claim store.Claim) error {
	_, err := s.db.Exec(ctx, `INSERT INTO runners (project_id, environment_id, id, seen_at, places, digests)
		SELECT $1, $2, $3, now_us(), $4, $5 WHERE $6 > (SELECT count(*) FROM (
			SELECT 1 FROM runners w WHERE w.project_id = $1 AND w.environment_id = $2 AND w.id <> $3 LIMIT $6) known)
		ON CONFLICT (project_id, environment_id, id)
		DO UPDATE SET seen_at = excluded.seen_at, places = excluded.places, digests = excluded.digests`,
		claim.Environment.ProjectID, claim.Environment.ID, sqldb.Text(claim.RunnerID), claim.Slots, Digests(claim), store.MaxRunners)
	return err
}

// Attend implements store.Dispatch.
func (s *Store) Attend(ctx context.Context, runners []store.RunnerKey) (queued []store.Key, err error) {
	if len(runners) == 0 {
		return nil, nil
	}
	seen := map[store.Key]bool{}
	var environments []store.Key
	for _, r := range runners {
		if !seen[r.Environment] {
			seen[r.Environment] = true
			environments = append(environments, r.Environment)
		}
	}
	err = s.db.WriteSingle(ctx, func(ctx context.Context, tx *sqldb.Tx) error { return s.engine.Attend(ctx, tx, runners) })
	if err != nil {
		return nil, sqldb.Wrap(err, "recording waiting runners")
	}
	var l sqldb.Args
	queued, err = sqldb.Collect(ctx, s.db.Reader(), sqldb.ScanKey, `SELECT e.project_id, e.id FROM environments e WHERE `+
		s.db.KeyCondition(&l, "e.id", environments)+` AND EXISTS (SELECT 1 FROM open_runs r
			WHERE r.project_id = e.project_id AND r.environment_id = e.id AND r.status = 'queued' AND r.blocked = FALSE)`, l.Values...)
	return queued, sqldb.Wrap(err, "reading queued runs")
}

// Digests returns the bundles of a claim in their stored form.
func Digests(claim store.Claim) string {
	text, _ := json.Marshal(claim.Digests) // a list of strings always marshals
	return string(text)
}

// startPicked starts the runs that Pick chooses, and fails runs without an agent. done is false if the claim
// has to be decided again, for example after the evaluation of keys.
func (s *Store) startPicked(ctx context.Context, claim store.Claim, look Look) (runs []store.Claimed, done bool, err error) {
	known, missing, keyless := splitWaiting(claim, look)
	if len(keyless) > 0 {
		return nil, false, s.evaluateKeys(ctx, claim.Environment, keyless)
	}
	if len(missing) > 0 {
		if err := s.failMissing(ctx, claim.Environment, missing); err != nil {
			return nil, false, err
		}
	}
	picked, pool := store.Pick(look.Pool, candidatesOf(known), claim.Limit)
	if len(picked) == 0 {
		return nil, len(missing) == 0, nil // there may be more runs behind the missing ones
	}
	start := Start{Version: look.Version, Pool: pool, Salts: NewSalts(len(picked))}
	for _, p := range picked {
		start.Runs = append(start.Runs, known[slices.IndexFunc(known, func(w Waiting) bool { return w.ID == p.ID })])
	}
	runs, current, err := s.engine.Start(ctx, claim, start)
	var hints []store.Hint
	for i := range runs {
		hints = append(hints, store.Hint{Topic: store.TopicRun, Key: runs[i].Run.Key()})
	}
	if len(hints) > 0 {
		s.db.Publish(hints)
	}
	return runs, current, err
}

// splitWaiting splits the waiting runs: runs that this runner may get, runs whose agent the deployment
// lacks, and runs whose key is not evaluated yet.
func splitWaiting(claim store.Claim, look Look) (known, missing, keyless []Waiting) {
	for _, w := range look.Waiting {
		switch {
		case !w.Known:
			missing = append(missing, w)
		case w.Concurrency.Expression != "":
			keyless = append(keyless, w)
		case !slices.Contains(claim.Refused, w.Digest):
			known = append(known, w)
		}
	}
	return known, missing, keyless
}

func candidatesOf(waiting []Waiting) []store.Candidate {
	out := make([]store.Candidate, len(waiting))
	for i, w := range waiting {
		out[i] = w.Candidate
	}
	return out
}

// NewSalts returns random parts of tokens: 31 bits, so that attempts have room above them.
func NewSalts(n int) []int64 {
	raw := make([]byte, 4*n)
	_, _ = rand.Read(raw) // never fails
	out := make([]int64, n)
	for i := range out {
		out[i] = int64(binary.BigEndian.Uint32(raw[4*i:]) >> 1)
	}
	return out
}

// TokenBits is the position of the attempt in a token, above its random part.
const TokenBits = 31

// failMissing fails runs whose agent is not in the live deployment.
func (s *Store) failMissing(ctx context.Context, environment store.Key, missing []Waiting) error {
	return s.db.Write(ctx, func(ctx context.Context, tx *sqldb.Tx) error {
		endings := make([]Ending, len(missing))
		for i, w := range missing {
			endings[i] = Ending{
				Run: store.Key{ProjectID: environment.ProjectID, ID: w.ID}, Only: store.RunQueued,
				Status: store.RunFailed, Code: runerror.AgentNotFound,
				Error: fmt.Sprintf("the live deployment has no agent named %q", w.Agent),
			}
		}
		_, err := s.EndRuns(ctx, tx, endings)
		return err
	})
}

// StartedColumns are the columns for ScanStarted, of a run r of open_runs and its deployment d.
const StartedColumns = runrow.OpenColumns + `, r.token, r.lease_until, now_us(), r.journal_length, r.journal_size, r.input_id, d.bundle_digest`

// ScanStarted reads a claimed run without its input, and returns the ID of the input.
func ScanStarted(row sqldb.Scanner) (claimed store.Claimed, input uuid.UUID, err error) {
	var digest *string
	err = row.Scan(append(runrow.Fields(&claimed.Run), &claimed.Token, sqldb.ScanTime(&claimed.LeaseUntil), sqldb.ScanTime(&claimed.Now),
		&claimed.JournalLength, &claimed.JournalSize, &input, &digest)...)
	if digest != nil {
		claimed.BundleDigest = *digest
	}
	return claimed, input, err
}

// readUnnamedRuns reads runs that a runner leases and does not name. The condition uses their leases,
// because a condition on the status might read all running runs.
func (s *Store) readUnnamedRuns(ctx context.Context, claim store.Claim, leases []store.Lease) ([]store.Claimed, error) {
	var l sqldb.Args
	keys := make([]store.Key, len(leases))
	for i, lease := range leases {
		keys[i] = store.Key{ProjectID: claim.Environment.ProjectID, ID: lease.Run.ID}
	}
	var inputIDs []uuid.UUID
	runs, err := sqldb.Collect(ctx, s.db.Reader(), func(row sqldb.Scanner) (store.Claimed, error) {
		claimed, input, err := ScanStarted(row)
		inputIDs = append(inputIDs, input)
		return claimed, err
	}, `SELECT `+StartedColumns+` FROM open_runs r LEFT JOIN deployments d ON d.project_id = r.project_id AND d.id = r.deployment_id
		WHERE r.lease_until IS NOT NULL AND `+s.db.KeyCondition(&l, "r.id", keys), l.Values...)
	if err != nil {
		return nil, err
	}
	runs, inputIDs = dropChangedLeases(leases, runs, inputIDs)
	return runs, runrow.AddInputs(ctx, s.db, s.db.Reader(), claim.Environment.ProjectID, runs, inputIDs)
}

// dropChangedLeases drops runs, with their inputs, if their leases have changed since the read. A runner
// must not get the token of another runner.
func dropChangedLeases(leases []store.Lease, runs []store.Claimed, inputs []uuid.UUID) (left []store.Claimed, leftInputs []uuid.UUID) {
	for i, run := range runs {
		if slices.Contains(leases, store.Lease{Run: run.Run.Key(), Token: run.Token}) {
			left, leftInputs = append(left, run), append(leftInputs, inputs[i])
		}
	}
	return left, leftInputs
}

// EncodeLastAgents returns the stored form of the last agents of a pool: JSON of the agents by class.
func EncodeLastAgents(agents [store.Classes]string) string {
	text, _ := json.Marshal(agents) // strings always marshal
	return sqldb.Text(string(text))
}
