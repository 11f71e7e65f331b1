// SPDX-License-Identifier: Apache-2.0

package gitremote

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
	"syscall"
	"unicode"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"
	"github.com/skeema/knownhosts"

	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/excerpt"
)

// RemedyError is an error whose message contains the remedy.
type RemedyError string

// Error returns the message.
func (e RemedyError) Error() string { return string(e) }

// Remedy creates a RemedyError.
func Remedy(format string, args ...any) error { return RemedyError(fmt.Sprintf(format, args...)) }

// Explain turns an error of a fetch into a sentence with cause and remedy. The same cause gives the
// same sentence. credentials reports whether there were any. The sentence contains nothing secret:
// URLs have no credentials, see New, and addresses of this machine are removed.
func Explain(url string, credentials bool, err error) string {
	cause, said := explain(url, credentials, err)
	return printable(cause + said)
}

// Cause returns the sentence of Explain without the text that a server chooses. It stays the same while
// that text changes.
func Cause(url string, credentials bool, err error) string {
	cause, _ := explain(url, credentials, err)
	return printable(cause)
}

// printable removes characters that move a terminal's cursor or break a line.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, text)
}

// explain returns the sentence of Explain. said is its end, if a server chooses it.
func explain(url string, credentials bool, err error) (cause, said string) {
	var known RemedyError
	var dns *net.DNSError
	var server *serverError
	switch {
	case errors.As(err, &known):
		return known.Error(), ""
	case errors.Is(err, egress.ErrForbidden):
		return fmt.Sprintf("cannot fetch %s: %s", url, innermost(err, egress.ErrForbidden)), ""
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("cannot fetch %s: it took too long", url), ""
	case errors.Is(err, transport.ErrEmptyRemoteRepository):
		return fmt.Sprintf("repository %s is empty; push a commit", url), ""
	case errors.Is(err, transport.ErrAuthenticationRequired), errors.Is(err, transport.ErrAuthorizationFailed):
		if !credentials {
			return fmt.Sprintf("repository %s does not exist or requires credentials; correct the URL, or set git.secretRef of the Project", url), ""
		}
		return fmt.Sprintf("repository %s rejects the credentials of the git Secret; correct them, or the URL", url), ""
	case errors.Is(err, transport.ErrRepositoryNotFound):
		return fmt.Sprintf("repository %s does not exist; correct git.url of the Project", url), ""
	case errors.As(err, &dns):
		return fmt.Sprintf("host %s of the git URL does not exist; correct git.url of the Project", strings.TrimSuffix(dns.Name, ".")), ""
	case isCertificate(err):
		return fmt.Sprintf("the certificate of %s is not trusted; put the authority that signed it into the git Secret as ca.crt", url), ""
	case knownhosts.IsHostKeyChanged(err):
		return fmt.Sprintf("the host key of %s does not match known_hosts of the git Secret; check the key and correct known_hosts", url), ""
	case knownhosts.IsHostUnknown(err):
		return fmt.Sprintf("known_hosts of the git Secret does not name the host of %s; add the output of ssh-keyscan, after checking it", url), ""
	case strings.Contains(err.Error(), "unable to authenticate"):
		return fmt.Sprintf("the server of %s rejects the key of the git Secret (identity); add its public key there, or correct the user", url), ""
	case errors.As(err, &server) && server.said != "":
		return fmt.Sprintf("cannot fetch %s: the server said: ", url), server.said
	}
	if status := statusOf(err); status >= 300 && status < 400 {
		return fmt.Sprintf("repository %s answers with a redirect, which is not followed; set git.url of the Project to its target", url), ""
	} else if status != 0 {
		return fmt.Sprintf("cannot fetch %s: the server answered %d %s", url, status, http.StatusText(status)), ""
	}
	cause, said = errorCause(err)
	if BrokeOff(err) {
		return fmt.Sprintf("the connection to %s was interrupted: %s", url, cause), said
	}
	if Unreachable(err) {
		return fmt.Sprintf("cannot reach %s: %s", url, cause), said
	}
	return fmt.Sprintf("cannot fetch %s: %s", url, cause), said
}

// errorCause returns an error without its addresses and ports, because they belong to the cluster and
// differ each time. said is the text of an error that can contain text of a server.
func errorCause(err error) (cause, said string) {
	var unexpected *plumbing.UnexpectedError
	if errors.As(err, &unexpected) {
		err = unexpected.Err
	}
	var operation *net.OpError
	var system syscall.Errno
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return "it ended early", ""
	case !errors.As(err, &operation):
		return "", Clip(err.Error(), 300)
	case errors.As(err, &system):
		return operation.Op + ": " + system.Error(), ""
	case operation.Timeout():
		return operation.Op + ": it took too long", ""
	}
	return operation.Op + " failed", ""
}

// innermost returns the error that wraps the sentinel itself, without outer layers.
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

// statusOf returns the HTTP status of an error response, or 0.
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

// Unreachable reports whether a retry can help.
func Unreachable(err error) bool {
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

// BrokeOff reports whether a server closed the connection before its response. go-git does not wrap
// all errors, so the text is checked too.
func BrokeOff(err error) bool {
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) || strings.HasSuffix(err.Error(), io.EOF.Error())
}

// tail keeps the end of a server's output.
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

// String returns the text in one line.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Clip(strings.Join(strings.Fields(string(t.text)), " "), 500)
}

// Clip shortens text of a server or a repository at a character boundary.
func Clip(text string, most int) string {
	return excerpt.Of(strings.ToValidUTF8(strings.TrimSpace(text), "?"), most, excerpt.Ellipsis)
}
