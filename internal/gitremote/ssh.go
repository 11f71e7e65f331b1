// SPDX-License-Identifier: Apache-2.0

package gitremote

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"golang.org/x/crypto/ssh"

	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
)

// sshHandshakeTimeout bounds connecting and authenticating.
const sshHandshakeTimeout = 30 * time.Second

// maxRounds is the most rounds of key derivation of a private key: ssh-keygen makes 24.
const maxRounds = 64

// sshRemote speaks Git over a connection of the guarded dialer, which go-git's
// own SSH transport has no place for.
func sshRemote(ep *transport.Endpoint, secret Secret, guard *egress.Guard) (*Remote, error) {
	s, err := ReadSecrets(secret, runnerconfig.GitIdentity, runnerconfig.GitKnownHosts, runnerconfig.GitPassword)
	if err != nil {
		return nil, err
	}
	if s[runnerconfig.GitIdentity] == "" {
		return nil, Remedy("git over SSH needs a private key: put it into the Secret as identity")
	}
	if strings.TrimSpace(s[runnerconfig.GitKnownHosts]) == "" {
		return nil, Remedy("git over SSH needs the server's host key: put the output of `ssh-keyscan %s` into the Secret as known_hosts, after checking it", ep.Host)
	}
	signer, err := parseIdentity(s[runnerconfig.GitIdentity], s[runnerconfig.GitPassword])
	if err != nil {
		return nil, err
	}
	hosts, err := parseKnownHosts(s[runnerconfig.GitKnownHosts])
	if err != nil {
		return nil, err
	}
	if ep.User == "" {
		ep.User = "git"
	}
	port := ep.Port
	if port == 0 {
		port = 22
	}
	address := net.JoinHostPort(ep.Host, strconv.Itoa(port))
	config := &ssh.ClientConfig{
		User: ep.User, Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)},
		HostKeyCallback: hosts.HostKeyCallback(), HostKeyAlgorithms: hosts.HostKeyAlgorithms(address),
		Timeout: sshHandshakeTimeout,
	}
	return &Remote{Shown: ep.String(), connect: func(ctx context.Context) (Session, error) {
		return dialSSH(ctx, guard, address, ep.Path, config)
	}}, nil
}

func parseIdentity(key, passphrase string) (ssh.Signer, error) {
	if rounds := derivationRounds(key); rounds > maxRounds {
		return nil, Remedy("identity of the git Secret is protected by %d rounds of key derivation, at most %d are taken: write it anew with `ssh-keygen -p -a 16`",
			rounds, maxRounds)
	}
	var signer ssh.Signer
	var err error
	if passphrase = strings.TrimRight(passphrase, "\r\n"); passphrase != "" {
		signer, err = ssh.ParsePrivateKeyWithPassphrase([]byte(key), []byte(passphrase))
	} else {
		signer, err = ssh.ParsePrivateKey([]byte(key))
	}
	var missing *ssh.PassphraseMissingError
	switch {
	case errors.As(err, &missing):
		return nil, Remedy("identity of the git Secret is protected by a passphrase: put it into the Secret as password")
	case err != nil:
		return nil, Remedy("identity of the git Secret is not a private key in PEM, or its passphrase (password) is wrong")
	}
	return signer, nil
}

// derivationRounds is how often a key's passphrase is hashed to open it, which nothing
// interrupts; 0 of a key that is open, or is none.
func derivationRounds(key string) uint32 {
	const magic = "openssh-key-v1\x00"
	block, _ := pem.Decode([]byte(key))
	if block == nil || !bytes.HasPrefix(block.Bytes, []byte(magic)) {
		return 0
	}
	var file struct {
		Cipher, KDF, Options string
		Rest                 []byte `ssh:"rest"`
	}
	var options struct {
		Salt   string
		Rounds uint32
	}
	if ssh.Unmarshal(block.Bytes[len(magic):], &file) != nil || ssh.Unmarshal([]byte(file.Options), &options) != nil {
		return 0
	}
	return options.Rounds
}

// sshSession runs git-upload-pack on the server.
type sshSession struct {
	client  *ssh.Client
	command *ssh.Session
	stdin   io.WriteCloser
	stdout  *Bounded
	stderr  *tail
	ended   func() bool
}

func dialSSH(ctx context.Context, guard *egress.Guard, address, path string, config *ssh.ClientConfig) (Session, error) {
	conn, err := guard.DialContext(egress.Git)(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	// The protocol knows no contexts: the end of ctx closes the connection.
	ended := context.AfterFunc(ctx, func() { _ = conn.Close() })
	s, err := openSSH(conn, address, path, config)
	if err != nil {
		ended()
		return nil, errors.Join(err, ignoreClosed(conn.Close()))
	}
	s.ended = ended
	return s, nil
}

func openSSH(conn net.Conn, address, path string, config *ssh.ClientConfig) (*sshSession, error) {
	if err := conn.SetDeadline(time.Now().Add(config.Timeout)); err != nil {
		return nil, fmt.Errorf("bounding the handshake: %w", err)
	}
	c, channels, requests, err := ssh.NewClientConn(conn, address, config)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("ending the handshake: %w", err)
	}
	s := &sshSession{client: ssh.NewClient(c, channels, requests), stderr: &tail{}}
	command, err := s.client.NewSession()
	if err != nil {
		return nil, fmt.Errorf("opening a session: %w", err)
	}
	s.command, command.Stderr = command, s.stderr
	if s.stdin, err = command.StdinPipe(); err != nil {
		return nil, fmt.Errorf("opening a session: %w", err)
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("opening a session: %w", err)
	}
	s.stdout = &Bounded{R: stdout}
	if err := command.Start("git-upload-pack '" + strings.ReplaceAll(path, "'", `'\''`) + "'"); err != nil {
		return nil, fmt.Errorf("starting git-upload-pack: %w", err)
	}
	return s, nil
}

// Refs implements Session.
func (s *sshSession) Refs(context.Context) (*packp.AdvRefs, error) {
	refs := packp.NewAdvRefs()
	s.stdout.Allow(MaxRefs, errRefs)
	if err := refs.Decode(s.stdout); err != nil && !errors.Is(err, packp.ErrEmptyAdvRefs) {
		return nil, s.failed(err)
	}
	if refs.IsEmpty() {
		return nil, transport.ErrEmptyRemoteRepository
	}
	transport.FilterUnsupportedCapabilities(refs.Capabilities)
	return refs, nil
}

// Pack implements Session.
func (s *sshSession) Pack(_ context.Context, req *packp.UploadPackRequest) (io.ReadCloser, error) {
	if err := req.Validate(); err != nil {
		return nil, fmt.Errorf("asking for objects: %w", err)
	}
	var message bytes.Buffer
	err := errors.Join(req.UploadRequest.Encode(&message), req.UploadHaves.Encode(&message, true),
		pktline.NewEncoder(&message).Encodef("done\n"))
	if err != nil {
		return nil, fmt.Errorf("asking for objects: %w", err)
	}
	_, err = s.stdin.Write(message.Bytes())
	if err = errors.Join(err, s.stdin.Close()); err != nil {
		return nil, s.failed(err)
	}
	s.stdout.Allow(maxPreamble, errPreamble)
	resp := packp.NewUploadPackResponse(req)
	if err := resp.Decode(io.NopCloser(s.stdout)); err != nil {
		return nil, s.failed(err)
	}
	s.stdout.Allow(MaxPack+maxPreamble, ErrPack)
	return resp, nil
}

// failed is an error with what the server said. It waits for the command to
// end, for what it says may come after its output has ended; closing the input
// makes it end. The end of the session's context ends the waiting too.
func (s *sshSession) failed(err error) error {
	if over := s.stdout.Exceeded(); over != nil {
		return over // one that sends too much need not end
	}
	ended := errors.Join(ignoreClosed(s.stdin.Close()), s.command.Wait())
	return &serverError{said: s.stderr.String(), err: errors.Join(err, ended)}
}

// Close ends the session and its connection.
func (s *sshSession) Close() error {
	s.ended()
	return ignoreClosed(s.client.Close())
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// serverError is an error with what the server said about it.
type serverError struct {
	said string
	err  error
}

func (e *serverError) Error() string {
	if e.said == "" {
		return e.err.Error()
	}
	return e.said
}

func (e *serverError) Unwrap() error { return e.err }
