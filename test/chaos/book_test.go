// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/store"
	"github.com/agentplatform/agentplatform/store/delivery"
	"github.com/agentplatform/agentplatform/store/idempotency"
	"github.com/agentplatform/agentplatform/store/openrun"
	"github.com/agentplatform/agentplatform/store/statistics"
)

const (
	// aloneTimeout is how long the server may take to end the statements of dead gateways.
	aloneTimeout = time.Minute
	// endsTimeout is how long accepted work may stay unchanged. It is longer than the lease of a run or delivery whose response
	// was lost, and than the grace before the sweep of leases.
	endsTimeout = 4 * time.Minute
)

// book holds the rows of the store at the end of a scene.
type book struct {
	hooks
	runs map[string][]row // by marker
	// connectorRuns and agentRuns count all runs, including unexpected runs.
	connectorRuns, agentRuns int
	broken                   []string // rows that are unexpected for every sender
}

// row is a connector run with its agent runs.
type row struct {
	id, connector uuid.UUID
	input         []byte
	runs          []uuid.UUID // sorted as text
	listed        []uuid.UUID // IDs in the connector run itself, sorted as text
	linked        []uuid.UUID // the links of the runs
	links         int         // number of distinct links
	states        []string    // distinct statuses of the connector run and its runs
}

// awaitEnds returns when no run is open and no ended run is left to be counted, or when nothing has changed for endsTimeout. In
// the second case the book reports the stuck rows.
func awaitEnds(ctx context.Context, of records) error {
	var left int64
	changed := time.Now()
	return poll(ctx, askEvery, func() (bool, error) {
		before := left
		err := ask(ctx, of, `SELECT (SELECT count(*) FROM open_runs) + (SELECT count(*) FROM open_connector_runs) + (SELECT count(*) FROM outbox)
			+ (SELECT count(*) FROM outbox_rollups) + (SELECT count(*) FROM outbox_words) + (SELECT count(*) FROM outbox_traces)
			+ (SELECT count(*) FROM deliveries)`, &left)
		if left != before {
			changed = time.Now()
		}
		return left == 0 || time.Since(changed) > endsTimeout, err
	})
}

// Everything that was accepted, whether it is open or has ended.
const everything = `WITH c AS (
	SELECT project_id, id, connector_id, run_ids, status FROM open_connector_runs
	UNION ALL SELECT project_id, id, connector_id, run_ids, status FROM ended_connector_runs WHERE trigger_type <> 'outbound'
), r AS (
	SELECT project_id, id, connector_run_id, connector_id, link_id, status FROM open_runs
	UNION ALL SELECT project_id, id, connector_run_id, connector_id, link_id, status FROM ended_runs
) `

// never are rows that must not be, each a query that counts them.
var never = []struct{ what, query string }{
	{"connector runs are open and have ended", `SELECT count(*) FROM open_connector_runs JOIN ended_connector_runs USING (project_id, id)`},
	{"agent runs are open and have ended", `SELECT count(*) FROM open_runs JOIN ended_runs USING (project_id, id)`},
	{"agent runs belong to no connector run", everything + `SELECT count(*) FROM r
		WHERE NOT EXISTS (SELECT 1 FROM c WHERE c.project_id = r.project_id AND c.id = r.connector_run_id)`},
	{"idempotency keys stand for no connector run", everything + `SELECT count(*) FROM idempotency_keys k
		WHERE NOT EXISTS (SELECT 1 FROM c WHERE c.project_id = k.project_id AND c.id = k.connector_run_id)`},
	{"inputs belong to no connector run", everything + `SELECT count(*) FROM inputs i
		WHERE NOT EXISTS (SELECT 1 FROM c WHERE c.project_id = i.project_id AND c.id = i.id)`},
	{"runs that ended have not the answers of their model in the journal", `SELECT count(*) FROM ended_runs r JOIN expected e USING (agent_name)
		WHERE (SELECT count(*) FROM journal j WHERE j.project_id = r.project_id AND j.run_id = r.id AND j.kind = 'model_answer') <> e.answers`},
	{"runs that ended have not the calls of their model", `SELECT count(*) FROM ended_runs r JOIN expected e USING (agent_name)
		WHERE (SELECT count(*) FROM model_calls m WHERE m.project_id = r.project_id AND m.run_id = r.id) <> e.answers`},
	{"journal entries belong to no run that ended", `SELECT count(*) FROM journal j
		WHERE NOT EXISTS (SELECT 1 FROM ended_runs r WHERE r.project_id = j.project_id AND r.id = j.run_id)`},
	{"rows of the outbox are left", `SELECT (SELECT count(*) FROM outbox) + (SELECT count(*) FROM outbox_rollups)
		+ (SELECT count(*) FROM outbox_words) + (SELECT count(*) FROM outbox_traces)`},
	{"ended runs are not indexed", `SELECT (SELECT count(*) FROM ended_runs) - (SELECT count(*) FROM run_words)`},
	{"ended runs are rolled up too often or not", `SELECT abs((SELECT count(*) FROM ended_runs) - (SELECT COALESCE(sum(runs), 0) FROM run_rollups WHERE grain = 'hour'))
		+ abs((SELECT count(*) FROM ended_runs) - (SELECT COALESCE(sum(runs), 0) FROM agent_totals))`},
	{"ended connector runs are rolled up too often or not", `SELECT abs((SELECT count(*) FROM ended_connector_runs)
		- (SELECT COALESCE(sum(runs), 0) FROM connector_rollups WHERE grain = 'hour'))`},
	{"deliveries are open", `SELECT count(*) FROM deliveries`},
	// Each end is counted exactly once, however often its row was taken.
	{"bytes are counted too many or too few", `SELECT CAST(abs((SELECT COALESCE(sum(bytes), 0) FROM stored_bytes)
		- (SELECT COALESCE(sum(` + strconv.Itoa(openrun.RunOverhead) + ` + octet_length(output) + octet_length(error)), 0) FROM ended_runs)
		- (SELECT COALESCE(sum(` + strconv.Itoa(store.EntryOverhead) + ` + octet_length(kind) + COALESCE(octet_length(data), 0)), 0) FROM journal)
		- (SELECT COALESCE(sum(size), 0) FROM blobs WHERE mark IN ('history', 'bundle', 'upload'))
		- (SELECT COALESCE(sum(octet_length(model)), 0) FROM model_calls)
		- (SELECT COALESCE(sum(log_size + result_size), 0) FROM deployments)
		- ` + strconv.Itoa(statistics.RollupBytes) + ` * ((SELECT count(*) FROM run_rollups) + (SELECT count(*) FROM usage_rollups)
			+ (SELECT count(*) FROM connector_rollups) + (SELECT count(*) FROM agent_totals))
		- (SELECT ` + strconv.Itoa(delivery.DeliveryOverhead) + ` * count(*) FROM ended_connector_runs WHERE trigger_type = 'outbound')
		- (SELECT COALESCE(sum(` + strconv.Itoa(delivery.DeliveryOverhead) + ` + octet_length(response) + octet_length(error)), 0) FROM delivery_attempts)
		- (SELECT COALESCE(sum(bytes), 0) FROM run_words)
		- (SELECT COALESCE(sum(` + strconv.Itoa(idempotency.KeyOverhead) + ` + octet_length(k.key) + ` + strconv.Itoa(idempotency.KeyRunBytes) + ` * (
				SELECT count(*) FROM ended_runs r WHERE r.project_id = c.project_id AND r.connector_run_id = c.id)), 0)
			FROM idempotency_keys k JOIN ended_connector_runs c ON c.project_id = k.project_id AND c.id = k.connector_run_id)
		- (SELECT COALESCE(sum(length(i.data)), 0) FROM inputs i JOIN ended_connector_runs c USING (project_id, id))) AS bigint)`},
}

// readBook reads all runs and all unexpected rows.
func readBook(ctx context.Context, conn *sql.Conn, h hooks) (*book, error) {
	b := &book{hooks: h, runs: map[string][]row{}}
	if err := b.expect(ctx, conn); err != nil {
		return nil, err
	}
	rows, err := b.readRows(ctx, conn)
	if err != nil {
		return nil, fmt.Errorf("reading the runs: %w", err)
	}
	for _, r := range rows {
		b.add(r.sorted())
	}
	for _, no := range never {
		var n int64
		if err := conn.QueryRowContext(ctx, no.query).Scan(&n); err != nil {
			return nil, fmt.Errorf("looking whether %s: %w", no.what, err)
		}
		if n > 0 {
			b.broken = append(b.broken, fmt.Sprintf("%d %s", n, no.what))
		}
	}
	return b, nil
}

// readRows reads the connector runs with their agent runs, and counts these.
func (b *book) readRows(ctx context.Context, conn *sql.Conn) (map[uuid.UUID]*row, error) {
	rows := map[uuid.UUID]*row{}
	err := each(ctx, conn, everything+`SELECT c.id, c.connector_id, c.status, CAST(c.run_ids AS text), i.data
		FROM c LEFT JOIN inputs i ON i.project_id = c.project_id AND i.id = c.id`, func(scan func(...any) error) error {
		var r row
		var state, listed string
		err := scan(&r.id, &r.connector, &state, &listed, &r.input)
		r.states, r.listed, rows[r.id] = []string{state}, idsIn(listed), &r
		return err
	})
	if err != nil {
		return nil, err
	}
	return rows, each(ctx, conn, everything+`SELECT connector_run_id, connector_id, id, link_id, status FROM r`, func(scan func(...any) error) error {
		var id, of, connector, link uuid.NullUUID
		var state string
		err := scan(&of, &connector, &id, &link, &state)
		b.agentRuns++
		if r := rows[of.UUID]; r != nil && r.connector == connector.UUID { // all other runs count as unexpected rows
			r.runs, r.linked, r.states = append(r.runs, id.UUID), append(r.linked, link.UUID), append(r.states, state)
		}
		return err
	})
}

// each does something with each row of a query.
func each(ctx context.Context, conn *sql.Conn, query string, do func(scan func(...any) error) error) error {
	rows, err := conn.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := do(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

var idForm = regexp.MustCompile(`[0-9a-f-]{36}`)

// idsIn returns the IDs in a list, in the format of either database.
func idsIn(list string) (ids []uuid.UUID) {
	for _, text := range idForm.FindAllString(list, -1) {
		ids = append(ids, uuid.MustParse(text))
	}
	return ids
}

// sorted returns the row in its canonical form for comparison.
func (r *row) sorted() row {
	byText := func(a, b uuid.UUID) int { return strings.Compare(a.String(), b.String()) }
	slices.SortFunc(r.runs, byText)
	slices.SortFunc(r.listed, byText)
	slices.SortFunc(r.linked, byText)
	slices.Sort(r.states)
	r.links, r.states = len(slices.Compact(r.linked)), slices.Compact(r.states)
	return *r
}

// expect writes the expected number of answers per agent to a temporary table.
func (b *book) expect(ctx context.Context, conn *sql.Conn) error {
	if _, err := conn.ExecContext(ctx, `CREATE TEMPORARY TABLE expected (agent_name text, answers bigint)`); err != nil {
		return fmt.Errorf("recording the expected answers: %w", err)
	}
	for _, a := range b.agents {
		if _, err := conn.ExecContext(ctx, `INSERT INTO expected VALUES ($1, $2)`, a.name, a.answers); err != nil {
			return fmt.Errorf("recording the expected answers: %w", err)
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

// check compares the book with the clients' ledger and returns the differences in the order of the markers.
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

// fault returns a description of the fault in the rows of a request, or "" if the rows are correct.
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
