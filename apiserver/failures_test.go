// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

// failingStore is a store that can count requests and write the audit log, and
// nothing else.
type failingStore struct {
	apiserver.Store
	err error
}

func (f failingStore) Holder(context.Context, store.Key) (store.ObjectRef, error) {
	return store.ObjectRef{}, f.err
}

func (f failingStore) Holders(context.Context, uuid.UUID, string) ([]store.ProjectedObject, error) {
	return nil, f.err
}

func (f failingStore) Run(context.Context, store.Key) (store.Run, error) { return store.Run{}, f.err }

func (f failingStore) ListRuns(context.Context, store.RunQuery) ([]store.Run, *uuid.UUID, error) {
	return nil, nil, f.err
}

func (f failingStore) Deployment(context.Context, store.Key) (store.Deployment, error) {
	return store.Deployment{}, f.err
}

func (f failingStore) ListAudit(context.Context, store.AuditQuery) ([]store.AuditEntry, error) {
	return nil, f.err
}

// countless is a store that cannot count requests.
type countless struct {
	apiserver.Store
	err error
}

func (c countless) TakeRequest(context.Context, uuid.UUID, store.RateLimit) (store.RateVerdict, error) {
	return store.RateVerdict{}, c.err
}

// failingClient fails whatever a facade asks of Kubernetes but who may do what.
func failingClient(inner client.Client, err error) client.Client {
	return interceptor.NewClient(inner.(client.WithWatch), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return err
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return err
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if _, ours := o.(v1alpha1.ConditionedObject); ours {
				return err
			}
			return c.Create(ctx, o, opts...)
		},
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return err
		},
		Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error { return err },
	})
}

// terminating is what Kubernetes says of a namespace that is being deleted.
func terminating() error {
	err := apierrors.NewForbidden(apiservertest.ConnectorResource, "crm", errors.New("unable to create new content in namespace team because it is being terminated"))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: corev1.NamespaceTerminatingCause})
	return err
}

// byWebhook is what kube-apiserver makes of the refusal of an admission webhook.
func byWebhook(code int32, reason metav1.StatusReason) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Reason: reason,
		Message: `admission webhook "names.corp" denied the request: names begin with crm-`,
	}}
}

// byPolicy is what kube-apiserver makes of a validating policy that does not hold.
func byPolicy(reason metav1.StatusReason, code int32) error {
	err := apierrors.NewForbidden(apiservertest.ConnectorResource, "crm", errors.New("ValidatingAdmissionPolicy 'names' with binding 'all' denied request: names begin with crm-"))
	err.ErrStatus.Reason, err.ErrStatus.Code = reason, code
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Message: "names begin with crm-"}}
	return err
}

// anAnswer is what an error must be answered with.
type anAnswer struct {
	err    error
	status int
	code   httpserver.Code
	says   string
}

func requireAnswers(t *testing.T, answers map[string]anAnswer) {
	t.Helper()
	s := &rest.Service{Options: rest.Options{Logger: apiservertest.DiscardLogger()}}
	for name, c := range answers {
		p := s.ProblemOf(t.Context(), fmt.Errorf("doing something: %w", c.err))
		require.Equal(t, c.status, p.Status, name)
		require.Equal(t, c.code, p.Code, name)
		require.Contains(t, p.Detail, c.says, name)
		require.NotContains(t, p.Detail, "CANARY", name)
		require.Equal(t, c.status == 503, p.RetryAfter > 0, name)
	}
}

func TestProblem_MapsErrorsOfKubernetes(t *testing.T) {
	t.Parallel()
	quota := apierrors.NewForbidden(apiservertest.ConnectorResource, "crm", errors.New("exceeded quota: small, requested: count/connectors=1, used: count/connectors=5, limited: count/connectors=5"))
	requireAnswers(t, map[string]anAnswer{
		"not found":                 {apierrors.NewNotFound(apiservertest.ConnectorResource, "crm"), 404, httpserver.CodeNotFound, ""},
		"already exists":            {apierrors.NewAlreadyExists(apiservertest.ConnectorResource, "crm"), 409, httpserver.CodeAlreadyExists, ""},
		"conflict":                  {apierrors.NewConflict(apiservertest.ConnectorResource, "crm", io.EOF), 409, httpserver.CodeConflict, ""},
		"namespace terminating":     {terminating(), 409, httpserver.CodeTerminating, "being deleted"},
		"quota":                     {quota, 403, httpserver.CodeQuotaExceeded, "small, requested: count/connectors=1, used: count/connectors=5"},
		"missing permission":        {apierrors.NewForbidden(apiservertest.ConnectorResource, "crm", errors.New("no RoleBinding")), 403, httpserver.CodeRefused, "no RoleBinding"},
		"a webhook's 403":           {byWebhook(403, metav1.StatusReasonForbidden), 403, httpserver.CodeRefused, `webhook "names.corp" denied the request: names begin with crm-`},
		"a webhook's 400":           {byWebhook(400, metav1.StatusReasonBadRequest), 403, httpserver.CodeRefused, "names begin with crm-"},
		"a webhook's 422":           {byWebhook(422, metav1.StatusReasonInvalid), 403, httpserver.CodeRefused, "names begin with crm-"},
		"a webhook's 503":           {byWebhook(503, metav1.StatusReasonServiceUnavailable), 403, httpserver.CodeRefused, "names begin with crm-"},
		"a policy":                  {byPolicy(metav1.StatusReasonInvalid, 422), 403, httpserver.CodeRefused, "'names' with binding 'all' denied request: names begin with crm-"},
		"a policy's 401":            {byPolicy(metav1.StatusReasonUnauthorized, 401), 403, httpserver.CodeRefused, "names begin with crm-"},
		"bad request of the facade": {apierrors.NewBadRequest("CANARY"), 500, httpserver.CodeInternal, ""},
		"invalid":                   {apierrors.NewInvalid(schema.GroupKind{Kind: "Connector"}, "crm", field.ErrorList{field.Required(field.NewPath("spec"), "")}), 422, httpserver.CodeInvalid, ""},
		"too large":                 {apierrors.NewRequestEntityTooLargeError("x"), 413, httpserver.CodeRequestTooLarge, ""},
		"too many requests":         {apierrors.NewTooManyRequests("slow down", 7), 503, httpserver.CodeClusterUnavailable, ""},
		"unavailable":               {apierrors.NewServiceUnavailable("x"), 503, httpserver.CodeClusterUnavailable, ""},
		"timeout":                   {apierrors.NewTimeoutError("x", 1), 503, httpserver.CodeClusterUnavailable, ""},
		"timeout of the server":     {apierrors.NewServerTimeout(apiservertest.ConnectorResource, "create", 1), 503, httpserver.CodeClusterUnavailable, ""},
		"etcd has no leader":        {apierrors.NewInternalError(errors.New("etcdserver: leader changed")), 503, httpserver.CodeClusterUnavailable, ""},
		"expired token":             {apierrors.NewUnauthorized("x"), 503, httpserver.CodeClusterUnavailable, ""},
		"kube-apiserver is down":    {&url.Error{Op: "Get", URL: "https://10.0.0.1", Err: apiservertest.ErrConnectionRefused}, 503, httpserver.CodeClusterUnavailable, ""},
		"kube-apiserver hangs":      {&url.Error{Op: "Get", URL: "https://10.0.0.1", Err: context.DeadlineExceeded}, 503, httpserver.CodeClusterUnavailable, ""},
	})
	slow := (&rest.Service{Options: rest.Options{Logger: apiservertest.DiscardLogger()}}).ProblemOf(t.Context(), apierrors.NewTooManyRequests("slow down", 7))
	require.Equal(t, 7*time.Second, slow.RetryAfter, "as Kubernetes says")
}

func TestProblem_MapsErrorsOfStore(t *testing.T) {
	t.Parallel()
	requireAnswers(t, map[string]anAnswer{
		"unknown row":                       {store.ErrNotFound, 404, httpserver.CodeNotFound, ""},
		"id taken":                          {&store.IDTakenError{}, 409, httpserver.CodeConflict, ""},
		"a broad search":                    {store.ErrSearchTooBroad, 422, httpserver.CodeSearchTooBroad, "choose a shorter window"},
		"many searches":                     {store.ErrSearchBusy, 503, httpserver.CodeBusy, "try again"},
		"no key yet":                        {secrets.ErrNoKeys, 503, httpserver.CodeKeyring, ""},
		"no current key":                    {store.ErrNoCurrentKey, 503, httpserver.CodeKeyring, ""},
		"PostgreSQL is down":                {apiservertest.ErrConnectionRefused, 503, httpserver.CodeStoreUnavailable, ""},
		"PostgreSQL hangs up":               {io.ErrUnexpectedEOF, 503, httpserver.CodeStoreUnavailable, ""},
		"PostgreSQL shuts down":             {&pgconn.PgError{Code: "57P01"}, 503, httpserver.CodeStoreUnavailable, ""},
		"PostgreSQL is full":                {&pgconn.PgError{Code: "53300"}, 503, httpserver.CodeStoreUnavailable, ""},
		"PostgreSQL is not ready":           {&pgconn.PgError{Code: "42P01"}, 503, httpserver.CodeStoreUnavailable, ""},
		"rejected database server":          {fmt.Errorf("%w: the server is a replica", store.ErrAway), 503, httpserver.CodeStoreUnavailable, ""},
		"excluded release":                  {fmt.Errorf("%w: install the newer release", store.ErrNewerSchema), 503, httpserver.CodeStoreUnavailable, ""},
		"other migrations":                  {fmt.Errorf("%w: use an empty store", store.ErrForeignSchema), 503, httpserver.CodeStoreUnavailable, ""},
		"a replica of PostgreSQL":           {&pgconn.PgError{Code: "25006"}, 503, httpserver.CodeStoreUnavailable, ""},
		"wrong password during a change":    {&pgconn.PgError{Code: "28P01"}, 503, httpserver.CodeStoreUnavailable, ""},
		"missing database during a restore": {&pgconn.PgError{Code: "3D000"}, 503, httpserver.CodeStoreUnavailable, ""},
		"serialization failure":             {&pgconn.PgError{Code: "40001"}, 503, httpserver.CodeStoreUnavailable, ""},
		"deadlock":                          {&pgconn.PgError{Code: "40P01"}, 503, httpserver.CodeStoreUnavailable, ""},
		"the disk is full":                  {&fs.PathError{Op: "write", Path: "/data", Err: syscall.ENOSPC}, 503, httpserver.CodeStoreUnavailable, ""},
		"broken connection":                 {driver.ErrBadConn, 503, httpserver.CodeStoreUnavailable, ""},
		"SQLite is locked":                  {fileError(6 | 1<<8), 503, httpserver.CodeStoreUnavailable, ""},
		"SQLite disk full":                  {fileError(13), 503, httpserver.CodeStoreUnavailable, ""},
		"SQL error of SQLite":               {fileError(1), 500, httpserver.CodeInternal, ""},
		"client cancelled the request":      {context.Canceled, 503, httpserver.CodeGivenUp, ""},
		"deadline exceeded":                 {context.DeadlineExceeded, 503, httpserver.CodeGivenUp, ""},
		"SQL error of PostgreSQL":           {&pgconn.PgError{Code: "42601"}, 500, httpserver.CodeInternal, ""},
		"unknown error":                     {errors.New("CANARY"), 500, httpserver.CodeInternal, ""},
		"error of the facade":               {rest.NotFound("run"), 404, httpserver.CodeNotFound, "run"},
	})
}

// No endpoint returns 500 if Kubernetes or the store is unavailable.
func TestEndpoints_Return503IfADependencyFails(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	w.Call(t, key, http.MethodGet, "/environments", "") // the key and its rights are known
	away := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	working := w.Server.Service.Client
	for name, change := range map[string]struct {
		fail func()
		code httpserver.Code
		all  bool
	}{
		"counting":   {func() { w.UseStore(countless{w.Store, away}) }, httpserver.CodeStoreUnavailable, true},
		"the store":  {func() { w.UseStore(failingStore{w.Store, away}) }, httpserver.CodeStoreUnavailable, true},
		"kubernetes": {func() { w.Server.Service.Client = failingClient(working, &url.Error{Op: "Get", Err: away}) }, httpserver.CodeClusterUnavailable, false},
	} {
		t.Run(name, func(t *testing.T) {
			failed := 0
			for _, r := range apiservertest.SupportedEndpoints(t) {
				path := apiservertest.FillPath(t, r.Example.Path, idsForExample(t, w, r))
				change.fail()
				answer := w.Request(t, key, r.Method, path, bodyFor(r))
				w.UseStore(w.Store)
				w.Server.Service.Client = working
				if answer.Code == http.StatusOK && !change.all {
					continue // the store alone answers it
				}
				failed++
				require.Equal(t, http.StatusServiceUnavailable, answer.Code, "%s away, %s: %s", name, r.ID, answer.Body)
				require.Equal(t, change.code, apiservertest.Decode[rest.Problem](t, answer.Body.Bytes()).Code, "%s away, %s", name, r.ID)
				require.Equal(t, "2", answer.Header().Get("Retry-After"))
			}
			require.Greater(t, failed, len(apiservertest.SupportedEndpoints(t))/2)
		})
	}
}

// The response explains a quota and a terminating namespace.
func TestProblem_ShowsReasonOfKubernetes(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, working := w.CreateKey(t, nil), w.Server.Service.Client
	for status, err := range map[int]error{
		http.StatusForbidden: apierrors.NewForbidden(apiservertest.ConnectorResource, "crm", errors.New("exceeded quota: small, requested: 1, used: 5, limited: 5")),
		http.StatusConflict:  terminating(),
	} {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			w.Server.Service.Client = interceptor.NewClient(working.(client.WithWatch), interceptor.Funcs{
				Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
					if _, ours := o.(v1alpha1.ConditionedObject); ours {
						return err
					}
					return c.Create(ctx, o, opts...)
				},
			})
			answer := w.Request(t, key, http.MethodPost, "/connectors/"+w.IDs["connector"]+"/links", `{"agent_name":"other"}`)
			require.Equal(t, status, answer.Code, "%s", answer.Body)
		})
	}
}

// fileError is an error of SQLite with a code.
type fileError int

func (f fileError) Error() string { return "CANARY" }

func (f fileError) Code() int { return int(f) }

// A call ends if Kubernetes or the store does not respond.
func TestDeadline_EndsHangingCalls(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	w.Call(t, key, http.MethodGet, "/environments", "") // the key and its rights are known
	working := w.Server.Service.Client
	w.Server.Service.RequestTimeout = 50 * time.Millisecond
	w.Server.Service.Client = interceptor.NewClient(working.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, _ client.WithWatch, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
			<-ctx.Done()
			return &url.Error{Op: "Get", URL: "https://10.0.0.1", Err: ctx.Err()}
		},
	})
	answer := w.Request(t, key, http.MethodGet, "/environments/"+w.IDs["environment"], "")
	require.Equal(t, http.StatusServiceUnavailable, answer.Code, "%s", answer.Body)
	w.Server.Service.Client = working
	w.UseStore(hanging{w.Store})
	answer = w.Request(t, key, http.MethodGet, "/runs/"+w.CompletedRun.String(), "")
	require.Equal(t, http.StatusServiceUnavailable, answer.Code, "%s", answer.Body)
}

// hanging is a store that never answers what a run is.
type hanging struct{ apiserver.Store }

func (hanging) Run(ctx context.Context, _ store.Key) (store.Run, error) {
	<-ctx.Done()
	return store.Run{}, ctx.Err()
}

func TestPanic_Returns500(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	w.Call(t, key, http.MethodGet, "/environments", "")
	w.UseStore(nil)
	answer := w.SendTo(t, w.Server, key, http.MethodGet, "/v1/projects/"+w.ProjectID.String()+"/nothing", "")
	require.Equal(t, http.StatusInternalServerError, answer.Code)
	require.Equal(t, httpserver.CodeInternal, apiservertest.Decode[rest.Problem](t, answer.Body.Bytes()).Code)
}
