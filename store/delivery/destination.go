// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"context"
	"slices"
	"strconv"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/object"
	"github.com/agentplatform/agentplatform/store/sqldb"
)

// failingDestination is the condition for failing and paused destinations, which have an index.
var failingDestination = `(d.failures >= ` + strconv.Itoa(store.BreakAfter) + ` OR d.rejected > 0 OR d.paused_generation IS NOT NULL)`

const stateColumns = `d.project_id, d.connector_id, d.failures, d.rejected, d.rejected_reason, COALESCE(d.paused_generation, 0), d.paused_reason`

const selectDestinations = `SELECT ` + stateColumns + ` FROM destinations d `

func scanDestinationState(row sqldb.Scanner, more ...any) (d store.Destination, err error) {
	err = row.Scan(append([]any{&d.Connector.ProjectID, &d.Connector.ID, &d.Failures, &d.Rejected, &d.RejectedReason, &d.PausedGeneration, &d.PausedReason}, more...)...)
	return d, err
}

// DestinationsOf implements store.Destinations.
func (s *Store) DestinationsOf(ctx context.Context, projectID uuid.UUID, connectors []uuid.UUID) (map[uuid.UUID]store.Destination, error) {
	of := map[uuid.UUID]store.Destination{}
	for some := range slices.Chunk(connectors, sqldb.MaxIDs) {
		l := sqldb.Args{Values: []any{projectID}}
		all, err := sqldb.Collect(ctx, s.db.Reader(), func(row sqldb.Scanner) (store.Destination, error) { return scanDestinationState(row) },
			selectDestinations+`WHERE d.project_id = $1 AND d.connector_id IN `+l.AddIDs(some), l.Values...)
		if err != nil {
			return nil, sqldb.Wrap(err, "reading destinations")
		}
		for _, d := range all {
			of[d.Connector.ID] = d
		}
	}
	return of, nil
}

// TroubledDestinations implements store.Destinations.
func (s *Store) TroubledDestinations(ctx context.Context, after store.Key, limit int) ([]store.TroubledDestination, error) {
	all, err := sqldb.Collect(ctx, s.db.Reader(), func(row sqldb.Scanner) (t store.TroubledDestination, err error) {
		t.Destination, err = scanDestinationState(row, object.RefFields(&t.Ref)...)
		return t, err
	}, `SELECT `+stateColumns+`, `+object.RefColumns+`
		FROM destinations d JOIN object_ids k ON k.project_id = d.project_id AND k.id = d.connector_id
		WHERE `+failingDestination+` AND (d.project_id > $1 OR d.project_id = $1 AND d.connector_id > $2) ORDER BY d.project_id, d.connector_id LIMIT $3`,
		after.ProjectID, after.ID, limit)
	return all, sqldb.Wrap(err, "listing failing and paused destinations")
}

// ResumeDestination implements store.Destinations.
func (s *Store) ResumeDestination(ctx context.Context, connector store.Key) error {
	_, err := s.db.Exec(ctx, `UPDATE destinations SET failures = 0, rejected = 0, rejected_reason = '', paused_generation = NULL, paused_reason = ''
		WHERE project_id = $1 AND connector_id = $2 AND paused_generation IS NOT NULL`, connector.ProjectID, connector.ID)
	return sqldb.Wrap(err, "resuming the deliveries of %s", connector)
}
