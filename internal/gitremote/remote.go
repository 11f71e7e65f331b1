// SPDX-License-Identifier: Apache-2.0

package gitremote

import (
	"context"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"

	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
)

// headerTimeout limits the time until a server responds.
const headerTimeout = 2 * time.Minute

// Session is a conversation with a server: its references, then one pack.
type Session interface {
	// Refs returns branches and tags, at most MaxRefs bytes.
	Refs(ctx context.Context) (*packp.AdvRefs, error)
	// Tips is Refs for these names, in the sense of Resolve. It reads at most MaxRefs bytes and
	// keeps nothing else. It calls answered when the first name arrives.
	Tips(ctx context.Context, names []string, answered func()) (*packp.AdvRefs, error)
	// Pack requests objects. The stream has at most MaxPack bytes.
	Pack(ctx context.Context, req *packp.UploadPackRequest) (io.ReadCloser, error)
	io.Closer
}

// Remote is a repository on a server.
type Remote struct {
	// Shown is the URL without secrets.
	Shown   string
	connect func(ctx context.Context) (Session, error)
}

// Connect opens a session. It ends with ctx.
func (r *Remote) Connect(ctx context.Context) (Session, error) { return r.connect(ctx) }

// Secret returns a value of the Git Secret by its key, such as runnerconfig.GitUsername, or "".
type Secret func(key string) (string, error)

// Folder reads values from the files of a mounted Secret; "" is an empty folder.
func Folder(folder string) Secret {
	return func(key string) (string, error) {
		if folder == "" {
			return "", nil
		}
		data, err := os.ReadFile(filepath.Join(folder, key)) //nolint:gosec // a constant name in the mounted folder
		if errors.Is(err, os.ErrNotExist) {
			return "", nil
		}
		if err != nil {
			return "", fmt.Errorf("reading %s of the git Secret: %w", key, err)
		}
		return string(data), nil
	}
}

// Values reads values from the data of a Secret; nil has none.
func Values(data map[string][]byte) Secret {
	return func(key string) (string, error) { return string(data[key]), nil }
}

// helper is Git's syntax for external programs, such as ext::sh.
var helper = regexp.MustCompile(`^[A-Za-z0-9]+::`)

// New reads the URL and the credentials. Connections use the guard. Errors contain the remedy.
func New(address string, secret Secret, guard *egress.Guard) (*Remote, error) {
	ep, err := transport.NewEndpoint(address)
	if err != nil || ep.Host == "" || helper.MatchString(address) {
		return nil, Remedy("git URL %q is not of the form https://host/path, ssh://user@host/path or user@host:path", shownURL(address))
	}
	if err := checkHost(ep.Host); err != nil {
		return nil, err
	}
	switch ep.Protocol {
	case "https", "http":
		if ep.User != "" || ep.Password != "" {
			return nil, Remedy("the git URL contains credentials; put them into the Secret, as username and password")
		}
		return httpRemote(ep, secret, guard)
	case "ssh":
		if ep.Password != "" {
			return nil, Remedy("the git URL contains a password; SSH uses the key in the Secret (identity)")
		}
		return sshRemote(ep, secret, guard)
	default:
		return nil, Remedy("git URL scheme %q is not supported; use https or ssh", ep.Protocol)
	}
}

// shownURL returns a URL without secrets, even if it cannot be parsed.
func shownURL(address string) string {
	if at := strings.LastIndexByte(address, '@'); at >= 0 {
		return "…" + address[at:]
	}
	return Clip(address, 200)
}

// maxSecrets limits the values of the Git Secret, in bytes, before they are parsed.
var maxSecrets = map[string]int{
	runnerconfig.GitUsername: 16 << 10, runnerconfig.GitPassword: 16 << 10, runnerconfig.GitBearerToken: 16 << 10,
	runnerconfig.GitIdentity: 16 << 10, runnerconfig.GitKnownHosts: 64 << 10, runnerconfig.GitCA: 64 << 10,
}

// credentials are the keys of the Git Secret with values that are sent unchanged or unlock a key.
var credentials = map[string]bool{runnerconfig.GitUsername: true, runnerconfig.GitPassword: true, runnerconfig.GitBearerToken: true}

// ReadSecrets reads values of the Git Secret by their keys and checks their sizes. It applies
// runnerconfig.Credential to credentials.
func ReadSecrets(secret Secret, names ...string) (map[string]string, error) {
	values := make(map[string]string, len(names))
	for _, name := range names {
		value, err := secret(name)
		if err != nil {
			return nil, err
		}
		if most := maxSecrets[name]; len(value) > most {
			return nil, Remedy("%s of the git Secret has %d bytes, the limit is %d KiB; keep only the data for this repository", name, len(value), most>>10)
		}
		if credentials[name] {
			var problem string
			if value, problem = runnerconfig.Credential(value); problem != "" {
				return nil, Remedy("%s of the git Secret %s", name, problem)
			}
		}
		values[name] = value
	}
	return values, nil
}

// checkHost rejects host names that DNS cannot contain.
func checkHost(host string) error {
	for label := range strings.SplitSeq(host, ".") {
		if len(label) > 63 || len(host) > 253 {
			return Remedy("the git URL has an invalid host: the limit is 253 bytes, and 63 between dots; correct git.url of the Project")
		}
	}
	return nil
}

// Trust returns a TLS configuration that trusts the authorities in ca, or the system's if ca is "".
func Trust(ca string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca == "" {
		return config, nil
	}
	authorities, err := parseAuthorities([]byte(ca))
	if err != nil {
		return nil, err
	}
	config.RootCAs = x509.NewCertPool()
	for _, authority := range authorities {
		config.RootCAs.AddCert(authority)
	}
	return config, nil
}

const (
	// maxAuthorities limits the certificates in ca.crt.
	maxAuthorities = 64
	// maxRSA limits the bits of an RSA key, because a signature of a larger key takes seconds that no
	// deadline ends. crypto/tls and crypto/ssh have the same limit for keys of servers.
	maxRSA = 8192
)

// parseAuthorities reads the certificates of ca.crt. Like x509.CertPool it skips blocks that are not
// certificates.
func parseAuthorities(rest []byte) (authorities []*x509.Certificate, err error) {
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			continue
		}
		authority, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			continue
		}
		if bits := rsaBits(authority.PublicKey); bits > maxRSA {
			return nil, Remedy("ca.crt of the git Secret has a certificate with an RSA key of %d bits, the limit is %d; use an authority with a smaller key", bits, maxRSA)
		}
		if authorities = append(authorities, authority); len(authorities) > maxAuthorities {
			return nil, Remedy("ca.crt of the git Secret has more than %d certificates; keep only the authority of this repository", maxAuthorities)
		}
	}
	if len(authorities) == 0 {
		return nil, Remedy("ca.crt of the git Secret contains no PEM certificate")
	}
	return authorities, nil
}

// rsaBits returns the bits of an RSA key, or 0 for another key.
func rsaBits(public any) int {
	if key, ok := public.(*rsa.PublicKey); ok {
		return key.N.BitLen()
	}
	return 0
}

func httpRemote(ep *transport.Endpoint, secret Secret, guard *egress.Guard) (*Remote, error) {
	s, err := ReadSecrets(secret, runnerconfig.GitUsername, runnerconfig.GitPassword, runnerconfig.GitBearerToken, runnerconfig.GitCA)
	if err != nil {
		return nil, err
	}
	config, err := Trust(s[runnerconfig.GitCA])
	if err != nil {
		return nil, err
	}
	var auth githttp.AuthMethod
	switch username, token := s[runnerconfig.GitUsername], s[runnerconfig.GitBearerToken]; {
	case username != "":
		auth = &githttp.BasicAuth{Username: username, Password: s[runnerconfig.GitPassword]}
	case token != "":
		auth = &githttp.TokenAuth{Token: token}
	case s[runnerconfig.GitPassword] != "":
		return nil, Remedy("the git Secret has a password without a username")
	}
	guarded := guard.Client(egress.Git, egress.ClientOptions{MaxResponse: MaxPack + 2*maxPreamble, HeaderTimeout: headerTimeout, TLS: config})
	return &Remote{Shown: ep.String(), connect: func(context.Context) (Session, error) {
		wire := &meter{next: guarded.Transport}
		asking := &http.Client{Transport: wire, CheckRedirect: guarded.CheckRedirect}
		client := githttp.NewClientWithOptions(asking, &githttp.ClientOptions{RedirectPolicy: githttp.NoFollowRedirects})
		s, err := client.NewUploadPackSession(ep, auth)
		if err != nil {
			return nil, fmt.Errorf("opening %s: %w", ep.String(), err)
		}
		return &httpSession{UploadPackSession: s, wire: wire, client: asking, url: ep.String(), auth: auth, idle: guarded.CloseIdleConnections}, nil
	}}, nil
}

// httpSession sends two requests. Their responses have separate limits.
type httpSession struct {
	transport.UploadPackSession
	wire   *meter
	client *http.Client
	url    string
	auth   githttp.AuthMethod
	idle   func()
}

// Close closes the connections, because the next poll is not soon.
func (s *httpSession) Close() error {
	s.idle()
	return nil
}

// Refs implements Session.
func (s *httpSession) Refs(ctx context.Context) (*packp.AdvRefs, error) {
	s.wire.body.Allow(MaxRefs, errRefs)
	refs, err := s.AdvertisedReferencesContext(ctx)
	return refs, s.wire.understood(err)
}

// Pack implements Session.
func (s *httpSession) Pack(ctx context.Context, req *packp.UploadPackRequest) (io.ReadCloser, error) {
	s.wire.body.Allow(maxPreamble, errPreamble)
	resp, err := s.UploadPack(ctx, req)
	if over := s.wire.body.Exceeded(); over != nil {
		return nil, over
	}
	if err != nil {
		return nil, err
	}
	s.wire.body.Allow(MaxPack+maxPreamble, ErrPack)
	return resp, nil
}

// meter limits the consecutive responses of a session.
type meter struct {
	next http.RoundTripper
	body Bounded
	// foreign is true if the last response was a list of branches that is not in Git's smart
	// protocol.
	foreign bool
}

// advertised is the content type of a list of branches in Git's smart protocol. Clients treat any
// other type as the dumb protocol.
const advertised = "application/x-" + transport.UploadPackServiceName + "-advertisement"

// understood returns the reason why a list of branches could not be read.
func (m *meter) understood(err error) error {
	if over := m.body.Exceeded(); over != nil {
		return over
	}
	if err != nil && m.foreign {
		return errForeign
	}
	return err
}

// RoundTrip implements http.RoundTripper.
func (m *meter) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := m.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	m.foreign = resp.StatusCode == http.StatusOK && strings.HasSuffix(req.URL.Path, "/info/refs") && resp.Header.Get("Content-Type") != advertised
	m.body.R = resp.Body
	resp.Body = struct {
		io.Reader
		io.Closer
	}{&m.body, resp.Body}
	return resp, nil
}
