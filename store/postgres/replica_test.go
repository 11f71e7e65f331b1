// SPDX-License-Identifier: Apache-2.0

package postgres_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/testenv"
	"github.com/agentplatform/agentplatform/store"
)

// replica starts a server that waits for data of a primary.
func replica(t *testing.T) (dsn string) {
	t.Helper()
	bin, owner, err := testenv.PostgresBinaries()
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "replica-")
	require.NoError(t, err)
	data := filepath.Join(dir, "data")
	run := func(name string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(bin, name), args...)
		cmd.Dir, cmd.SysProcAttr = dir, &syscall.SysProcAttr{Credential: owner, Pdeathsig: syscall.SIGKILL}
		return cmd
	}
	chown := func(path string) {
		if owner != nil {
			require.NoError(t, os.Chown(path, int(owner.Uid), int(owner.Gid)))
		}
	}
	chown(dir)
	out, err := run("initdb", "--pgdata="+data, "--username=postgres", "--auth=trust", "--no-sync", "--no-instructions", "--locale=C.UTF-8").CombinedOutput()
	require.NoError(t, err, "%s", out)
	signal := filepath.Join(data, "standby.signal")
	require.NoError(t, os.WriteFile(signal, nil, 0o600))
	chown(signal)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := free.Addr().(*net.TCPAddr).Port
	require.NoError(t, free.Close())
	server := run("postgres", "-D", data, "-c", "listen_addresses=127.0.0.1", "-c", "port="+strconv.Itoa(port), "-c", "unix_socket_directories="+dir)
	require.NoError(t, server.Start())
	t.Cleanup(func() {
		require.NoError(t, server.Process.Signal(syscall.SIGQUIT))
		_ = server.Wait() // it was stopped on purpose
		require.NoError(t, os.RemoveAll(dir))
	})
	dsn = fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port)
	require.Eventually(t, func() bool {
		conn, err := pgx.Connect(t.Context(), dsn)
		return err == nil && conn.Close(t.Context()) == nil
	}, time.Minute, 50*time.Millisecond)
	return dsn
}

// A replica is not used, because missing rows would be taken for deleted ones.
func TestOpen_RejectsReplica(t *testing.T) {
	t.Parallel()
	s := openAt(t, replica(t))
	require.ErrorContains(t, s.Ping(t.Context()), "the server is a replica")
	_, err := s.Cluster(t.Context())
	require.ErrorContains(t, err, "the server is a replica")
	require.ErrorIs(t, err, store.ErrAway)
}

// The DSN may name the replica first.
func TestOpen_FindsPrimary(t *testing.T) {
	t.Parallel()
	primary, err := pgx.ParseConfig(testenv.Postgres(t))
	require.NoError(t, err)
	second, err := pgx.ParseConfig(replica(t))
	require.NoError(t, err)
	s := openAt(t, fmt.Sprintf("host=127.0.0.1,127.0.0.1 port=%d,%d user=%s password=%s dbname=%s sslmode=disable",
		second.Port, primary.Port, primary.User, primary.Password, second.Database))
	err = s.Ping(t.Context())
	require.NotErrorIs(t, err, store.ErrAway)
	require.ErrorContains(t, err, "has the manager migrated it?", "because the test stopped it")
}
