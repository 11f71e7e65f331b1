// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// ticks is the number of /proc clock ticks in a second of processor time.
const ticks = 100

// meter reads the processor time of this process, which runs the gateway and the runner, and of all processes of the PostgreSQL
// server.
type meter struct{ server int }

// newMeter asks a server which process it is; without a DSN there is none.
func newMeter(tb testing.TB, dsn string) meter {
	tb.Helper()
	if dsn == "" {
		return meter{}
	}
	conn, err := pgx.Connect(tb.Context(), dsn)
	require.NoError(tb, err)
	defer func() { require.NoError(tb, conn.Close(context.Background())) }()
	var backend int
	require.NoError(tb, conn.QueryRow(tb.Context(), `SELECT pg_backend_pid()`).Scan(&backend))
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", backend))
	require.NoError(tb, err)
	p, err := parseStat(string(stat))
	require.NoError(tb, err)
	return meter{server: p.parent}
}

// cpu is processor time: of this process, and of the server's.
type cpu struct{ own, server time.Duration }

func (c cpu) since(before cpu) cpu { return cpu{c.own - before.own, c.server - before.server} }

// spent returns the total processor time so far.
func (m meter) spent(tb testing.TB) (sum cpu) {
	tb.Helper()
	var own syscall.Rusage
	require.NoError(tb, syscall.Getrusage(syscall.RUSAGE_SELF, &own))
	sum.own = time.Duration(own.Utime.Nano() + own.Stime.Nano())
	if m.server == 0 {
		return sum
	}
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(tb, err)
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // the process has exited: the server's total includes its children
		}
		p, err := parseStat(string(raw))
		require.NoError(tb, err)
		if p.pid == m.server || p.parent == m.server {
			sum.server += p.spent
		}
	}
	return sum
}

// stat is the /proc entry of a process. spent includes its exited children.
type stat struct {
	pid, parent int
	spent       time.Duration
}

// parseStat parses /proc/<pid>/stat. The second field is the command in parentheses, which may contain any characters.
func parseStat(text string) (s stat, err error) {
	open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	fields := strings.Fields(text[end+1:])
	if open < 0 || end < open || len(fields) < 15 {
		return s, fmt.Errorf("reading the state of a process: %q", text)
	}
	numbers := make([]int64, 0, 6)
	for _, field := range slices.Concat([]string{strings.TrimSpace(text[:open]), fields[1]}, fields[11:15]) {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return s, fmt.Errorf("reading the state of a process: %w", err)
		}
		numbers = append(numbers, n)
	}
	s.pid, s.parent = int(numbers[0]), int(numbers[1])
	s.spent = time.Duration(numbers[2]+numbers[3]+numbers[4]+numbers[5]) * time.Second / ticks
	return s, nil
}

func TestParseStat_ReadsTimes(t *testing.T) {
	t.Parallel()
	got, err := parseStat("42 (postgres: a) b) S 7 42 42 0 -1 4194560 100 200 0 0 150 50 25 5 20 0 1 0 100 1000 10")
	require.NoError(t, err)
	require.Equal(t, stat{pid: 42, parent: 7, spent: 2300 * time.Millisecond}, got)
	for _, text := range []string{"", "42 (x", "42 (x) S 7", "42 (x) S y 42 42 0 -1 0 0 0 0 0 1 1 1 1 20"} {
		_, err := parseStat(text)
		require.Error(t, err, text)
	}
}
