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
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

// failure is a kind of error and its response.
type failure struct {
	is     func(error) bool
	status int
	code   httpserver.Code
	// detail is the detail of the response; detailOf derives it from the error instead.
	detail   string
	detailOf func(error) string
}

// failures are the expected errors of Kubernetes and of the store. The first match counts. Other errors are errors of
// the service and return 500.
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
	{is: isDenied, status: http.StatusForbidden, code: httpserver.CodeRefused, detailOf: refusedDetail},
	{is: isQuota, status: http.StatusForbidden, code: httpserver.CodeQuotaExceeded, detailOf: quotaDetail},
	{is: apierrors.IsForbidden, status: http.StatusForbidden, code: httpserver.CodeRefused, detailOf: refusedDetail},
	{is: apierrors.IsNotFound, status: http.StatusNotFound, code: httpserver.CodeNotFound, detail: "this project has no such object"},
	{is: apierrors.IsRequestEntityTooLargeError, status: http.StatusRequestEntityTooLarge, code: httpserver.CodeRequestTooLarge,
		detail: "the object is larger than Kubernetes accepts; make it smaller"},
	{is: isClusterUnavailable, status: http.StatusServiceUnavailable, code: httpserver.CodeClusterUnavailable,
		detail: "the Kubernetes API does not answer; try again"},

	{is: isStoreUnavailable, status: http.StatusServiceUnavailable, code: httpserver.CodeStoreUnavailable, detail: "the store does not answer; try again"},
	{is: wrapped(context.DeadlineExceeded), status: http.StatusServiceUnavailable, code: httpserver.CodeGivenUp,
		detail: "the request took too long and was cancelled; try again"},
}

// ProblemOf returns the response to an error. It logs the parts that a caller must not see.
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
		if f.detailOf != nil {
			p.Detail = f.detailOf(err)
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

// lacksKey reports whether this process lacks a key of the store, or no key is in use yet.
func lacksKey(err error) bool {
	var missing *secrets.MissingKeyError
	return errors.As(err, &missing) || errors.Is(err, secrets.ErrNoKeys) || errors.Is(err, store.ErrNoCurrentKey)
}

func isIDTaken(err error) bool {
	var taken *store.IDTakenError
	return errors.As(err, &taken)
}

func isTerminating(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// denied matches the message of an admission webhook or policy that denies a request. Its author chooses status and
// reason, so these identify nothing.
var denied = regexp.MustCompile(`(?s)(?:^|: )((?:admission webhook|ValidatingAdmissionPolicy|policy) .*denied (?:the )?request.*)`)

func isDenied(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && denied.MatchString(status.Status().Message)
}

// quotaMark begins the messages of the admission plugin for quotas, which sets no cause.
const quotaMark = "exceeded quota: "

func isQuota(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), quotaMark)
}

// quotaDetail names the quota, with the requested, used and allowed amounts.
func quotaDetail(err error) string {
	_, rest, _ := strings.Cut(err.Error(), quotaMark)
	return "the request exceeds a quota of the project's namespace: " + rest
}

// refusedDetail returns the reason of Kubernetes, without its name of the object.
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

// isClusterUnavailable reports whether kube-apiserver did not respond, or could not process the request.
func isClusterUnavailable(err error) bool {
	for _, is := range []func(error) bool{
		apierrors.IsTooManyRequests, apierrors.IsServiceUnavailable, apierrors.IsTimeout, apierrors.IsServerTimeout,
		apierrors.IsInternalError, apierrors.IsUnauthorized, apierrors.IsResourceExpired,
	} {
		if is(err) {
			return true
		}
	}
	var request *url.Error // only the Kubernetes client sends HTTP requests here
	return errors.As(err, &request)
}

// unavailableStates are the classes and codes of PostgreSQL errors that can pass: the server starts, stops, is full, is
// restored or became a replica; its password or database changes; the manager has not created the tables yet; or
// transactions conflicted more often than the store retries.
var unavailableStates = []string{"08", "28", "40", "53", "57", "58", "25006", "3D000", "42P01"}

// isStoreUnavailable reports whether the database did not respond or cannot be used at the moment: errors of the
// network, servers and schemas that the store must not use, states of PostgreSQL, and errors of SQLite and its file.
func isStoreUnavailable(err error) bool {
	var (
		network net.Error
		state   interface{ SQLState() string }
		file    interface{ Code() int }
	)
	if errors.Is(err, store.ErrAway) || errors.Is(err, store.ErrNewerSchema) || errors.Is(err, store.ErrForeignSchema) {
		return true
	}
	if errors.As(err, &state) {
		return slices.ContainsFunc(unavailableStates, func(s string) bool { return strings.HasPrefix(state.SQLState(), s) })
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
