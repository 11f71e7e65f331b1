// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/agentplatform/agentplatform/internal/testenv"
	"github.com/agentplatform/agentplatform/store/postgres"
)

// How much is enough; `make chaos` asks for more than `make test`.
var (
	wantAccepted = flag.Int("ledger.accepted", 300, "answers 2xx that the ledger test takes at least")
	wantKills    = flag.Int("ledger.kills", 3, "kills that must have broken a request")
)

const (
	gateways   = 2
	connectors = 8
	links      = 2 // of each connector
	clients    = 32
	// showBroken is how many broken promises are listed.
	showBroken = 10
)

// summary is what a run of the test comes to. Durations are in seconds.
type summary struct {
	// KillsHit are the kills that broke at least one request off that had been
	// sent whole.
	KillsHit int `json:"kills_hit"`
	Kills    int `json:"kills"`
	// Broken are the requests that a kill broke off.
	Broken int `json:"requests_broken_by_kills"`

	Accepted      int `json:"accepted"`
	AcceptedKeyed int `json:"accepted_with_key"`
	// Recovered got their 2xx by repeating the key after an unknown outcome.
	Recovered   int `json:"recovered_by_key"`
	Unavailable int `json:"answered_503"`
	Unknown     int `json:"unknown_without_key"`
	Refused     int `json:"never_sent_without_key"`

	ConnectorRuns int `json:"connector_runs"`
	AgentRuns     int `json:"agent_runs"`
	// RowsOnly are connector runs whose client never heard of a success.
	RowsOnly int `json:"rows_without_2xx"`
	Promises int `json:"broken_promises"`

	Seconds float64 `json:"seconds"`
	Rate    float64 `json:"accepted_per_second"`
}

func (s summary) String() string {
	line, err := json.Marshal(s)
	if err != nil {
		line = []byte(err.Error())
	}
	return fmt.Sprintf(`ledger
  kills               %d of %d broke a request (%d requests in all)
  2xx                 %d (%d with a key, %d of these after an unknown outcome)
  503                 %d
  unknown, no key     %d
  never sent, no key  %d
  connector runs      %d, %d of them without a 2xx
  agent runs          %d
  broken promises     %d
  time                %.1f s, %.0f 2xx/s
%s`, s.KillsHit, s.Kills, s.Broken, s.Accepted, s.AcceptedKeyed, s.Recovered, s.Unavailable, s.Unknown, s.Refused,
		s.ConnectorRuns, s.RowsOnly, s.AgentRuns, s.Promises, s.Seconds, s.Rate, line)
}

// Gateways die in the middle of requests, those of runners too; what was answered 2xx
// is there, once and whole, and has ended; nothing else is there but what a client
// cannot know of.
func TestLedger(t *testing.T) {
	ctx := t.Context()
	dsn := testenv.Postgres(t)
	st, err := postgres.Open(ctx, postgres.Options{DSN: dsn, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	require.NoError(t, st.Migrate(ctx))
	ids := seed(t, st)
	require.NoError(t, st.Close())

	dsnFile := filepath.Join(t.TempDir(), "dsn")
	require.NoError(t, os.WriteFile(dsnFile, []byte(dsn), 0o600))
	l := newLoad(ids)
	binary := buildGateway(t)
	for i := range gateways {
		g := newGateway(t, i, binary, dsnFile)
		require.NoError(t, g.start(ctx))
		l.targets = append(l.targets, g)
	}
	team := startRunners(t, l.targets)
	took := l.run(t)

	conn, err := pgx.Connect(ctx, dsn)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(ctx)) }()
	require.NoError(t, awaitEnds(ctx, conn))
	require.NoError(t, team.stop())
	for _, g := range l.targets {
		require.NoError(t, g.stop())
	}
	require.NoError(t, awaitAlone(ctx, conn))
	book, err := readBook(ctx, conn)
	require.NoError(t, err)
	l.judge(t, book, took)
}

// run lets clients post and the killer kill until there is enough of both, and returns
// how long that took.
func (l *load) run(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	group, ctx := errgroup.WithContext(t.Context())
	for i := range clients {
		group.Go(func() error { return l.work(ctx, i) })
	}
	group.Go(func() error {
		defer close(l.enough) // also after an error: the clients end
		return l.kill(ctx, t, *wantAccepted, *wantKills)
	})
	require.NoError(t, group.Wait())
	return time.Since(began)
}

// judge fails the test for each broken promise.
func (l *load) judge(t *testing.T, b *book, took time.Duration) {
	t.Helper()
	broken := append(l.surprises, b.check(l.marks)...)
	s := l.summary(b)
	s.Promises, s.Seconds, s.Rate = len(broken), took.Seconds(), float64(s.Accepted)/took.Seconds()
	t.Log(s)
	for _, fault := range broken[:min(len(broken), showBroken)] {
		t.Error(fault)
	}
	require.Empty(t, broken[min(len(broken), showBroken):], "and more")
	require.GreaterOrEqual(t, s.Accepted, *wantAccepted)
	require.GreaterOrEqual(t, s.KillsHit, *wantKills)
}
