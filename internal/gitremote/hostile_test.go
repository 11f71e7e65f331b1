// SPDX-License-Identifier: Apache-2.0

package gitremote

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
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

// The limit applies before parsing. The error names the key.
func TestReadSecrets_LimitsSizes(t *testing.T) {
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
		"two stars":            {"git@host:x.git", "known_hosts", "*a*b " + key, `the pattern "*a*b"; a pattern can have one *`},
		"two stars, later":     {"git@host:x.git", "known_hosts", "# *a*\na,!*a*\t" + key, `the pattern "!*a*"; a pattern can have one *`},
		"of an authority":      {"git@host:x.git", "known_hosts", "@cert-authority \t*a*b " + key, `the pattern "*a*b"; a pattern can have one *`},
		"revoked":              {"git@host:x.git", "known_hosts", "  @revoked *a*b " + key, `the pattern "*a*b"; a pattern can have one *`},
		"after no comment":     {"git@host:x.git", "known_hosts", "@cert-authority #x,*a*b " + key, `the pattern "*a*b"; a pattern can have one *`},
		"dear passphrase":      {"git@host:x.git", "identity", withRounds(t, maxRounds+1), "65 rounds of key derivation, the limit is 64"},
		"large RSA key":        {"git@host:x.git", "identity", withBits(t, maxRSA+1), "identity of the git Secret has an RSA key of 8193 bits, the limit is 8192"},
		"large authority":      {"https://host/x.git", "ca.crt", authority(t, maxRSA+1), "ca.crt of the git Secret has a certificate with an RSA key of 8193 bits, the limit is 8192"},
		"many authorities":     {"https://host/x.git", "ca.crt", strings.Repeat(authority(t, 1024), maxAuthorities+1), "ca.crt of the git Secret has more than 64 certificates"},
		"long label":           {"https://" + label + ".org/x.git", "", "", "an invalid host"},
		"long name, over SSH":  {"git@" + strings.Repeat("a.", 127) + ":x.git", "", "", "an invalid host"},
	} {
		t.Run(name, func(t *testing.T) {
			data := map[string][]byte{"identity": []byte(identity), "known_hosts": []byte("host " + key)}
			data[tt.key] = []byte(tt.value)
			_, err := New(tt.url, Values(data), egress.New(egress.Rules{}))
			require.ErrorContains(t, err, tt.want)
			require.ErrorAs(t, err, new(RemedyError))
		})
	}
	_, err := Trust(authority(t, maxRSA))
	require.NoError(t, err)
	require.NoError(t, checkPatterns("*.example.com,10.0.0.? "+key+" a ** comment\n"))
}

// modulus returns an odd number of this many bits.
func modulus(bits int) *big.Int {
	n := new(big.Int).Lsh(big.NewInt(1), uint(bits-1))
	return n.SetBit(n, 0, 1)
}

// withBits returns an RSA key of this many bits in PKCS #1. It is not a valid key.
func withBits(t *testing.T, bits int) string {
	t.Helper()
	one := big.NewInt(1)
	der, err := asn1.Marshal(struct {
		Version                   int
		N, E, D, P, Q, Dp, Dq, Qi *big.Int
	}{0, modulus(bits), big.NewInt(65537), one, one, one, one, one, one})
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: der}))
}

// authority returns a certificate with an RSA key of this many bits.
func authority(t *testing.T, bits int) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &rsa.PublicKey{N: modulus(bits), E: 65537}, key)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// withRounds is a private key with this number of hash rounds for its passphrase.
func withRounds(t *testing.T, rounds uint32) string {
	t.Helper()
	_, private, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	block, err := ssh.MarshalPrivateKeyWithPassphrase(private, "", []byte("x"))
	require.NoError(t, err)
	// The options of the derivation are a salt, followed by the number of rounds.
	name := []byte("\x00\x00\x00\x06bcrypt")
	options := block.Bytes[bytes.Index(block.Bytes, name)+len(name):]
	size := binary.BigEndian.Uint32(options)
	binary.BigEndian.PutUint32(options[size:], rounds)
	require.Equal(t, rounds, derivationRounds(string(pem.EncodeToMemory(block))))
	return string(pem.EncodeToMemory(block))
}

// A branch is followed, even if a tag has the same name.
func TestBranch_IgnoresTags(t *testing.T) {
	t.Parallel()
	refs := packp.NewAdvRefs()
	refs.References["refs/tags/main"] = plumbing.NewHash(anyHash)
	_, _, err := Branch(refs, "main")
	require.ErrorContains(t, err, `no branch "main"`)
	hash, name, err := Resolve(refs, "main")
	require.NoError(t, err)
	require.Equal(t, []string{anyHash, "main"}, []string{hash.String(), name})
}

// A list is rejected at its first invalid line, and little of a valid list is kept.
func TestTips_KeepsOnlyWantedNames(t *testing.T) {
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
		"sha256":             {packet(anyHash+" HEAD\x00object-format=sha256") + end, Remedy(`the repository uses the object format "sha256", only sha1 is supported; use a repository with that format`)},
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
		"/endless": "list of branches and tags is larger than 10 MiB", "/forbidden": "does not exist or requires credentials",
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

// The error distinguishes the plain files of git update-server-info from a broken connection. This
// includes an empty repository and a web page.
func TestExplain_NamesDumbServers(t *testing.T) {
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

// The same cause gives the same text.
func TestExplain_HidesLocalAddresses(t *testing.T) {
	t.Parallel()
	from, to := &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 41234}, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 9), Port: 443}
	broken := func(op string, err error) error {
		return fmt.Errorf("handshake: %w", &net.OpError{Op: op, Net: "tcp", Source: from, Addr: to, Err: err})
	}
	for want, err := range map[string]error{
		"cannot reach u: dial: connection refused":            broken("dial", os.NewSyscallError("connect", syscall.ECONNREFUSED)),
		"cannot reach u: read: connection reset by peer":      broken("read", os.NewSyscallError("read", syscall.ECONNRESET)),
		"cannot reach u: read: it took too long":              broken("read", os.ErrDeadlineExceeded),
		"cannot reach u: remote error failed":                 broken("remote error", errors.New("tls: x")),
		"the connection to u was interrupted: it ended early": broken("read", io.EOF),
		"cannot fetch u: the server said: a [31m b":           &serverError{said: "a\x1b[31m\u202eb", err: io.EOF},
	} {
		t.Run(want, func(t *testing.T) {
			require.Equal(t, want, Explain("u", false, err))
		})
	}
}

// Cause does not depend on what a server says, but on the kind of its answer.
func TestCause_LeavesOutServerText(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]func(text string) error{
		"over ssh":  func(text string) error { return &serverError{said: text, err: io.EOF} },
		"otherwise": errors.New,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, Explain("u", false, of("one")), "one")
			require.Equal(t, Cause("u", false, of("one")), Cause("u", false, of("two")))
			require.NotEqual(t, Cause("u", false, of("one")), Cause("u", false, io.EOF))
		})
	}
}
