// SPDX-License-Identifier: Apache-2.0

package sqlcore

import (
	"context"
	"database/sql"
	"time"

	"github.com/agentplatform/agentplatform/store"
)

// RunnerSeenEvery is how often a runner that polls is recorded: what it holds
// is recorded at once, that it is still there need not be exact.
const RunnerSeenEvery = 5 * time.Second

// AgentNotFound is the SQL of the error of a run whose agent is not there; it
// names an agent_name and no other column.
const AgentNotFound = `'the live deployment has no agent named "' || p.agent_name || '"'`

// ClaimedColumns are of agent_runs r, connector_runs c and deployments d.
const ClaimedColumns = runColumns + `, r.lease_until, r.journal_length, d.bundle_digest, c.input, c.input_blob, c.content_type`

// ScanClaimed reads and closes rows of ClaimedColumns. Journal is an empty
// list, not nil, where AddJournals will have something to add.
func ScanClaimed(rows *sql.Rows) (out []store.Claimed, err error) {
	defer func() { _ = rows.Close() }() // its error is that of Err
	for rows.Next() {
		c, err := scanClaimed(rows)
		if err != nil {
			return nil, wrap(err, "reading claimed runs")
		}
		out = append(out, c)
	}
	return out, wrap(rows.Err(), "reading claimed runs")
}

func scanClaimed(row scanner) (c store.Claimed, err error) {
	var (
		lease               *time.Time
		journal             int64
		digest, contentType *string
	)
	err = row.Scan(append(runFields(&c.Run), maybeAt(&lease), &journal, &digest, &c.Input, &c.InputBlob, &contentType)...)
	c.Token = int64(c.Run.Attempt)
	if lease != nil {
		c.LeaseUntil = *lease
	}
	if digest != nil {
		c.BundleDigest = *digest
	}
	if contentType != nil {
		c.ContentType = *contentType
	}
	if journal > 0 {
		c.Journal = []store.JournalEntry{}
	}
	return c, err
}

// WithoutFailed takes out of runs that a claim moved those that it failed, and
// ends their connector runs.
func WithoutFailed(ctx context.Context, tx *Tx, moved []store.Claimed) (running []store.Claimed, failed int, err error) {
	lost := map[store.Key]int{}
	for _, c := range moved {
		switch {
		case c.Run.Status == store.RunRunning:
			running = append(running, c)
			continue
		case c.Run.ConnectorRunID != nil:
			lost[store.Key{ProjectID: c.Run.ProjectID, ID: *c.Run.ConnectorRunID}]++
		}
		failed++
	}
	return running, failed, CloseConnectorRuns(ctx, tx, lost)
}

// AddJournals reads what earlier attempts of the runs recorded. No earlier
// claim can add to it any more.
func (c *Core) AddJournals(ctx context.Context, claimed []store.Claimed) error {
	var resumed []store.Key
	for _, run := range claimed {
		if run.Journal != nil {
			resumed = append(resumed, run.Run.Key())
		}
	}
	if len(resumed) == 0 {
		return nil
	}
	journals, err := c.Journals(ctx, resumed)
	for i := range claimed {
		claimed[i].Journal = journals[claimed[i].Run.Key()]
	}
	return err
}
