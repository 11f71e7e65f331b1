// SPDX-License-Identifier: Apache-2.0

package gitremote

import (
	"context"
	"crypto/tls"
	"crypto/x509"
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

// headerTimeout is how long a server may think before it answers.
const headerTimeout = 2 * time.Minute

// Session is one conversation with a server: its references, then one pack.
type Session interface {
	// Refs are branches and tags, at most MaxRefs bytes of them.
	Refs(ctx context.Context) (*packp.AdvRefs, error)
	// Tips is Refs of these names alone, as Resolve knows them, of at most MaxRefs
	// bytes of which nothing else is held. answered is called when the first came.
	Tips(ctx context.Context, names []string, answered func()) (*packp.AdvRefs, error)
	// Pack asks for objects; the stream has at most MaxPack bytes of them.
	Pack(ctx context.Context, req *packp.UploadPackRequest) (io.ReadCloser, error)
	io.Closer
}

// Remote is a repository on a server.
type Remote struct {
	// Shown is the URL without anything secret.
	Shown   string
	connect func(ctx context.Context) (Session, error)
}

// Connect opens a session; the end of ctx ends it.
func (r *Remote) Connect(ctx context.Context) (Session, error) { return r.connect(ctx) }

// Secret reads one value of the Git Secret by its key, such as
// runnerconfig.GitUsername; "" where it has none.
type Secret func(key string) (string, error)

// Folder reads the values from the files of a folder, where a Secret is mounted; ""
// is a folder without any.
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

// Values reads them from the data of a Secret; nil has none.
func Values(data map[string][]byte) Secret {
	return func(key string) (string, error) { return string(data[key]), nil }
}

// helper is Git's syntax for programs that fetch, such as ext::sh.
var helper = regexp.MustCompile(`^[A-Za-z0-9]+::`)

// New reads URL and credentials. What leaves goes through the guard; errors name the
// remedy.
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
			return nil, Remedy("the git URL holds credentials; put them into the Secret, as username and password")
		}
		return httpRemote(ep, secret, guard)
	case "ssh":
		if ep.Password != "" {
			return nil, Remedy("the git URL holds a password; SSH works by the key in the Secret (identity)")
		}
		return sshRemote(ep, secret, guard)
	default:
		return nil, Remedy("git URL scheme %q is not supported; use https or ssh", ep.Protocol)
	}
}

// shownURL is a URL that may be shown although it could not be read.
func shownURL(address string) string {
	if at := strings.LastIndexByte(address, '@'); at >= 0 {
		return "…" + address[at:]
	}
	return Clip(address, 200)
}

// maxSecrets are the most bytes of the values of the git Secret, before anything reads them.
var maxSecrets = map[string]int{
	runnerconfig.GitUsername: 16 << 10, runnerconfig.GitPassword: 16 << 10, runnerconfig.GitBearerToken: 16 << 10,
	runnerconfig.GitIdentity: 16 << 10, runnerconfig.GitKnownHosts: 64 << 10, runnerconfig.GitCA: 64 << 10,
}

// credentials are the keys of the git Secret whose values are sent as they are, or open a key.
var credentials = map[string]bool{runnerconfig.GitUsername: true, runnerconfig.GitPassword: true, runnerconfig.GitBearerToken: true}

// ReadSecrets reads values of the git Secret by their keys, of which none is larger than it may be. Credentials are
// as runnerconfig.Credential says.
func ReadSecrets(secret Secret, names ...string) (map[string]string, error) {
	values := make(map[string]string, len(names))
	for _, name := range names {
		value, err := secret(name)
		if err != nil {
			return nil, err
		}
		if most := maxSecrets[name]; len(value) > most {
			return nil, Remedy("%s of the git Secret has %d bytes, at most %d KiB are taken; leave in it what the repository needs", name, len(value), most>>10)
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

// checkHost refuses host names that no DNS has.
func checkHost(host string) error {
	for label := range strings.SplitSeq(host, ".") {
		if len(label) > 63 || len(host) > 253 {
			return Remedy("the git URL names a host that cannot be: at most 253 bytes, and 63 between dots; correct git.url of the Project")
		}
	}
	return nil
}

// Trust is whom HTTPS trusts: the authorities in ca, or those of the system where it is "".
func Trust(ca string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca == "" {
		return config, nil
	}
	if config.RootCAs = x509.NewCertPool(); !config.RootCAs.AppendCertsFromPEM([]byte(ca)) {
		return nil, Remedy("ca.crt of the git Secret holds no PEM certificate")
	}
	return config, nil
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

// httpSession asks in two requests, whose answers are bounded each for itself.
type httpSession struct {
	transport.UploadPackSession
	wire   *meter
	client *http.Client
	url    string
	auth   githttp.AuthMethod
	idle   func()
}

// Close ends the connections: nobody asks again soon.
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

// meter bounds the answers of one session, which come one after the other.
type meter struct {
	next http.RoundTripper
	body Bounded
	// foreign says that the last answer was a list of branches in no form of Git's smart
	// protocol.
	foreign bool
}

// advertised is what a server that speaks Git's smart protocol calls its list of branches; its
// clients take every other for one of the dumb protocol.
const advertised = "application/x-" + transport.UploadPackServiceName + "-advertisement"

// understood is why a list of branches could not be read, if it could not.
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
