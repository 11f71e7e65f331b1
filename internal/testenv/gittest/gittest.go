// SPDX-License-Identifier: Apache-2.0

// Package gittest serves Git repositories to tests with git http-backend and sshd, the usual server
// programs.
package gittest

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"
)

// Repository is a bare Git repository that tests commit to.
type Repository struct {
	// Dir is the folder that contains repo.git.
	Dir string
	t   testing.TB
	// Work is the working copy.
	Work string
}

// New creates an empty repository.
func New(t testing.TB) *Repository {
	t.Helper()
	dir := t.TempDir()
	r := &Repository{t: t, Dir: dir, Work: filepath.Join(dir, "work")}
	r.Git(dir, "init", "-q", "--bare", "-b", "main", "repo.git")
	r.Git(dir, "init", "-q", "-b", "main", "work")
	r.Git(r.Work, "remote", "add", "origin", filepath.Join(dir, "repo.git"))
	return r
}

// Git runs a command in a folder and returns its output.
func (r *Repository) Git(dir string, args ...string) string {
	r.t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(r.t.Context()), "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.com", "GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.com",
		"GIT_AUTHOR_DATE=2026-01-01T00:00:00Z", "GIT_COMMITTER_DATE=2026-01-01T00:00:00Z")
	out, err := cmd.CombinedOutput()
	require.NoError(r.t, err, "git %v: %s", args, out)
	return strings.TrimSpace(string(out))
}

// Commit writes files (alternating names and contents) to a branch and returns the commit's hash.
func (r *Repository) Commit(branch string, pairs ...string) string {
	r.t.Helper()
	r.Git(r.Work, "checkout", "-q", "-B", branch)
	for i := 0; i < len(pairs); i += 2 {
		path := filepath.Join(r.Work, pairs[i])
		require.NoError(r.t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(r.t, os.WriteFile(path, []byte(pairs[i+1]), 0o644))
	}
	r.Git(r.Work, "add", "-A")
	r.Git(r.Work, "commit", "-q", "--allow-empty", "-m", "Change "+branch+"\n\nWith a body.")
	r.Git(r.Work, "push", "-q", "-f", "origin", branch)
	return r.Git(r.Work, "rev-parse", "HEAD")
}

// Gate decides about a request; nil allows all.
type Gate func(w http.ResponseWriter, r *http.Request) (status int)

// HTTPS serves the repository with git http-backend. It returns the URL and the PEM of the
// certificate's own authority.
func (r *Repository) HTTPS(t testing.TB, g Gate) (url, ca string) {
	t.Helper()
	backend := filepath.Join(r.Git(r.Dir, "--exec-path"), "git-http-backend")
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if g != nil {
			if status := g(w, req); status != 0 {
				w.WriteHeader(status)
				return
			}
		}
		(&cgi.Handler{Path: backend, Logger: log.New(io.Discard, "", 0), Stderr: io.Discard, Env: []string{
			"GIT_PROJECT_ROOT=" + r.Dir, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_GLOBAL=/dev/null",
			"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
		}}).ServeHTTP(w, req)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	return server.URL + "/repo.git", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}

// SSHServer is a real sshd on a loopback port.
type SSHServer struct {
	Port int
	User string
	// Identity is the accepted private key.
	Identity   string
	KnownHosts string
}

// NewKey creates a key pair. The private key is PEM.
func NewKey(t testing.TB) (private string, public ssh.PublicKey) {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	block, err := ssh.MarshalPrivateKey(key, "")
	require.NoError(t, err)
	public, err = ssh.NewPublicKey(pub)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(block)), public
}

var sshdInstalled = sync.OnceValues(func() (string, error) {
	const path = "/usr/sbin/sshd"
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	remedy := fmt.Errorf("there is no %s: install an OpenSSH server (`sudo apt-get install openssh-server`), or run the tests as root where apt-get is, to have it installed", path)
	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
		return "", remedy
	}
	fmt.Fprintln(os.Stderr, "installing openssh-server by apt-get for the tests of git over SSH")
	install := "flock /tmp/agentplatform-install-openssh.lock sh -c 'apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends openssh-server'"
	if out, err := exec.Command("sh", "-c", install).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w; apt-get: %w: %s", remedy, err, out)
	}
	return path, nil
})

// StartSSH runs sshd until the test ends.
func StartSSH(t testing.TB) *SSHServer {
	t.Helper()
	sshd, err := sshdInstalled()
	require.NoError(t, err)
	dir := t.TempDir()
	hostKey, hostPublic := NewKey(t)
	identity, public := NewKey(t)
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	me, err := user.Current()
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := listener.Addr().(*net.TCPAddr).Port
	require.NoError(t, listener.Close())
	if os.Geteuid() == 0 {
		require.NoError(t, os.MkdirAll("/run/sshd", 0o755)) // needed for sshd's privilege separation
	}
	config := write("sshd_config", strings.Join([]string{
		fmt.Sprintf("ListenAddress 127.0.0.1:%d", port), "HostKey " + write("host_key", hostKey),
		"AuthorizedKeysFile " + write("authorized_keys", string(ssh.MarshalAuthorizedKey(public))),
		"PasswordAuthentication no", "KbdInteractiveAuthentication no", "PermitRootLogin prohibit-password", "StrictModes no", "UsePAM no",
		// A nested shell does not read the user's ~/.bashrc, whose commands could print something into the protocol.
		"SetEnv SHLVL=2",
		"PidFile none", "LogLevel ERROR", "",
	}, "\n"))
	var said bytes.Buffer
	cmd := exec.Command(sshd, "-D", "-e", "-f", config)
	cmd.Stderr = &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	address := fmt.Sprintf("127.0.0.1:%d", port)
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	}, 10*time.Second, 20*time.Millisecond, "sshd does not listen: %s", &said)
	return &SSHServer{
		Port: port, User: me.Username, Identity: identity,
		KnownHosts: fmt.Sprintf("[127.0.0.1]:%d %s", port, ssh.MarshalAuthorizedKey(hostPublic)),
	}
}

// URL returns the address of a repository in a local folder.
func (s *SSHServer) URL(dir string) string {
	return fmt.Sprintf("ssh://%s@127.0.0.1:%d%s", s.User, s.Port, dir)
}
