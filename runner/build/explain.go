// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	"github.com/skeema/knownhosts"

	"github.com/agentplatform/agentplatform/internal/egress"
)

// remedyError is an error whose message already says what to do.
type remedyError string

func (e remedyError) Error() string { return string(e) }

func remedy(format string, args ...any) error { return remedyError(fmt.Sprintf(format, args...)) }

// explain turns an error of a fetch into a sentence with cause and remedy.
// Nothing secret is in it: URLs hold no credentials, see newRemote.
func explain(opts FetchOptions, err error) string {
	var known remedyError
	var dns *net.DNSError
	var server *serverError
	switch {
	case errors.As(err, &known):
		return known.Error()
	case errors.Is(err, egress.ErrForbidden):
		return fmt.Sprintf("cannot fetch %s: %s", opts.URL, innermost(err, egress.ErrForbidden))
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("cannot fetch %s: it took too long", opts.URL)
	case errors.Is(err, transport.ErrEmptyRemoteRepository):
		return fmt.Sprintf("repository %s is empty; push a commit", opts.URL)
	case errors.Is(err, transport.ErrAuthenticationRequired), errors.Is(err, transport.ErrAuthorizationFailed):
		if opts.Credentials == "" {
			return fmt.Sprintf("repository %s does not exist or needs credentials; correct the URL, or set git.secretRef of the Project", opts.URL)
		}
		return fmt.Sprintf("repository %s refuses the credentials of the git Secret; correct them, or the URL", opts.URL)
	case errors.Is(err, transport.ErrRepositoryNotFound):
		return fmt.Sprintf("repository %s does not exist; correct git.url of the Project", opts.URL)
	case errors.As(err, &dns):
		return fmt.Sprintf("host %s of the git URL cannot be found; correct git.url of the Project", dns.Name)
	case isCertificate(err):
		return fmt.Sprintf("the certificate of %s is not trusted; put the authority that signed it into the git Secret as ca.crt", opts.URL)
	case knownhosts.IsHostKeyChanged(err):
		return fmt.Sprintf("the host key of %s is another than known_hosts of the git Secret says; check it and correct known_hosts", opts.URL)
	case knownhosts.IsHostUnknown(err):
		return fmt.Sprintf("known_hosts of the git Secret does not name the host of %s; add the output of ssh-keyscan, after checking it", opts.URL)
	case strings.Contains(err.Error(), "unable to authenticate"):
		return fmt.Sprintf("the server of %s refuses the key of the git Secret (identity); add its public half there, or correct the user", opts.URL)
	case errors.As(err, &server) && server.said != "":
		return fmt.Sprintf("cannot fetch %s: the server said: %s", opts.URL, server.said)
	}
	if status := statusOf(err); status >= 300 && status < 400 {
		return fmt.Sprintf("repository %s answers with a redirect, which is not followed; set git.url of the Project to its target", opts.URL)
	} else if status != 0 {
		return fmt.Sprintf("cannot fetch %s: the server answered %d %s", opts.URL, status, http.StatusText(status))
	}
	if brokeOff(err) {
		return fmt.Sprintf("the connection to %s broke off: %v", opts.URL, err)
	}
	if unreachable(err) {
		return fmt.Sprintf("cannot reach %s: %v", opts.URL, err)
	}
	return fmt.Sprintf("cannot fetch %s: %v", opts.URL, err)
}

// innermost is the error that wraps the sentinel itself, without what the
// layers around it added.
func innermost(err, sentinel error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil || next == sentinel || !errors.Is(next, sentinel) { //nolint:errorlint // the sentinel itself is looked for, not what wraps it
			return err
		}
		err = next
	}
}

func isCertificate(err error) bool {
	var unknown x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	return errors.As(err, &unknown) || errors.As(err, &host) || errors.As(err, &invalid)
}

// statusOf is the HTTP status of an answer that was an error, or 0.
func statusOf(err error) int {
	var unexpected *plumbing.UnexpectedError
	if errors.As(err, &unexpected) {
		err = unexpected.Err
	}
	var answer *githttp.Err
	if errors.As(err, &answer) {
		return answer.StatusCode()
	}
	return 0
}

// unreachable says that trying again may help.
func unreachable(err error) bool {
	if errors.Is(err, egress.ErrForbidden) || isCertificate(err) {
		return false
	}
	if status := statusOf(err); status != 0 {
		return status >= http.StatusInternalServerError || status == http.StatusTooManyRequests
	}
	var unexpected *plumbing.UnexpectedError
	if errors.As(err, &unexpected) {
		err = unexpected.Err
	}
	var dns *net.DNSError
	if errors.As(err, &dns) && dns.IsNotFound {
		return false
	}
	var operation *net.OpError
	return errors.As(err, &operation)
}

// brokeOff says that a server ended the connection before its answer. go-git does
// not wrap all errors, so the text counts as well.
func brokeOff(err error) bool {
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || strings.HasSuffix(err.Error(), io.EOF.Error())
}

// tail keeps the end of what a server writes.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// Write implements io.Writer.
func (t *tail) Write(p []byte) (int, error) {
	const most = 2000
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, p...)
	if len(t.text) > most {
		t.text = append([]byte(nil), t.text[len(t.text)-most:]...)
	}
	return len(p), nil
}

// String is the text in one line.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return clip(strings.Join(strings.Fields(string(t.text)), " "), 500)
}
