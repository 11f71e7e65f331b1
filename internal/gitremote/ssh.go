// SPDX-License-Identifier: Apache-2.0

package gitremote

import (
	"bytes"
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
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

// sshHandshakeTimeout limits connecting and authenticating.
const sshHandshakeTimeout = 30 * time.Second

// maxRounds limits the rounds of key derivation of a private key. ssh-keygen uses 24.
const maxRounds = 64

// sshRemote uses a connection of the guarded dialer, which go-git's own SSH transport does not
// support.
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
		return nil, Remedy("identity of the git Secret is protected by %d rounds of key derivation, the limit is %d: rewrite it with `ssh-keygen -p -a 16`",
			rounds, maxRounds)
	}
	passphrase = strings.TrimRight(passphrase, "\r\n")
	if bits := identityBits(key, passphrase); bits > maxRSA {
		return nil, Remedy("identity of the git Secret has an RSA key of %d bits, the limit is %d: create a key with `ssh-keygen -t ed25519`", bits, maxRSA)
	}
	var signer ssh.Signer
	var err error
	if passphrase != "" {
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

// identityBits returns the bits of an RSA key in PKCS #1 or PKCS #8, without checking the key, because
// the check takes as long as a signature. crypto/ssh limits keys in its own format. It returns 0 for
// other keys.
func identityBits(key, passphrase string) int {
	block, _ := pem.Decode([]byte(key))
	if block == nil {
		return 0
	}
	der := block.Bytes
	if x509.IsEncryptedPEMBlock(block) { //nolint:staticcheck // crypto/ssh accepts such keys too
		var err error
		if der, err = x509.DecryptPEMBlock(block, []byte(passphrase)); err != nil { //nolint:staticcheck // as above
			return 0
		}
	}
	var pkcs8 struct {
		Version   int
		Algorithm pkix.AlgorithmIdentifier
		Key       []byte
	}
	if _, err := asn1.Unmarshal(der, &pkcs8); err == nil {
		der = pkcs8.Key
	}
	var pkcs1 struct {
		Version int
		N       *big.Int
	}
	// Unmarshal ignores the numbers after N.
	if _, err := asn1.Unmarshal(der, &pkcs1); err != nil {
		return 0
	}
	return pkcs1.N.BitLen()
}

// derivationRounds returns how often a key's passphrase is hashed, because the hashing cannot be
// interrupted. It returns 0 for an unencrypted or invalid key.
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
	// The protocol does not support contexts, so the end of ctx closes the connection.
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
		return nil, s.sessionError(err)
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
		return nil, fmt.Errorf("requesting objects: %w", err)
	}
	var message bytes.Buffer
	err := errors.Join(req.UploadRequest.Encode(&message), req.UploadHaves.Encode(&message, true),
		pktline.NewEncoder(&message).Encodef("done\n"))
	if err != nil {
		return nil, fmt.Errorf("requesting objects: %w", err)
	}
	_, err = s.stdin.Write(message.Bytes())
	if err = errors.Join(err, s.stdin.Close()); err != nil {
		return nil, s.sessionError(err)
	}
	s.stdout.Allow(maxPreamble, errPreamble)
	resp := packp.NewUploadPackResponse(req)
	if err := resp.Decode(io.NopCloser(s.stdout)); err != nil {
		return nil, s.sessionError(err)
	}
	s.stdout.Allow(MaxPack+maxPreamble, ErrPack)
	return resp, nil
}

// sessionError returns an error with the server's message. It closes the input and waits for the command
// to end, because the message can arrive after the output. The end of the session's context ends
// the wait.
func (s *sshSession) sessionError(err error) error {
	if over := s.stdout.Exceeded(); over != nil {
		return over // a command that sends too much may not end
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

// serverError is an error with the server's message.
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
