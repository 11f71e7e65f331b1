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

// startAttempts is how many ports are tried: another process may take one
// between its choice and its use.
const startAttempts = 5

// startTimeout is how long a server may take until it answers.
const startTimeout = 60 * time.Second

// errPortTaken says that another process has the chosen port.
var errPortTaken = errors.New("the port is taken")

// startServer makes a data folder and starts a server on it, as a user other
// than root, which PostgreSQL insists on.
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
	if err := s.initdb(bin, dir, credential); err != nil {
		return nil, err
	}
	for range startAttempts {
		if err = s.launch(bin, dir, credential); !errors.Is(err, errPortTaken) {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// initdb fills the data folder.
func (s *server) initdb(bin, dir string, credential *syscall.Credential) error {
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

// launch starts the server on a free port and waits until it answers.
func (s *server) launch(bin, dir string, credential *syscall.Credential) error {
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
		"-c", "autovacuum_naptime=5s", "-c", "autovacuum_max_workers=6", // as docs/operations.md says
		"-c", "max_connections=200", "-c", "shared_buffers=128MB",
		"-c", "fsync=on", "-c", "synchronous_commit=on", "-c", "full_page_writes=on",
	)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	// A session of its own: a Ctrl-C at the terminal ends the tests first, and
	// the reaper then the server.
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

// awaitReady returns once the server answers, or says why it will not.
func (s *server) awaitReady(exited <-chan error, log string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		conn, err := pgx.Connect(ctx, s.dsn("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-ticker.C:
		case err := <-exited:
			said, _ := os.ReadFile(log) // best effort: it only explains
			if bytes.Contains(said, []byte("Address already in use")) {
				return errPortTaken
			}
			return fmt.Errorf("postgres ended at once: %w: %s", err, bytes.TrimSpace(said))
		case <-ctx.Done():
			said, _ := os.ReadFile(log) // best effort: it only explains
			return fmt.Errorf("postgres does not answer within %s: %w: %s", startTimeout, err, bytes.TrimSpace(said))
		}
	}
}

// unprivileged is the user that the server runs as when the tests run as root:
// postgres where there is one, else nobody. nil means: as the tests themselves.
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

// ownedDir makes a folder that belongs to the server's user.
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
