// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/testenv"
	"github.com/agentplatform/agentplatform/internal/testenv/reap"
)

// server is the PostgreSQL server of one scene.
type server struct {
	*process
	port     int
	password string
	// ballast is the file that fills its disk; "" where it has the machine's.
	ballast string
}

// newServer creates a server's data folder on a disk with the given number of bytes, or on the machine's disk if the number is
// 0.
func newServer(t *testing.T, disk int64) *server {
	t.Helper()
	bin, owner, err := testenv.PostgresBinaries()
	require.NoError(t, err)
	base, err := reap.Dir()
	require.NoError(t, err)
	dir, err := os.MkdirTemp(base, "pg-")
	require.NoError(t, err)
	t.Cleanup(func() { // its children exit shortly after it and write until then
		require.Eventually(t, func() bool { err = os.RemoveAll(dir); return err == nil }, time.Minute, pollEvery, "%v", err)
	})
	s := &server{port: freePort(t), password: rand.Text()}
	data, passwords := filepath.Join(dir, "data"), filepath.Join(dir, "password")
	require.NoError(t, os.Mkdir(data, 0o700))
	if disk > 0 {
		mount(t, data, disk)
		s.ballast = filepath.Join(data, "ballast")
		data = filepath.Join(data, "pg")
		require.NoError(t, os.Mkdir(data, 0o700))
	}
	require.NoError(t, os.WriteFile(passwords, []byte(s.password+"\n"), 0o600))
	if owner != nil {
		for _, path := range []string{dir, filepath.Join(dir, "data"), data, passwords} {
			require.NoError(t, os.Chown(path, int(owner.Uid), int(owner.Gid)))
		}
	}
	// Small segments of its log, so that a small disk holds several.
	initdb := exec.CommandContext(t.Context(), filepath.Join(bin, "initdb"), "--pgdata="+data, "--username=postgres", "--pwfile="+passwords,
		"--auth=scram-sha-256", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", "--no-instructions", "--wal-segsize=1")
	initdb.Dir, initdb.SysProcAttr = dir, &syscall.SysProcAttr{Credential: owner}
	out, err := initdb.CombinedOutput()
	require.NoError(t, err, "making a database: %s", out)
	s.process = newProcess(t, "postgres", filepath.Join(bin, "postgres"), "-D", data,
		"-c", "listen_addresses=127.0.0.1", "-c", "port="+strconv.Itoa(s.port), "-c", "unix_socket_directories="+dir,
		"-c", "max_connections=200", "-c", "shared_buffers=64MB", "-c", "min_wal_size=5MB", "-c", "max_wal_size=32MB",
		"-c", "fsync=on", "-c", "synchronous_commit=on", "-c", "full_page_writes=on")
	s.as, s.process.dir = owner, dir
	return s
}

func (s *server) addr() string { return loopback(s.port) }

// dsn returns the URL of the database at an address.
func (s *server) dsn(addr string) string {
	return fmt.Sprintf("postgres://postgres:%s@%s/postgres?sslmode=disable", s.password, addr)
}

// dsnFile writes the DSN to a file and returns its path.
func (s *server) dsnFile(t *testing.T, addr string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "dsn")
	require.NoError(t, os.WriteFile(path, []byte(s.dsn(addr)), 0o600))
	return path
}

// start starts the server and returns once it accepts connections.
func (s *server) start(ctx context.Context) error {
	if err := s.launch(); err != nil {
		return err
	}
	return s.await(ctx, s.answers)
}

// answers reports whether the server accepts a connection.
func (s *server) answers(ctx context.Context) bool {
	conn, err := s.connect(ctx)
	if err != nil {
		return false
	}
	return conn.Close(ctx) == nil
}

// connect opens a direct connection for the test. The gateways connect through links.
func (s *server) connect(ctx context.Context) (*pgx.Conn, error) {
	return pgx.Connect(ctx, s.dsn(s.addr()))
}

// open implements records.
func (s *server) open() (*sql.DB, error) { return sql.Open("pgx", s.dsn(s.addr())) }

// alone implements records. A statement of a dead gateway may outlive it.
func (s *server) alone(ctx context.Context, conn *sql.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, aloneTimeout)
	defer cancel()
	return poll(ctx, askEvery, func() (bool, error) {
		var others int
		err := conn.QueryRowContext(ctx, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
			AND backend_type = 'client backend' AND pid <> pg_backend_pid()`).Scan(&others)
		return others == 0, err
	})
}

// crash kills the server with all its processes and returns once all of them are gone.
func (s *server) crash(ctx context.Context) error {
	if s.cmd == nil {
		return nil
	}
	children := childrenOf(s.cmd.Process.Pid)
	s.sigkill()
	for _, pid := range children {
		_ = syscall.Kill(pid, syscall.SIGKILL) // some have gone by themselves
	}
	return poll(ctx, pollEvery, func() (bool, error) {
		for _, pid := range children {
			if parent, state := stateOf(pid); parent != 0 && state != "Z" {
				return false, nil
			}
		}
		return true, nil
	})
}

// childrenOf returns the child processes of a process.
func childrenOf(pid int) (children []int) {
	paths, _ := filepath.Glob("/proc/[0-9]*") // errs on a bad pattern only
	for _, path := range paths {
		child, err := strconv.Atoi(filepath.Base(path))
		if err != nil {
			continue
		}
		if parent, _ := stateOf(child); parent == pid {
			children = append(children, child)
		}
	}
	return children
}

// stateOf returns the parent and the state of a process, or 0 if the process does not exist.
func stateOf(pid int) (parent int, state string) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, ""
	}
	_, after, _ := strings.Cut(string(raw), ") ")
	fields := strings.Fields(after)
	if len(fields) < 2 {
		return 0, ""
	}
	parent, _ = strconv.Atoi(fields[1])
	return parent, fields[0]
}

// mount mounts an in-memory disk with the given number of bytes at a folder until the test ends.
func mount(t *testing.T, at string, bytes int64) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("a scene with a full disk mounts a small one, which only root may do: run the tests as root")
	}
	require.NoError(t, syscall.Mount("tmpfs", at, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV, fmt.Sprintf("size=%d,mode=0700", bytes)),
		"mounting a small disk: a container needs CAP_SYS_ADMIN for it")
	t.Cleanup(func() { require.NoError(t, syscall.Unmount(at, syscall.MNT_DETACH)) })
}
