// SPDX-License-Identifier: Apache-2.0

package testenv

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/agentplatform/agentplatform/internal/testenv/reap"
)

// server is a running PostgreSQL server.
type server struct {
	port     int
	password string
}

// startAttempts limits the tried ports, because another process can take a port between its choice
// and its use.
const startAttempts = 5

// startTimeout limits the start of a server.
const startTimeout = 60 * time.Second

// errPortTaken means that another process has the chosen port.
var errPortTaken = errors.New("the port is taken")

// startServer creates a data folder and starts a server, as a user other than root, which
// PostgreSQL requires.
func startServer() (*server, error) {
	bin, err := postgresBinaries()
	if err != nil {
		return nil, err
	}
	credential, err := unprivileged()
	if err != nil {
		return nil, err
	}
	base, err := reap.Dir()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(base, "pg")
	if err := ownedDir(dir, credential); err != nil {
		return nil, err
	}
	s := &server{password: rand.Text()}
	if err := s.initDataFolder(bin, dir, credential); err != nil {
		return nil, err
	}
	for range startAttempts {
		if err = s.startServer(bin, dir, credential); !errors.Is(err, errPortTaken) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// initDataFolder fills the data folder.
func (s *server) initDataFolder(bin, dir string, credential *syscall.Credential) error {
	passwords := filepath.Join(dir, "password")
	if err := os.WriteFile(passwords, []byte(s.password+"\n"), 0o600); err != nil {
		return fmt.Errorf("writing the server's password: %w", err)
	}
	if credential != nil {
		if err := os.Chown(passwords, int(credential.Uid), int(credential.Gid)); err != nil {
			return fmt.Errorf("handing over the server's password: %w", err)
		}
	}
	cmd := exec.Command(filepath.Join(bin, "initdb"), "--pgdata="+filepath.Join(dir, "data"),
		"--username=postgres", "--pwfile="+passwords, "--auth=scram-sha-256",
		"--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", "--no-instructions")
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("running initdb: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// startServer starts the server on a free port and waits until it responds.
func (s *server) startServer(bin, dir string, credential *syscall.Credential) error {
	port, err := FreePort()
	if err != nil {
		return err
	}
	s.port = port
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return fmt.Errorf("creating the server's log: %w", err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(filepath.Join(bin, "postgres"), "-D", filepath.Join(dir, "data"),
		"-c", "listen_addresses=127.0.0.1", "-c", "port="+strconv.Itoa(port),
		"-c", "unix_socket_directories="+dir,
		"-c", "autovacuum_naptime=5s", "-c", "autovacuum_max_workers=6", // as docs/operations/postgresql.md recommends
		"-c", "max_connections=200", "-c", "shared_buffers=128MB",
		"-c", "fsync=on", "-c", "synchronous_commit=on", "-c", "full_page_writes=on",
	)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	// The server has its own session: a Ctrl-C ends the tests first, and the reaper then ends the
	// server.
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: credential, Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting postgres: %w", err)
	}
	if err := reap.Process("postgres", cmd.Process, "QUIT"); err != nil {
		return errors.Join(err, cmd.Process.Kill())
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	return s.awaitReady(exited, log.Name())
}

// awaitReady returns when the server responds, or the reason why it cannot.
func (s *server) awaitReady(exited <-chan error, log string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		conn, err := pgx.Connect(ctx, s.databaseURL("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-ticker.C:
		case err := <-exited:
			said, _ := os.ReadFile(log) // best effort, as an explanation
			if bytes.Contains(said, []byte("Address already in use")) {
				return errPortTaken
			}
			return fmt.Errorf("postgres ended at once: %w: %s", err, bytes.TrimSpace(said))
		case <-ctx.Done():
			said, _ := os.ReadFile(log) // best effort, as an explanation
			return fmt.Errorf("postgres does not answer within %s: %w: %s", startTimeout, err, bytes.TrimSpace(said))
		}
	}
}

// unprivileged returns the user of the server if the tests run as root: postgres if it exists, else
// nobody. nil means the user of the tests.
func unprivileged() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(uidErr, gidErr); err != nil {
			return nil, fmt.Errorf("reading the ids of user %q: %w", name, err)
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL does not run as root, and there is neither a user postgres nor nobody: " +
		"run the tests as another user")
}

// ownedDir creates a folder that belongs to the server's user.
func ownedDir(dir string, credential *syscall.Credential) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("making the server's folder: %w", err)
	}
	if credential == nil {
		return nil
	}
	if err := os.Chown(dir, int(credential.Uid), int(credential.Gid)); err != nil {
		return fmt.Errorf("handing over the server's folder: %w", err)
	}
	return nil
}
