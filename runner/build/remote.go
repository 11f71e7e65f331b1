// SPDX-License-Identifier: Apache-2.0

package build

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

// session is one conversation with a server: its references, then one pack.
type session interface {
	refs(ctx context.Context) (*packp.AdvRefs, error)
	pack(ctx context.Context, req *packp.UploadPackRequest) (io.ReadCloser, error)
	io.Closer
}

// remote is a repository on a server.
type remote struct {
	// shown is the URL without anything secret.
	shown   string
	connect func(ctx context.Context) (session, error)
}

// helper is Git's syntax for programs that fetch, such as ext::sh.
var helper = regexp.MustCompile(`^[A-Za-z0-9]+::`)

// newRemote reads URL and credentials; errors name the remedy.
func newRemote(address, credentials string, guard *egress.Guard) (*remote, error) {
	ep, err := transport.NewEndpoint(address)
	if err != nil || ep.Host == "" || helper.MatchString(address) {
		return nil, remedy("git URL %q is not of the form https://host/path, ssh://user@host/path or user@host:path", shownURL(address))
	}
	secret := func(name string) (string, error) { return readSecret(credentials, name) }
	switch ep.Protocol {
	case "https", "http":
		if ep.User != "" || ep.Password != "" {
			return nil, remedy("the git URL holds credentials; put them into the Secret, as username and password")
		}
		return httpRemote(ep, secret, guard)
	case "ssh":
		if ep.Password != "" {
			return nil, remedy("the git URL holds a password; SSH works by the key in the Secret (identity)")
		}
		return sshRemote(ep, secret, guard)
	default:
		return nil, remedy("git URL scheme %q is not supported; use https or ssh", ep.Protocol)
	}
}

// shownURL is a URL that may be shown although it could not be read.
func shownURL(address string) string {
	if at := strings.LastIndexByte(address, '@'); at >= 0 {
		return "…" + address[at:]
	}
	return clip(address, 200)
}

// readSecret reads one file of the credentials; "" when there is none.
func readSecret(folder, name string) (string, error) {
	if folder == "" {
		return "", nil
	}
	data, err := os.ReadFile(filepath.Join(folder, name)) //nolint:gosec // a constant name in the mounted folder
	if errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("reading %s of the git Secret: %w", name, err)
	}
	return string(data), nil
}

func readSecrets(secret func(string) (string, error), names ...string) (map[string]string, error) {
	values := make(map[string]string, len(names))
	for _, name := range names {
		value, err := secret(name)
		if err != nil {
			return nil, err
		}
		values[name] = value
	}
	return values, nil
}

func httpRemote(ep *transport.Endpoint, secret func(string) (string, error), guard *egress.Guard) (*remote, error) {
	s, err := readSecrets(secret, runnerconfig.GitUsername, runnerconfig.GitPassword, runnerconfig.GitBearerToken, runnerconfig.GitCA)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca := s[runnerconfig.GitCA]; ca != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM([]byte(ca)) {
			return nil, remedy("ca.crt of the git Secret holds no PEM certificate")
		}
	}
	var auth transport.AuthMethod
	switch username, token := strings.TrimSpace(s[runnerconfig.GitUsername]), strings.TrimSpace(s[runnerconfig.GitBearerToken]); {
	case username != "":
		auth = &githttp.BasicAuth{Username: username, Password: strings.TrimRight(s[runnerconfig.GitPassword], "\r\n")}
	case token != "":
		auth = &githttp.TokenAuth{Token: token}
	case s[runnerconfig.GitPassword] != "":
		return nil, remedy("the git Secret has a password without a username")
	}
	guarded := guard.Client(egress.Git, egress.ClientOptions{MaxResponse: maxPack + 2*maxPreamble, HeaderTimeout: headerTimeout, TLS: config})
	return &remote{shown: ep.String(), connect: func(context.Context) (session, error) {
		wire := &meter{next: guarded.Transport}
		client := githttp.NewClientWithOptions(&http.Client{Transport: wire, CheckRedirect: guarded.CheckRedirect},
			&githttp.ClientOptions{RedirectPolicy: githttp.NoFollowRedirects})
		s, err := client.NewUploadPackSession(ep, auth)
		if err != nil {
			return nil, fmt.Errorf("opening %s: %w", ep.String(), err)
		}
		return &httpSession{UploadPackSession: s, wire: wire}, nil
	}}, nil
}

// httpSession asks in two requests, whose answers are bounded each for itself.
type httpSession struct {
	transport.UploadPackSession
	wire *meter
}

func (s *httpSession) refs(ctx context.Context) (*packp.AdvRefs, error) {
	s.wire.body.allow(maxRefs, errRefs)
	refs, err := s.AdvertisedReferencesContext(ctx)
	if over := s.wire.body.exceeded(); over != nil {
		return nil, over
	}
	return refs, err
}

func (s *httpSession) pack(ctx context.Context, req *packp.UploadPackRequest) (io.ReadCloser, error) {
	s.wire.body.allow(maxPreamble, errPreamble)
	resp, err := s.UploadPack(ctx, req)
	if over := s.wire.body.exceeded(); over != nil {
		return nil, over
	}
	if err != nil {
		return nil, err
	}
	s.wire.body.allow(maxPack+maxPreamble, errPack)
	return resp, nil
}

// meter bounds the answers of one session, which come one after the other.
type meter struct {
	next http.RoundTripper
	body bounded
}

// RoundTrip implements http.RoundTripper.
func (m *meter) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := m.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	m.body.r = resp.Body
	resp.Body = struct {
		io.Reader
		io.Closer
	}{&m.body, resp.Body}
	return resp, nil
}
