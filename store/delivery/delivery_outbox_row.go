// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"context"
	"math"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/outbox"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// deliveryOutboxRow is a row of the outbox of deliveries.
type deliveryOutboxRow struct {
	store.Key
	// failures is how often the row has failed.
	failures int
	// last is the last failed delivery of a connector. failed is the number of unreported failed
	// deliveries.
	last   *uuid.UUID
	failed int64
}

// consumer returns the consumer of the row.
func (p deliveryOutboxRow) consumer() string {
	if p.last != nil {
		return outbox.FailureNotices
	}
	return outbox.Deliveries
}

func (p deliveryOutboxRow) KeyAndFailures() (store.Key, int) { return p.Key, p.failures }

// delayOutboxRow delays a row.
func delayOutboxRow(ctx context.Context, tx *sqldb.Tx, p deliveryOutboxRow, wait time.Duration) error {
	_, err := tx.Exec(ctx, `UPDATE outbox SET failures = failures + 1, posted_at = now_us() + $3
		WHERE project_id = $1 AND consumer = $4 AND ended_id = $2 AND posted_at <= now_us()`,
		p.ProjectID, p.ID, wait.Microseconds(), p.consumer())
	return err
}

const deliveryOutboxColumns = `project_id, ended_id, failures, last_failed, failed`

func scanDeliveryOutboxRow(row sqldb.Scanner) (p deliveryOutboxRow, err error) {
	err = row.Scan(&p.ProjectID, &p.ID, &p.failures, &p.last, &p.failed)
	return p, err
}

// deliveryOutbox selects the rows for deliveries.
var deliveryOutbox = outbox.Source{Table: `outbox`, Narrow: `o.consumer IN (` + posting + `) AND `, Columns: deliveryOutboxColumns}

// dueOutboxRows returns at most limit outbox rows for deliveries, of the projects whose turn it is.
func (s *Store) dueOutboxRows(ctx context.Context, limit int) ([]deliveryOutboxRow, error) {
	return outbox.TakeTurn(ctx, s.db, s.turns, deliveryOutbox, outbox.Turn{Limit: limit, Until: math.MaxInt64}, scanDeliveryOutboxRow)
}
