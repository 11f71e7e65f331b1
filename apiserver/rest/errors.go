// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/keyring"
	"github.com/agentplatform/agentplatform/store"
)

// failure is a kind of error, and what a caller is told of it.
type failure struct {
	is     func(error) bool
	status int
	code   httpserver.Code
	// detail is what is said; say makes it of the error where that helps.
	detail string
	say    func(error) string
}

// failures are all errors of Kubernetes and of the store that are not a mistake of
// the service. The first that fits counts; what fits none is answered 500.
var failures = []failure{
	{is: wrapped(store.ErrNotFound), status: http.StatusNotFound, code: httpserver.CodeNotFound, detail: "this project has no such object"},
	{is: wrapped(store.ErrSearchTooBroad), status: http.StatusUnprocessableEntity, code: httpserver.CodeSearchTooBroad,
		detail: "the search reads more runs than its limits allow; choose a shorter window, or add search terms or equalities that the index covers"},
	{is: wrapped(store.ErrSearchBusy), status: http.StatusServiceUnavailable, code: httpserver.CodeBusy,
		detail: "the search spent its time waiting for other searches; try again"},
	{is: lacksKey, status: http.StatusServiceUnavailable, code: httpserver.CodeKeyring,
		detail: "the platform has not loaded an encryption key yet; try again in a minute"},
	{is: isIDTaken, status: http.StatusConflict, code: httpserver.CodeConflict, detail: "another object of the project has this ID"},
	{is: wrapped(context.Canceled), status: http.StatusServiceUnavailable, code: httpserver.CodeGivenUp, detail: "the client cancelled the request"},

	{is: isTerminating, status: http.StatusConflict, code: httpserver.CodeTerminating,
		detail: "the project's namespace is being deleted; no objects can be created in it"},
	{is: apierrors.IsAlreadyExists, status: http.StatusConflict, code: httpserver.CodeAlreadyExists,
		detail: "another request created an object with this name at the same time; try again"},
	{is: apierrors.IsConflict, status: http.StatusConflict, code: httpserver.CodeConflict,
		detail: "another request changed the object at the same time; try again"},
	{is: isDenied, status: http.StatusForbidden, code: httpserver.CodeRefused, say: refusedDetail},
	{is: isQuota, status: http.StatusForbidden, code: httpserver.CodeQuotaExceeded, say: quotaDetail},
	{is: apierrors.IsForbidden, status: http.StatusForbidden, code: httpserver.CodeRefused, say: refusedDetail},
	{is: apierrors.IsNotFound, status: http.StatusNotFound, code: httpserver.CodeNotFound, detail: "this project has no such object"},
	{is: apierrors.IsRequestEntityTooLargeError, status: http.StatusRequestEntityTooLarge, code: httpserver.CodeRequestTooLarge,
		detail: "the object is larger than Kubernetes accepts; make it smaller"},
	{is: isClusterAway, status: http.StatusServiceUnavailable, code: httpserver.CodeClusterUnavailable,
		detail: "the Kubernetes API does not answer; try again"},

	{is: isStoreAway, status: http.StatusServiceUnavailable, code: httpserver.CodeStoreUnavailable, detail: "the store does not answer; try again"},
	{is: wrapped(context.DeadlineExceeded), status: http.StatusServiceUnavailable, code: httpserver.CodeGivenUp,
		detail: "the request took too long and was cancelled; try again"},
}

// ProblemOf is what a caller sees of an error; what it must not see is logged.
func (s *Service) ProblemOf(ctx context.Context, err error) Problem {
	var p Problem
	if errors.As(err, &p) {
		return p
	}
	if apierrors.IsInvalid(err) && !isDenied(err) {
		return Invalid(causes(err)...)
	}
	for _, f := range failures {
		if !f.is(err) {
			continue
		}
		p := NewProblem(f.status, f.code, f.detail)
		if f.say != nil {
			p.Detail = f.say(err)
		}
		if seconds, ok := apierrors.SuggestsClientDelay(err); ok && f.status == http.StatusServiceUnavailable && seconds > 0 {
			p.RetryAfter = time.Duration(seconds) * time.Second
		}
		if f.status == http.StatusServiceUnavailable {
			s.Logger.WarnContext(ctx, "a request could not be served", "code", f.code, "error", err)
		}
		return p
	}
	s.Logger.ErrorContext(ctx, "a request failed", "error", err)
	return NewProblem(http.StatusInternalServerError, httpserver.CodeInternal, internalDetail)
}

func wrapped(target error) func(error) bool {
	return func(err error) bool { return errors.Is(err, target) }
}

// lacksKey says that a key is known to the store and not yet to this process, or
// that none is in use yet.
func lacksKey(err error) bool {
	var missing *keyring.MissingError
	return errors.As(err, &missing) || errors.Is(err, keyring.ErrNoKeys) || errors.Is(err, store.ErrNoCurrentKey)
}

func isIDTaken(err error) bool {
	var taken *store.IDTakenError
	return errors.As(err, &taken)
}

func isTerminating(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// denied matches what an admission webhook or a policy says of what it does not
// let pass. Status and reason are of its author's choice, and so tell nothing.
var denied = regexp.MustCompile(`(?s)(?:^|: )((?:admission webhook|ValidatingAdmissionPolicy|policy) .*denied (?:the )?request.*)`)

func isDenied(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && denied.MatchString(status.Status().Message)
}

// quotaMark is how the admission plugin for quotas begins its message; it has no
// cause of its own.
const quotaMark = "exceeded quota: "

func isQuota(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), quotaMark)
}

// quotaDetail says which quota, how much was asked for, is used and is allowed.
func quotaDetail(err error) string {
	_, rest, _ := strings.Cut(err.Error(), quotaMark)
	return "the request exceeds a quota of the project's namespace: " + rest
}

// refusedDetail is Kubernetes' reason, without its words for the object.
func refusedDetail(err error) string {
	text := err.Error()
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		text = status.Status().Message
	}
	if m := denied.FindStringSubmatch(text); m != nil {
		text = m[1]
	} else if _, reason, ok := strings.Cut(text, "is forbidden: "); ok {
		text = reason
	}
	return "Kubernetes does not allow this: " + text
}

// isClusterAway says that kube-apiserver did not answer, or not with an answer.
func isClusterAway(err error) bool {
	for _, is := range []func(error) bool{
		apierrors.IsTooManyRequests, apierrors.IsServiceUnavailable, apierrors.IsTimeout, apierrors.IsServerTimeout,
		apierrors.IsInternalError, apierrors.IsUnauthorized, apierrors.IsResourceExpired,
	} {
		if is(err) {
			return true
		}
	}
	var request *url.Error // only the Kubernetes client speaks HTTP here
	return errors.As(err, &request)
}

// awayStates are the classes, and the single states, in which PostgreSQL says that
// it cannot serve at the moment: while it starts, stops, is full, is being restored
// or was made a replica, while somebody changes its password or its database, while
// the manager has yet to make its tables, and when transactions got in each other's
// way more often than the store tries again.
var awayStates = []string{"08", "28", "40", "53", "57", "58", "25006", "3D000", "42P01"}

// isStoreAway says that the store's database did not answer: what its driver says
// of the network, what the store says of a server that it must not use, what PostgreSQL
// says of itself, and what SQLite and the file system say of a file that cannot be used
// at the moment.
func isStoreAway(err error) bool {
	var (
		network net.Error
		state   interface{ SQLState() string }
		file    interface{ Code() int }
	)
	if errors.Is(err, store.ErrAway) {
		return true
	}
	if errors.As(err, &state) {
		return slices.ContainsFunc(awayStates, func(s string) bool { return strings.HasPrefix(state.SQLState(), s) })
	}
	if errors.As(err, &file) {
		return slices.Contains([]int{5, 6, 8, 10, 13, 14}, file.Code()&0xff) // busy, locked, read-only, I/O, full, cannot be opened
	}
	for _, sign := range []error{
		syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EPIPE, syscall.ENOSPC, syscall.EROFS, syscall.EIO, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, sql.ErrConnDone, driver.ErrBadConn,
	} {
		if errors.Is(err, sign) {
			return true
		}
	}
	return errors.As(err, &network) && !errors.Is(err, context.DeadlineExceeded)
}
