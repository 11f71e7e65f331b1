// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// results is the ID of the outbound connector that delivers the results of the agent's runs.
var results = uuid.MustParse("7c9e6679-7425-40de-944b-e07fc1f90ae7")

// retries is the schedule of the results: an attempt a second, and a patience of some time.
const retries = `{"max_attempts":20,"schedule_seconds":[0,1]}`

// sendResults adds an outbound connector for the results of the one agent that every event runs.
func (s *stage) sendResults(t *testing.T, st store.Store) {
	t.Helper()
	var derivation string
	s.keys, derivation = newKeys(t, st)
	connector, err := st.Connector(t.Context(), store.Key{ProjectID: project, ID: s.hooks.ids[0]})
	require.NoError(t, err)
	require.NoError(t, st.PutConnector(t.Context(), store.Connector{
		Ref: ref(store.KindConnector, "results"), ID: results, ProjectID: project, EnvironmentID: connector.EnvironmentID, Name: "results", Type: "webhook",
		Mode: "outbound", Enabled: true, SecretVersion: 1, SecretKey: derivation,
		Config: json.RawMessage(fmt.Sprintf(`{"url":%q,"timeout_seconds":5,"retry":%s}`, s.receiver.URL, retries)),
	}))
	require.NoError(t, st.PutLink(t.Context(), store.Link{
		Ref: ref(store.KindConnectorLink, "results"), ID: uuid.New(), ProjectID: project, ConnectorID: results, AgentName: s.sender().name,
		Outbound: &store.OutboundPolicy{Mode: store.LinkAutomatic}, ObjectCreatedAt: time.Unix(1, 0),
	}))
}

// sender returns the agent whose results are delivered.
func (s *stage) sender() agent { return s.hooks.agents[0] }

// sent counts the outcomes of deliveries.
type sent struct{ delivered, givenUp int }

// checkDeliveries compares the ended runs with the deliveries in the store, and the deliveries with the requests that their
// destination received. Each result is delivered or visibly failed, under one ID.
func (s *stage) checkDeliveries(ctx context.Context, conn *sql.Conn) (counted sent, broken []string, err error) {
	r := s.receiver
	r.mu.Lock()
	defer r.mu.Unlock()
	broken = append(broken, r.surprises...)
	of, under := map[uuid.UUID][]uuid.UUID{}, map[uuid.UUID]uuid.UUID{}
	if err := each(ctx, conn, fmt.Sprintf(`SELECT id, status, CAST(run_ids AS text) FROM ended_connector_runs WHERE connector_id = '%s'`, results),
		func(scan func(...any) error) error {
			var id uuid.UUID
			var status, list string
			if err := scan(&id, &status, &list); err != nil {
				return err
			}
			for _, run := range idsIn(list) {
				of[run] = append(of[run], id)
			}
			switch {
			case status == string(store.ConnectorRunCompleted) && !r.taken[id]:
				broken = append(broken, fmt.Sprintf("delivery %s is completed, and was never taken", id))
			case status == string(store.ConnectorRunCompleted):
				counted.delivered++
			case status == string(store.ConnectorRunFailed):
				counted.givenUp++
			default:
				broken = append(broken, fmt.Sprintf("delivery %s is %s", id, status))
			}
			return nil
		}); err != nil {
		return counted, nil, fmt.Errorf("reading the deliveries: %w", err)
	}
	if err := each(ctx, conn, fmt.Sprintf(`SELECT id FROM ended_runs WHERE status = 'completed' AND agent_name = '%s'`, s.sender().name),
		func(scan func(...any) error) error {
			var run uuid.UUID
			err := scan(&run)
			if n := len(of[run]); n != 1 {
				broken = append(broken, fmt.Sprintf("run %s has %d deliveries", run, n))
			}
			delete(of, run)
			return err
		}); err != nil {
		return counted, nil, fmt.Errorf("reading the runs whose results are sent: %w", err)
	}
	for run := range of {
		broken = append(broken, fmt.Sprintf("run %s has not completed, and its result is delivered", run))
	}
	for id, run := range r.runs {
		if other, twice := under[run]; twice {
			broken = append(broken, fmt.Sprintf("run %s is delivered as %s and as %s", run, id, other))
		}
		under[run] = id
	}
	return counted, broken, nil
}
