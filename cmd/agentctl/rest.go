// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/pflag"

	"github.com/agentplatform/agentplatform/cmd/internal/flagenv"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/keys"
	"github.com/agentplatform/agentplatform/internal/pause"
)

const (
	// maxRESTAnswer is the most bytes of an answer that are read.
	maxRESTAnswer = 8 << 20
	// restTimeout bounds one call, restTries is how often one is made that is told to come
	// later, or not answered.
	restTimeout = 45 * time.Second
	restTries   = 20
	// restPause and restLongest are the least and the most that is waited before a call is
	// made again.
	restPause, restLongest = time.Second, time.Minute
	// forwardAPI makes the REST API one of this machine.
	forwardAPI = "kubectl -n agentplatform-system port-forward service/agentplatform-api 18082:80"
)

// restOptions say which project's REST API a command calls, and as whom.
type restOptions struct {
	server, project, key, keyFile string
	// plainHTTP allows http to other hosts than this one.
	plainHTTP bool
}

func (o *restOptions) bind(flags *pflag.FlagSet) {
	flags.StringVar(&o.server, "server", "", "URL of the REST API, such as https://agents.example")
	flags.StringVar(&o.project, "project", "", "id of the project, as status.id of its Project object shows it")
	flags.StringVar(&o.key, "api-key", "", "an API key of the project; others on this machine may see flags, so give it by the environment or a file")
	flags.StringVar(&o.keyFile, "api-key-file", "", "file with the API key")
	flags.BoolVar(&o.plainHTTP, "plain-http", false,
		"send keys and secrets unencrypted where a URL is http; for networks that you trust, such as that of a cluster on this machine")
}

// rest calls the REST API of a project.
type rest struct {
	base, key string
	http      *http.Client
	// wait is pause.For, but in tests.
	wait func(ctx context.Context, d time.Duration) error
}

// base returns the URL of the server, which takes API keys.
func (o *restOptions) base() (string, error) {
	server, err := url.Parse(strings.TrimSuffix(o.server, "/"))
	switch {
	case err != nil || server.Host == "" || server.Scheme != "https" && server.Scheme != "http":
		return "", errors.New("--server, or " + flagenv.Name("server") + ": must be the URL of the REST API, such as https://agents.example, or http://127.0.0.1:18082 of a port that is forwarded: " + forwardAPI)
	case server.Scheme == "http" && !o.plainHTTP && !isLoopback(server.Hostname()):
		return "", errors.New("--server: the API key would cross the network in clear; use https, or forward a port and use http to 127.0.0.1: " +
			forwardAPI + "; in a network that you trust --plain-http, or " + flagenv.Name("plain-http") + "=true, allows it")
	}
	return server.String(), nil
}

// newHTTPClient makes the client of the REST API. It follows no redirect: another server would get the key.
func newHTTPClient() *http.Client {
	return &http.Client{Timeout: restTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// client reads the options.
func (o *restOptions) client() (*rest, error) {
	base, err := o.base()
	if err != nil {
		return nil, err
	}
	project, err := uuid.Parse(o.project)
	if err != nil {
		return nil, errors.New("--project, or " + flagenv.Name("project") + ": must be the id of a project, as this prints it: kubectl -n NAMESPACE get project project -o jsonpath={.status.id}")
	}
	key := o.key
	if o.keyFile != "" {
		text, err := os.ReadFile(o.keyFile)
		if err != nil {
			return nil, fmt.Errorf("reading the API key: %w", err)
		}
		key = strings.TrimSpace(string(text))
	}
	if _, err := keys.Parse(key); err != nil {
		return nil, fmt.Errorf("--api-key or --api-key-file, or %s or %s: %w; `agentctl apikey create` makes one", flagenv.Name("api-key"), flagenv.Name("api-key-file"), err)
	}
	return &rest{base: base + "/v1/projects/" + project.String(), key: key, http: newHTTPClient(), wait: pause.For}, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// restError is a problem that the API answers.
type restError struct {
	Status int             `json:"status"`
	Code   httpserver.Code `json:"code"`
	Detail string          `json:"detail"`
	after  time.Duration
}

// Error is for people.
func (e *restError) Error() string { return fmt.Sprintf("%d %s: %s", e.Status, e.Code, e.Detail) }

// later says that the same call may succeed when it is made again.
func (e *restError) later() bool {
	return e.Status == http.StatusServiceUnavailable || e.Status == http.StatusTooManyRequests && e.Code != httpserver.CodeStorageFull
}

// passes says whether a call may succeed later that failed for good now: nobody answered, or
// the server's side was at fault.
func passes(err error) bool {
	var problem *restError
	if !errors.As(err, &problem) {
		return true
	}
	return problem.later() || problem.Status >= http.StatusInternalServerError && problem.Status != http.StatusNotImplemented
}

// call makes a call until it is answered, and decodes the answer. One that changes something
// needs an idempotency key, under which it may be made again. body is sent as JSON; nil is none.
func (r *rest) call(ctx context.Context, method, path, idempotencyKey string, body, into any) error {
	_, err := r.tagged(ctx, method, path, idempotencyKey, "", body, into)
	return err
}

// tagged is call for what has an ETag: that of the answer, and with ifMatch the one of the
// answer that a change is based on.
func (r *rest) tagged(ctx context.Context, method, path, idempotencyKey, ifMatch string, body, into any) (etag string, err error) {
	var text []byte
	if body != nil {
		if text, err = json.Marshal(body); err != nil {
			return "", fmt.Errorf("making a request: %w", err)
		}
	}
	headers := map[string]string{"Idempotency-Key": idempotencyKey, "If-Match": ifMatch}
	err = r.repeated(ctx, func() (err error) {
		etag, err = r.once(ctx, r.http, restRequest{method, path, headers, "application/json", bytes.NewReader(text), len(text)}, into)
		return err
	})
	return etag, err
}

// repeated makes a call until it is answered, unless the answer is to come later.
func (r *rest) repeated(ctx context.Context, call func() error) error {
	for try := 1; ; try++ {
		err := call()
		var problem *restError
		answered := errors.As(err, &problem)
		if err == nil || answered && !problem.later() || try == restTries || ctx.Err() != nil {
			return err
		}
		after := restPause
		if answered {
			after = min(max(problem.after, restPause), restLongest)
		}
		if err := r.wait(ctx, after); err != nil {
			return err
		}
	}
}

// restRequest is a request; one whose size is 0 has no body, and an empty header is none.
type restRequest struct {
	method, path string
	headers      map[string]string
	media        string

	body io.Reader
	size int
}

func (r *rest) once(ctx context.Context, client *http.Client, q restRequest, into any) (etag string, err error) {
	request, err := http.NewRequestWithContext(ctx, q.method, r.base+q.path, q.body)
	if err != nil {
		return "", fmt.Errorf("making a request: %w", err)
	}
	request.Header.Set("Authorization", "Bearer "+r.key)
	if q.size > 0 {
		request.Header.Set("Content-Type", q.media)
		request.ContentLength = int64(q.size)
	}
	for name, value := range q.headers {
		if value != "" {
			request.Header.Set(name, value)
		}
	}
	response, err := client.Do(request)
	if err != nil {
		return "", unreachable(r.base, err)
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		return "", problemOf(response)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxRESTAnswer))
	if err != nil {
		return "", fmt.Errorf("reading the answer of the REST API: %w", err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return "", &restError{Status: response.StatusCode, Detail: "this is no answer of the REST API; is --server right?"}
	}
	return response.Header.Get("ETag"), nil
}

// unreachable says what to do about a server that a request did not get to, if the cause tells.
func unreachable(base string, err error) error {
	var name *net.DNSError
	var dial *net.OpError
	host := base
	if server, invalid := url.Parse(base); invalid == nil {
		host = server.Host
	}
	switch {
	case errors.Is(err, context.Canceled): // by the user
	case errors.As(err, &name):
		return fmt.Errorf("--server: no address is known for %s (%s); correct the name, or forward a port and use http://127.0.0.1:18082: %s",
			printable(name.Name), printable(name.Err), forwardAPI)
	case errors.As(err, &dial) && dial.Op == "dial":
		return fmt.Errorf("--server: nothing answers at %s (%w); if that is a port that is forwarded, forward it again: %s",
			printable(host), dial.Err, forwardAPI)
	}
	return fmt.Errorf("calling the REST API: %w", err)
}

// lateRole stands behind what a key may not do, because its role may count a moment later.
const lateRole = " (a role that was bound just now counts after half a minute at most: try again then)"

// problemOf is what an answer says that is none of success.
func problemOf(response *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(response.Body, maxRESTAnswer))
	if err != nil {
		return fmt.Errorf("reading the answer of the REST API: %w", err)
	}
	problem := &restError{}
	if json.Unmarshal(body, problem) != nil || problem.Detail == "" {
		problem.Detail = "this is no answer of the REST API; is --server right?"
	}
	problem.Status, problem.Code, problem.Detail = response.StatusCode, httpserver.Code(printable(string(problem.Code))), printableLines(problem.Detail)
	if problem.Code == httpserver.CodeForbidden && strings.Contains(problem.Detail, "lacks the permission") {
		problem.Detail += lateRole
	}
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil {
		problem.after = time.Duration(seconds) * time.Second
	}
	return problem
}
