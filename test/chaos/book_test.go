// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/sqlcore"
)

const (
	// aloneTimeout is how long the server may take to end what dead gateways began.
	aloneTimeout = time.Minute
	// endsTimeout is how long what was accepted may stay as it is: longer than the lease
	// of a claim whose answer was lost, and than the grace before leases are swept.
	endsTimeout = 3 * time.Minute
)

// book is what the store holds at the end.
type book struct {
	hooks
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
	listed        []uuid.UUID // those that the connector run itself names, sorted as text
	links         int         // different ones
	states        []string    // its own and its runs', different ones
}

// awaitEnds returns once nothing is open and nothing that ended is left to be counted,
// or nothing has changed for endsTimeout: what is stuck then is found in the book.
func awaitEnds(ctx context.Context, db *server) error {
	var left int64
	changed := time.Now()
	return poll(ctx, askEvery, func() (bool, error) {
		before := left
		err := db.ask(ctx, `SELECT (SELECT count(*) FROM open_runs) + (SELECT count(*) FROM open_connector_runs) + (SELECT count(*) FROM outbox)`, &left)
		if left != before {
			changed = time.Now()
		}
		return left == 0 || time.Since(changed) > endsTimeout, err
	})
}

// awaitAlone returns once no other connection to the database is left: a
// statement of a gateway that died may end after it.
func awaitAlone(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, aloneTimeout)
	defer cancel()
	return poll(ctx, askEvery, func() (bool, error) {
		var others int
		err := conn.QueryRow(ctx, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
			AND backend_type = 'client backend' AND pid <> pg_backend_pid()`).Scan(&others)
		return others == 0, err
	})
}

// Everything that was accepted, whether it is open or has ended.
const everything = `WITH c AS (
	SELECT project_id, id, connector_id, run_ids, status FROM open_connector_runs
	UNION ALL SELECT project_id, id, connector_id, run_ids, status FROM ended_connector_runs
), r AS (
	SELECT project_id, id, connector_run_id, connector_id, link_id, status FROM open_runs
	UNION ALL SELECT project_id, id, connector_run_id, connector_id, link_id, status FROM ended_runs
) `

// never are rows that must not be, each a query that counts them.
var never = []struct{ what, query string }{
	{"connector runs are open and have ended", `SELECT count(*) FROM open_connector_runs JOIN ended_connector_runs USING (project_id, id)`},
	{"agent runs are open and have ended", `SELECT count(*) FROM open_runs JOIN ended_runs USING (project_id, id)`},
	{"agent runs belong to no connector run", everything + `SELECT count(*) FROM r
		WHERE NOT EXISTS (SELECT FROM c WHERE c.project_id = r.project_id AND c.id = r.connector_run_id)`},
	{"idempotency keys stand for no connector run", everything + `SELECT count(*) FROM idempotency_keys k
		WHERE NOT EXISTS (SELECT FROM c WHERE c.project_id = k.project_id AND c.id = k.connector_run_id)`},
	{"inputs belong to no connector run", everything + `SELECT count(*) FROM inputs i
		WHERE NOT EXISTS (SELECT FROM c WHERE c.project_id = i.project_id AND c.id = i.id)`},
	{"runs that ended have not the answers of their model in the journal", `SELECT count(*) FROM ended_runs r JOIN expected e USING (agent_name)
		WHERE (SELECT count(*) FROM journal j WHERE j.project_id = r.project_id AND j.run_id = r.id AND j.kind = 'model_answer') <> e.answers`},
	{"runs that ended have not the calls of their model", `SELECT count(*) FROM ended_runs r JOIN expected e USING (agent_name)
		WHERE (SELECT count(*) FROM model_calls m WHERE m.project_id = r.project_id AND m.run_id = r.id) <> e.answers`},
	{"journal entries belong to no run that ended", `SELECT count(*) FROM journal j
		WHERE NOT EXISTS (SELECT FROM ended_runs r WHERE r.project_id = j.project_id AND r.id = j.run_id)`},
	{"rows of the outbox are left", `SELECT count(*) FROM outbox`},
	// Each end is counted exactly once, however often its row was taken.
	{"bytes are counted too many or too few", `SELECT abs((SELECT COALESCE(sum(bytes), 0) FROM stored_bytes)
		- (SELECT COALESCE(sum(` + strconv.Itoa(sqlcore.RunOverhead) + ` + octet_length(output) + octet_length(error)), 0) FROM ended_runs)
		- (SELECT COALESCE(sum(` + strconv.Itoa(store.EntryOverhead) + ` + octet_length(kind) + octet_length(data)), 0) FROM journal)
		- (SELECT COALESCE(sum(octet_length(model)), 0) FROM model_calls)
		- (SELECT COALESCE(sum(length(i.data)), 0) FROM inputs i JOIN ended_connector_runs c USING (project_id, id)))::bigint`},
}

// readBook reads all runs, and what must not be.
func readBook(ctx context.Context, conn *pgx.Conn, h hooks) (*book, error) {
	b := &book{hooks: h, runs: map[string][]row{}}
	if err := b.expect(ctx, conn); err != nil {
		return nil, err
	}
	rows, err := conn.Query(ctx, everything+`SELECT c.id, c.connector_id, i.data,
			COALESCE(array_agg(r.id ORDER BY r.id::text COLLATE "C") FILTER (WHERE r.id IS NOT NULL), '{}'),
			ARRAY(SELECT u FROM unnest(c.run_ids) AS u ORDER BY u::text COLLATE "C"), count(DISTINCT r.link_id),
			ARRAY(SELECT DISTINCT s FROM unnest(array_agg(r.status) || c.status) AS s WHERE s IS NOT NULL ORDER BY s)
		FROM c LEFT JOIN inputs i ON i.project_id = c.project_id AND i.id = c.id
		LEFT JOIN r ON r.project_id = c.project_id AND r.connector_run_id = c.id AND r.connector_id = c.connector_id
		GROUP BY c.project_id, c.id, c.connector_id, c.run_ids, c.status, i.data`)
	if err != nil {
		return nil, fmt.Errorf("reading the runs: %w", err)
	}
	all, err := pgx.CollectRows(rows, func(from pgx.CollectableRow) (r row, err error) {
		err = from.Scan(&r.id, &r.connector, &r.input, &r.runs, &r.listed, &r.links, &r.states)
		return r, err
	})
	if err != nil {
		return nil, fmt.Errorf("reading the runs: %w", err)
	}
	for _, r := range all {
		b.add(r)
	}
	if err := conn.QueryRow(ctx, everything+`SELECT count(*) FROM r`).Scan(&b.agentRuns); err != nil {
		return nil, fmt.Errorf("counting the runs: %w", err)
	}
	for _, no := range never {
		var n int64
		if err := conn.QueryRow(ctx, no.query).Scan(&n); err != nil {
			return nil, fmt.Errorf("looking whether %s: %w", no.what, err)
		}
		if n > 0 {
			b.broken = append(b.broken, fmt.Sprintf("%d %s", n, no.what))
		}
	}
	return b, nil
}

// expect tells the database what runs leave.
func (b *book) expect(ctx context.Context, conn *pgx.Conn) error {
	if _, err := conn.Exec(ctx, `CREATE TEMPORARY TABLE expected (agent_name text, answers bigint)`); err != nil {
		return fmt.Errorf("telling what is expected: %w", err)
	}
	for _, a := range b.agents {
		if _, err := conn.Exec(ctx, `INSERT INTO expected VALUES ($1, $2)`, a.name, a.answers); err != nil {
			return fmt.Errorf("telling what is expected: %w", err)
		}
	}
	return nil
}

// add files a run under its marker; it must have all its agent runs, and they must have
// ended as theirs do.
func (b *book) add(r row) {
	var input struct{ Marker string }
	if err := json.Unmarshal(r.input, &input); err != nil || input.Marker == "" {
		b.broken = append(b.broken, fmt.Sprintf("connector run %s: its input %q was never sent", r.id, r.input))
	}
	if len(r.runs) != links || r.links != links {
		b.broken = append(b.broken, fmt.Sprintf("%s: connector run %s has %d agent runs of %d links, not %d",
			input.Marker, r.id, len(r.runs), r.links, links))
	}
	if !slices.Equal(r.listed, r.runs) {
		b.broken = append(b.broken, fmt.Sprintf("%s: connector run %s names the runs %v, and there are %v", input.Marker, r.id, r.listed, r.runs))
	}
	if ends := b.ends(r.connector); !slices.Equal(r.states, ends) {
		b.broken = append(b.broken, fmt.Sprintf("%s: connector run %s and its runs are %v, not %v", input.Marker, r.id, r.states, ends))
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
