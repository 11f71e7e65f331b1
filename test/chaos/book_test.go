// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// aloneTimeout is how long the server may take to end what dead gateways began.
const aloneTimeout = time.Minute

// book is what the store holds at the end.
type book struct {
	runs map[string][]row // by marker
	// connectorRuns and agentRuns are all there are, strangers included.
	connectorRuns, agentRuns int
	broken                   []string // rows that must not be, whoever sent them
}

// row is a connector run with its agent runs.
type row struct {
	id, connector uuid.UUID
	input         []byte
	runs          []uuid.UUID // sorted as text
	links         int         // different ones
}

// awaitAlone returns once no other connection to the database is left: a
// statement of a gateway that died may end after it.
func awaitAlone(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, aloneTimeout)
	defer cancel()
	return poll(ctx, func() (bool, error) {
		var others int
		err := conn.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
			AND backend_type = 'client backend' AND pid <> pg_backend_pid()`).Scan(&others)
		return others == 0, err
	})
}

// readBook reads all runs, and what hangs in the air.
func readBook(ctx context.Context, conn *pgx.Conn) (*book, error) {
	b := &book{runs: map[string][]row{}}
	rows, err := conn.Query(ctx, `SELECT c.id, c.connector_id, c.input,
			COALESCE(array_agg(a.id ORDER BY a.id::text COLLATE "C") FILTER (WHERE a.id IS NOT NULL), '{}'),
			count(DISTINCT a.link_id)
		FROM connector_runs c LEFT JOIN agent_runs a ON a.project_id = c.project_id AND a.connector_run_id = c.id
			AND a.connector_id = c.connector_id
		GROUP BY c.project_id, c.id`)
	if err != nil {
		return nil, fmt.Errorf("reading the runs: %w", err)
	}
	all, err := pgx.CollectRows(rows, func(from pgx.CollectableRow) (r row, err error) {
		err = from.Scan(&r.id, &r.connector, &r.input, &r.runs, &r.links)
		return r, err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the runs: %w", err)
	}
	for _, r := range all {
		b.add(r)
	}
	var strays, keys int
	err = conn.QueryRow(ctx, `SELECT (SELECT count(*) FROM agent_runs),
		(SELECT count(*) FROM agent_runs a WHERE NOT EXISTS (SELECT FROM connector_runs c WHERE c.project_id = a.project_id AND c.id = a.connector_run_id)),
		(SELECT count(*) FROM idempotency_keys k WHERE NOT EXISTS (SELECT FROM connector_runs c WHERE c.project_id = k.project_id AND c.id = k.connector_run_id))`).
		Scan(&b.agentRuns, &strays, &keys)
	if err != nil {
		return nil, fmt.Errorf("reading what hangs in the air: %w", err)
	}
	if strays > 0 {
		b.broken = append(b.broken, fmt.Sprintf("%d agent runs belong to no connector run", strays))
	}
	if keys > 0 {
		b.broken = append(b.broken, fmt.Sprintf("%d idempotency keys stand for no connector run", keys))
	}
	return b, nil
}

// add files a run under its marker; it must have all its agent runs.
func (b *book) add(r row) {
	var input struct{ Marker string }
	if err := json.Unmarshal(r.input, &input); err != nil || input.Marker == "" {
		b.broken = append(b.broken, fmt.Sprintf("connector run %s: its input %q was never sent", r.id, r.input))
	}
	if len(r.runs) != links || r.links != links {
		b.broken = append(b.broken, fmt.Sprintf("%s: connector run %s has %d agent runs of %d links, not %d",
			input.Marker, r.id, len(r.runs), r.links, links))
	}
	b.connectorRuns++
	b.runs[input.Marker] = append(b.runs[input.Marker], r)
}

// check compares the book with the clients' ledger and lists what differs, in
// the order of the markers.
func (b *book) check(marks map[string]*mark) []string {
	broken := slices.Clone(b.broken)
	for text := range b.runs {
		if marks[text] == nil {
			broken = append(broken, fmt.Sprintf("%s: a run of a request that was never made", text))
		}
	}
	for _, m := range marks {
		if fault := m.fault(b.runs[m.text]); fault != "" {
			broken = append(broken, m.text+": "+fault)
		}
	}
	sort.Strings(broken)
	return broken
}

// fault says what is wrong with the rows of a request; "" when they are right.
func (m *mark) fault(rows []row) string {
	for _, r := range rows {
		if r.connector != m.connector {
			return fmt.Sprintf("connector run %s is another connector's", r.id)
		}
	}
	switch {
	case m.runs != nil && len(rows) != 1:
		return fmt.Sprintf("answered 2xx, and there are %d connector runs (key: %t, sent %d times)", len(rows), m.keyed, m.sends)
	case m.runs != nil && !slices.Equal(m.runs, rows[0].runs):
		return fmt.Sprintf("answered with the runs %v, and there are %v (key: %t, sent %d times)", m.runs, rows[0].runs, m.keyed, m.sends)
	case m.sends == 0 && len(rows) > 0:
		return "no gateway was reached, and there is a connector run"
	case len(rows) > 1:
		return fmt.Sprintf("sent %d times, and there are %d connector runs (key: %t)", m.sends, len(rows), m.keyed)
	case m.keyed && m.runs == nil:
		return "its key never came to an answer"
	}
	return ""
}

// summary counts what the clients know and what the book holds.
func (l *load) summary(b *book) summary {
	s := summary{
		KillsHit: l.killsHit, Kills: l.kills, Broken: l.cut, Unavailable: l.unavailable,
		ConnectorRuns: b.connectorRuns, AgentRuns: b.agentRuns,
	}
	for _, m := range l.marks {
		switch {
		case m.runs != nil:
			s.Accepted++
			if m.keyed {
				s.AcceptedKeyed++
			}
			if m.sends > 1 {
				s.Recovered++
			}
		case m.sends == 0:
			s.Refused++
		default:
			s.Unknown++
		}
		if m.runs == nil {
			s.RowsOnly += len(b.runs[m.text])
		}
	}
	return s
}
