// SPDX-License-Identifier: Apache-2.0

package gitremote

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"
	"github.com/stretchr/testify/require"
	"golang.org/x/crypto/ssh"

	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/testenv/gittest"
)

// TestSecretsAreBounded: before anything is parsed, with the key in the error.
func TestSecretsAreBounded(t *testing.T) {
	t.Parallel()
	identity, public := gittest.NewKey(t)
	key := fmt.Sprintf("%s %s", public.Type(), strings.Repeat("A", 40))
	label := strings.Repeat("a", 64)
	for name, tt := range map[string]struct {
		url, key, value, want string
	}{
		"known_hosts too long": {"git@host:x.git", "known_hosts", strings.Repeat("x", 64<<10+1), "known_hosts of the git Secret has 65537 bytes"},
		"identity too long":    {"git@host:x.git", "identity", strings.Repeat("x", 16<<10+1), "identity of the git Secret has 16385 bytes"},
		"ca.crt too long":      {"https://host/x.git", "ca.crt", strings.Repeat("x", 64<<10+1), "ca.crt of the git Secret has 65537 bytes"},
		"password too long":    {"https://host/x.git", "password", strings.Repeat("x", 16<<10+1), "password of the git Secret has 16385 bytes"},
		"two stars":            {"git@host:x.git", "known_hosts", "*a*b " + key, `the pattern "*a*b", at most one *`},
		"two stars, later":     {"git@host:x.git", "known_hosts", "# *a*\na,!*a*\t" + key, `the pattern "!*a*", at most one *`},
		"of an authority":      {"git@host:x.git", "known_hosts", "@cert-authority \t*a*b " + key, `the pattern "*a*b", at most one *`},
		"revoked":              {"git@host:x.git", "known_hosts", "  @revoked *a*b " + key, `the pattern "*a*b", at most one *`},
		"after no comment":     {"git@host:x.git", "known_hosts", "@cert-authority #x,*a*b " + key, `the pattern "*a*b", at most one *`},
		"dear passphrase":      {"git@host:x.git", "identity", withRounds(t, maxRounds+1), "65 rounds of key derivation, at most 64"},
		"long label":           {"https://" + label + ".org/x.git", "", "", "a host that cannot be"},
		"long name, over SSH":  {"git@" + strings.Repeat("a.", 127) + ":x.git", "", "", "a host that cannot be"},
	} {
		t.Run(name, func(t *testing.T) {
			data := map[string][]byte{"identity": []byte(identity), "known_hosts": []byte("host " + key)}
			data[tt.key] = []byte(tt.value)
			_, err := New(tt.url, Values(data), egress.New(egress.Rules{}))
			require.ErrorContains(t, err, tt.want)
			require.ErrorAs(t, err, new(RemedyError))
		})
	}
	require.NoError(t, checkPatterns("*.example.com,10.0.0.? "+key+" a ** comment\n"))
}

// withRounds is a private key whose passphrase is hashed so often.
func withRounds(t *testing.T, rounds uint32) string {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	block, err := ssh.MarshalPrivateKeyWithPassphrase(private, "", []byte("x"))
	require.NoError(t, err)
	// The options of the derivation are a salt and, at their end, the rounds.
	name := []byte("\x00\x00\x00\x06bcrypt")
	options := block.Bytes[bytes.Index(block.Bytes, name)+len(name):]
	size := binary.BigEndian.Uint32(options)
	binary.BigEndian.PutUint32(options[size:], rounds)
	require.Equal(t, rounds, derivationRounds(string(pem.EncodeToMemory(block))))
	return string(pem.EncodeToMemory(block))
}

// TestABranchIsNoTag: what is followed is a branch, whatever tags are called.
func TestABranchIsNoTag(t *testing.T) {
	t.Parallel()
	refs := packp.NewAdvRefs()
	refs.References["refs/tags/main"] = plumbing.NewHash(anyHash)
	_, _, err := Branch(refs, "main")
	require.ErrorContains(t, err, `no branch "main"`)
	hash, name, err := Resolve(refs, "main")
	require.NoError(t, err)
	require.Equal(t, []string{anyHash, "main"}, []string{hash.String(), name})
}

// TestAListOfTipsIsScanned: what is no list is refused at its first line, and of what is
// one little is kept.
func TestAListOfTipsIsScanned(t *testing.T) {
	t.Parallel()
	head := packet(anyHash + " HEAD\x00symref=HEAD:refs/heads/main symref=HEAD:refs/heads/other multi_ack agent=x filter shallow\n")
	main, end := packet(anyHash+" refs/heads/main\n"), "0000"
	for name, tt := range map[string]struct {
		said string
		err  error
	}{
		"tiny lines":         {head + strings.Repeat("0009 abcd", 1000), errTips},
		"hash too long":      {head + packet(strings.Repeat("1", 64)+" refs/heads/main"), errTips},
		"no hexadecimals":    {head + packet(strings.Repeat("x", 40)+" refs/heads/main"), errTips},
		"a page":             {"<html>", errTips},
		"no end":             {head + main, io.ErrUnexpectedEOF},
		"nothing":            {"", io.ErrUnexpectedEOF},
		"empty":              {end, transport.ErrEmptyRemoteRepository},
		"empty, over HTTP":   {packet("# service=git-upload-pack\n") + end + end, transport.ErrEmptyRemoteRepository},
		"empty, of new Git":  {packet(strings.Repeat("0", 40)+" capabilities^{}\x00agent=x") + end, transport.ErrEmptyRemoteRepository},
		"sha256":             {packet(anyHash+" HEAD\x00object-format=sha256") + end, Remedy(`the repository names its objects by "sha256", only sha1 is supported; use a repository with that format`)},
		"as it should":       {head + strings.Repeat(packet(anyHash+" refs/heads/some"), 100) + main + packet("shallow "+anyHash) + end, nil},
		"as it is over HTTP": {packet("# service=git-upload-pack\n") + end + head + main + end, nil},
	} {
		t.Run(name, func(t *testing.T) {
			answered := 0
			tips, err := scanTips(strings.NewReader(tt.said), []string{"", "release"}, func() { answered++ })
			require.Equal(t, 1, answered)
			require.ErrorIs(t, err, tt.err)
			if err != nil {
				return
			}
			require.Len(t, tips.References, 1)
			commit, branch, err := Resolve(tips, "")
			require.NoError(t, err)
			require.Equal(t, anyHash+" main", commit.String()+" "+branch)
			_, _, err = Resolve(tips, "release")
			require.ErrorContains(t, err, `no branch or tag "release"`)
		})
	}
}

func TestSession_RejectsEndlessAndForbiddenLists(t *testing.T) {
	t.Parallel()
	head := packet(anyHash + " HEAD\x00symref=HEAD:refs/heads/main\n")
	main := packet(anyHash + " refs/heads/main\n")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/endless/info/refs":
			_, _ = io.Copy(w, endless(packet("# service=git-upload-pack\n")+"0000"+head, main))
		default:
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	t.Cleanup(server.Close)
	rules, err := egress.Flags{Allow: "git=127.0.0.0/8"}.Rules()
	require.NoError(t, err)
	for path, want := range map[string]string{
		"/endless": "list of branches and tags is larger than 10 MiB", "/forbidden": "does not exist or needs credentials",
	} {
		t.Run(path, func(t *testing.T) {
			remote, err := New(server.URL+path, Values(nil), egress.New(rules))
			require.NoError(t, err)
			session, err := remote.Connect(t.Context())
			require.NoError(t, err)
			_, err = session.Tips(t.Context(), []string{"main"}, func() {})
			require.Error(t, err)
			require.Contains(t, Explain("u", false, err), want)
			require.NoError(t, session.Close())
		})
	}
}

// TestADumbServerIsNamed: plain files, as git update-server-info makes them for a web server,
// are told from a connection that broke off; so are an empty repository's, and a page.
func TestADumbServerIsNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, refs := range map[string]string{
		"full": anyHash + "\trefs/heads/main\n" + anyHash + "\trefs/tags/v1\n", "empty": "", "page": "<!doctype html><p>Sign in",
	} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, name, "info"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name, "info", "refs"), []byte(refs), 0o600))
	}
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(server.Close)
	rules, err := egress.Flags{Allow: "git=127.0.0.0/8"}.Rules()
	require.NoError(t, err)
	for _, name := range []string{"full", "empty", "page"} {
		remote, err := New(server.URL+"/"+name, Values(nil), egress.New(rules))
		require.NoError(t, err)
		session, err := remote.Connect(t.Context())
		require.NoError(t, err)
		_, tips := session.Tips(t.Context(), []string{"main"}, func() {})
		_, refs := session.Refs(t.Context())
		for _, err := range []error{tips, refs} {
			require.ErrorIs(t, err, errForeign, name)
			require.Contains(t, Explain("u", false, err), "serve it with git http-backend, use an SSH URL, or correct git.url", name)
		}
		require.NoError(t, session.Close())
	}
}

// TestExplanationsTellNothingOfThisMachine: the same text for the same cause.
func TestExplanationsTellNothingOfThisMachine(t *testing.T) {
	t.Parallel()
	from, to := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 41234}, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 9), Port: 443}
	broken := func(op string, err error) error {
		return fmt.Errorf("handshake: %w", &net.OpError{Op: op, Net: "tcp", Source: from, Addr: to, Err: err})
	}
	for want, err := range map[string]error{
		"cannot reach u: dial: connection refused":                broken("dial", os.NewSyscallError("connect", syscall.ECONNREFUSED)),
		"cannot reach u: read: connection reset by peer":          broken("read", os.NewSyscallError("read", syscall.ECONNRESET)),
		"cannot reach u: read: it took too long":                  broken("read", os.ErrDeadlineExceeded),
		"cannot reach u: remote error failed":                     broken("remote error", errors.New("tls: x")),
		"the connection to u broke off: it ended before its time": broken("read", io.EOF),
		"cannot fetch u: the server said: a [31m b":               &serverError{said: "a\x1b[31m\u202eb", err: io.EOF},
	} {
		t.Run(want, func(t *testing.T) {
			require.Equal(t, want, Explain("u", false, err))
		})
	}
}
