// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
)

const (
	// RunnerSeenEvery is how often a runner that claims is recorded: what it holds
	// is recorded at once, that it is still there need not be exact.
	RunnerSeenEvery = 20 * time.Second
	// claimTries is how often a claim is decided anew when another one of the
	// environment came in between.
	claimTries = 20
	// MaxLines is how many lines a claim looks at: those of all agents that a deployment
	// can have, so that turns are everybody's.
	MaxLines = 2 * store.Classes * store.MaxAgents
	// maxHeads is how many queued runs a claim looks at; of each line at least one.
	maxHeads = 16384
)

// Waiting is a queued run as a claim looks at it.
type Waiting struct {
	store.Candidate
	// Deployment is the one that executes it, Digest its bundle.
	Deployment uuid.UUID
	Digest     string
	// Known: the deployment has the agent.
	Known bool
	// Concurrency is the agent's where the run's key is to be told by it, and is not yet.
	Concurrency store.Concurrency
	Input       uuid.UUID
}

// Look is what a claim is decided by.
type Look struct {
	// Live is the environment's live deployment, nil without one.
	Live *uuid.UUID
	// Version is that of the pool; Start asserts it.
	Version int64
	Pool    store.Pool
	// Seen says that the runner is recorded as it is.
	Seen bool
	// Leased are the claims of the runner.
	Leased []store.Lease
	// Waiting are the runs at the head of the queue; none when nothing is wanted.
	Waiting []Waiting
}

// Start is a decision on a claim.
type Start struct {
	Version int64
	Pool    store.Pool
	Runs    []Waiting
	// Salts are the random parts of the tokens.
	Salts []int64
}

// Order is the place of a run among those of the decision.
func (s Start) Order(id uuid.UUID) int {
	return slices.IndexFunc(s.Runs, func(w Waiting) bool { return w.ID == id })
}

// Claim implements store.Dispatch. It looks, decides and starts what it decided on,
// unless another claim of the environment came in between: so limits hold exactly,
// and nobody holds a lock while it decides. Claims of several environments, of all
// projects, that start runs at the same moment share a transaction; the package comment
// says how long they wait for the locks of others. A claim that finds nothing writes
// nothing, but for the runner's record when that is due.
func (c *Core) Claim(ctx context.Context, claim store.Claim) (store.ClaimResult, error) {
	claim = claim.Bounded()
	var result store.ClaimResult
	for try := range claimTries {
		look, err := c.engine.Look(ctx, claim)
		if err != nil {
			return result, wrap(err, "looking for runs of environment %s", claim.Environment)
		}
		if try == 0 {
			if result, err = c.report(ctx, claim, look); err != nil {
				return result, wrap(err, "recording runner %q", claim.RunnerID)
			}
		}
		runs, done, err := c.startPicked(ctx, claim, look)
		if err != nil {
			return result, wrap(err, "claiming runs of environment %s", claim.Environment)
		}
		if done {
			result.Runs = append(result.Runs, runs...)
			result.More = result.More || len(look.Waiting) > len(runs) && len(runs) < claim.Limit
			return result, nil
		}
	}
	result.More = true // others claim so fast that this one was always late
	return result, nil
}

// report records the runner, tells what it has lost, and hands it again what it does
// not know to have.
func (c *Core) report(ctx context.Context, claim store.Claim, look Look) (result store.ClaimResult, err error) {
	result.Lost = beyond(claim.Holding, look.Leased)
	if !look.Seen {
		if err := c.seen(ctx, claim); err != nil {
			return result, err
		}
	}
	again := beyond(look.Leased, claim.Holding)
	if len(again) == 0 {
		return result, nil
	}
	if len(again) > store.MaxClaim {
		again, result.More = again[:store.MaxClaim], true
	}
	result.Runs, err = c.handAgain(ctx, claim, again)
	return result, err
}

// seen records a runner that is there, unless too many are: names are the tenant's.
func (c *Core) seen(ctx context.Context, claim store.Claim) error {
	return c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		_, err := tx.exec(ctx, `INSERT INTO runners (project_id, environment_id, id, seen_at, places, digests)
			SELECT $1, $2, $3, now_us(), $4, $5 WHERE $6 > (SELECT count(*) FROM (
				SELECT 1 FROM runners w WHERE w.project_id = $1 AND w.environment_id = $2 AND w.id <> $3 LIMIT $6) known)
			ON CONFLICT (project_id, environment_id, id)
			DO UPDATE SET seen_at = excluded.seen_at, places = excluded.places, digests = excluded.digests`,
			claim.Environment.ProjectID, claim.Environment.ID, Text(claim.RunnerID), claim.Places, Digests(claim), store.MaxRunners)
		return err
	})
}

// Attend implements store.Dispatch.
func (c *Core) Attend(ctx context.Context, runners []store.RunnerKey) (queued []store.Key, err error) {
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
	err = c.single(ctx, func(ctx context.Context, tx *Tx) error { return c.engine.Attend(ctx, tx, runners) })
	if err != nil {
		return nil, wrap(err, "recording runners that wait")
	}
	var l list
	queued, err = collect(ctx, c.engine.Reader(), scanKey, `SELECT e.project_id, e.id FROM environments e WHERE `+
		c.keys(&l, "e.id", environments)+` AND EXISTS (SELECT 1 FROM open_runs r
			WHERE r.project_id = e.project_id AND r.environment_id = e.id AND r.status = 'queued' AND r.blocked = FALSE)`, l.args...)
	return queued, wrap(err, "looking for queued runs")
}

// Digests are those of a claim as they are recorded.
func Digests(claim store.Claim) string {
	text, _ := json.Marshal(claim.Digests) // a list of strings can be marshalled
	return string(text)
}

// startPicked starts what is picked of what waits, and fails the runs whose agent is
// not there; not done when it has to be decided anew, as it is once runs have got the
// keys that nobody knew.
func (c *Core) startPicked(ctx context.Context, claim store.Claim, look Look) (runs []store.Claimed, done bool, err error) {
	known, missing, keyless := sift(claim, look)
	if len(keyless) > 0 {
		return nil, false, c.tellKeys(ctx, claim.Environment, keyless)
	}
	if len(missing) > 0 {
		if err := c.failMissing(ctx, claim.Environment, missing); err != nil {
			return nil, false, err
		}
	}
	picked, pool := store.Pick(look.Pool, candidatesOf(known), claim.Limit)
	if len(picked) == 0 {
		return nil, len(missing) == 0, nil // behind those that were in the way there may be others
	}
	start := Start{Version: look.Version, Pool: pool, Salts: salts(len(picked))}
	for _, p := range picked {
		start.Runs = append(start.Runs, known[slices.IndexFunc(known, func(w Waiting) bool { return w.ID == p.ID })])
	}
	runs, current, err := c.engine.Start(ctx, claim, start)
	return runs, current, err
}

// sift parts the runs of which this runner may be handed some from those whose agent
// the deployment lacks, and from those whose key is not known.
func sift(claim store.Claim, look Look) (known, missing, keyless []Waiting) {
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

// salts are random parts of tokens: 31 bits, so that attempts have room above them.
func salts(n int) []int64 {
	raw := make([]byte, 4*n)
	_, _ = rand.Read(raw) // never fails
	out := make([]int64, n)
	for i := range out {
		out[i] = int64(binary.BigEndian.Uint32(raw[4*i:]) >> 1)
	}
	return out
}

// TokenBits is how far the attempt is shifted in a token, above its random part.
const TokenBits = 31

// failMissing ends runs whose agent the live deployment lacks.
func (c *Core) failMissing(ctx context.Context, environment store.Key, missing []Waiting) error {
	return c.Write(ctx, func(ctx context.Context, tx *Tx) error {
		endings := make([]Ending, len(missing))
		for i, w := range missing {
			endings[i] = Ending{
				Run: store.Key{ProjectID: environment.ProjectID, ID: w.ID}, Only: store.RunQueued,
				Status: store.RunFailed, Code: store.RunErrorAgentNotFound,
				Error: fmt.Sprintf("the live deployment has no agent named %q", w.Agent),
			}
		}
		_, err := c.end(ctx, tx, endings)
		return err
	})
}

// StartedColumns are what ScanStarted reads, of a run r of open_runs and its deployment d.
const StartedColumns = openRunColumns + `, r.token, r.lease_until, now_us(), r.journal_length, r.journal_size, r.input_id, d.bundle_digest`

// ScanStarted reads a claimed run but for its input, whose id it returns.
func ScanStarted(row scanner) (claimed store.Claimed, input uuid.UUID, err error) {
	var digest *string
	err = row.Scan(append(runFields(&claimed.Run), &claimed.Token, at(&claimed.LeaseUntil), at(&claimed.Now),
		&claimed.JournalLength, &claimed.JournalSize, &input, &digest)...)
	if digest != nil {
		claimed.BundleDigest = *digest
	}
	return claimed, input, err
}

// handAgain reads runs that are leased to a runner which does not know it. That they
// run is asked by their leases: by the status it might read all that runs, by its index.
func (c *Core) handAgain(ctx context.Context, claim store.Claim, leases []store.Lease) ([]store.Claimed, error) {
	var l list
	keys := make([]store.Key, len(leases))
	for i, lease := range leases {
		keys[i] = store.Key{ProjectID: claim.Environment.ProjectID, ID: lease.Run.ID}
	}
	var inputIDs []uuid.UUID
	runs, err := collect(ctx, c.engine.Reader(), func(row scanner) (store.Claimed, error) {
		claimed, input, err := ScanStarted(row)
		inputIDs = append(inputIDs, input)
		return claimed, err
	}, `SELECT `+StartedColumns+` FROM open_runs r LEFT JOIN deployments d ON d.project_id = r.project_id AND d.id = r.deployment_id
		WHERE r.lease_until IS NOT NULL AND `+c.keys(&l, "r.id", keys), l.args...)
	if err != nil {
		return nil, err
	}
	runs, inputIDs = under(leases, runs, inputIDs)
	return runs, c.AddInputs(ctx, c.engine.Reader(), claim.Environment.ProjectID, runs, inputIDs)
}

// under leaves of runs, and of their inputs, those that are still leased as they were
// when these leases were read: another runner's token is nobody else's to know.
func under(leases []store.Lease, runs []store.Claimed, inputs []uuid.UUID) (left []store.Claimed, leftInputs []uuid.UUID) {
	for i, run := range runs {
		if slices.Contains(leases, store.Lease{Run: run.Run.Key(), Token: run.Token}) {
			left, leftInputs = append(left, run), append(leftInputs, inputs[i])
		}
	}
	return left, leftInputs
}

// AddInputs reads the inputs of claimed runs.
func (c *Core) AddInputs(ctx context.Context, q Queryer, project uuid.UUID, runs []store.Claimed, ids []uuid.UUID) error {
	found, err := c.Inputs(ctx, q, project, ids)
	for i := range runs {
		in := found[ids[i]]
		runs[i].Input, runs[i].InputBlob, runs[i].ContentType, runs[i].Files, runs[i].Headers = in.Data, in.Blob, in.ContentType, in.Files, in.Headers
	}
	return wrap(err, "reading the inputs of claimed runs")
}

// queuedOrder is that of the index of queued runs n.
const queuedOrder = ` ORDER BY n.project_id, n.environment_id, n.class, n.agent_name, n.fresh, n.id LIMIT 1`

// Where QueuedLines walks.
const (
	// QueuedHere is the environment $2 of the project $1.
	QueuedHere = ` AND n.project_id = $1 AND n.environment_id = $2`
	// QueuedAnywhere is all projects.
	QueuedAnywhere = ``
)

// lineColumns are those by which queued runs of different lines differ, in the order of the index.
var lineColumns = []string{"project_id", "environment_id", "class", "agent_name", "fresh"}

// HeadsOf is how many runs are looked at in each of some lines, as SQL, of which a runner
// may take limit.
func HeadsOf(limit, lines string) string {
	return fmt.Sprintf(`CASE WHEN %[1]s * %[2]s <= %[3]d THEN %[1]s WHEN %[2]s >= %[3]d THEN 1 ELSE %[3]d / %[2]s END`, limit, lines, maxHeads)
}

// QueuedLines walks the index of queued runs, but for the blocked, from the first one of a line
// to that of the next, so that it costs what there are of these, not of runs: q names
// their rows, the last is empty. A line are the runs of an agent in a class, those that are
// not fresh apart: however many of these no runner opens, the others are seen behind them.
// scope is where; address is the engine's of a row.
//
// The next line is looked for in the same class and agent, then in the next agent, and so on, each
// time by the columns of the index: compared as a row, as in (class, agent_name) > (c.class,
// c.agent_name), SQLite goes by the first of them and walks over the whole line. By columns
// of which the scope says something it would begin at the scope's first run each time.
func QueuedLines(address, scope string) string {
	first := func(where string) string {
		return `(SELECT n.` + address + ` FROM open_runs n WHERE n.status = 'queued' AND n.blocked = FALSE` + where + queuedOrder + `)`
	}
	columns, same := lineColumns, scope
	if scope == QueuedHere {
		columns = columns[2:]
	}
	var next []string
	for _, column := range columns {
		next = append(next, first(same+` AND n.`+column+` > c.`+column))
		same += ` AND n.` + column + ` = c.` + column
	}
	slices.Reverse(next)
	return `q (address) AS (
		SELECT ` + first(scope) + `
		UNION ALL
		SELECT COALESCE(` + strings.Join(next, `, `) + `) FROM q JOIN open_runs c ON c.` + address + ` = q.address
	) `
}

// Turns are a pool's as they are stored: JSON of the agents by class.
func Turns(turns [store.Classes]string) string {
	text, _ := json.Marshal(turns) // strings can be marshalled
	return Text(string(text))
}
