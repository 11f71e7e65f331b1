// SPDX-License-Identifier: Apache-2.0

package dispatchapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"

	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// Errors that a retry does not resolve.
var (
	// ErrFenced means that another claim replaced this one, or that the run or build ended. The
	// caller stops its work.
	ErrFenced = errors.New("claim is no longer current")
	// ErrUnauthorized means that the token is not valid, or no longer.
	ErrUnauthorized = errors.New("token is not valid")
	// ErrRejected means that the request is invalid.
	ErrRejected = errors.New("request was rejected")
)

// RejectedError is an ErrRejected with the problem of the port.
type RejectedError struct {
	Detail string
	// Code is the code of the problem, "" for a response that has none, for example of a proxy.
	Code httpserver.Code
}

// Error returns the text of ErrRejected, because callers add the detail.
func (*RejectedError) Error() string { return ErrRejected.Error() }

// Unwrap returns ErrRejected.
func (*RejectedError) Unwrap() error { return ErrRejected }

// errBusy means that the gateway works and wants fewer requests.
var errBusy = errors.New("too many requests")

// requestTimeout limits one attempt of a call that does not wait for work.
const requestTimeout = 30 * time.Second

// SaveTimeout limits one attempt to save a file, in the runner and in the gateway. A slow store needs most of it.
const SaveTimeout = 2 * time.Minute

// claimTimeout is the time of a claim request beyond its own wait.
const claimTimeout = 10 * time.Second

// heartbeatTimeout is short, because a hanging gateway must not cost the lease. The next attempt
// uses another connection and may reach another gateway.
const heartbeatTimeout = 5 * time.Second

// maxJournalStream limits a journal on the wire, in bytes: its data, which JSON can double, and the
// rest of each line.
const maxJournalStream = 3 * MaxJournal

// maxLargeRequests limits the bytes of large requests that are encoded and sent at the same time, because
// encoding needs the size of a request several times. The longest request fits. Requests of up to
// smallRequest bytes do not count.
const maxLargeRequests, smallRequest = MaxRequest, 64 << 10

// Options configure a Client.
type Options struct {
	// URL is the address of the dispatch port, such as https://webhookgw-dispatch:8081.
	URL string
	// Token is the token, TokenFile a file with it. The file is read for each request, so the token
	// can be replaced.
	Token, TokenFile string
	// CAFile contains the authorities (PEM) to trust instead of the system's. An empty file means
	// the system's. It is read for each connection, so it can be replaced.
	CAFile string
}

// Client calls the dispatch port. It retries calls with growing pauses until their context ends,
// except after an error of this package.
//
// A gateway can be sick or gone while others work, and connections are reused. So if a call fails
// because of the gateway, the client closes all idle connections. The next attempt then uses the
// gateway of a new connection.
type Client struct {
	opts Options
	base *url.URL
	http *http.Client
	// large has the bytes of large requests.
	large *semaphore.Weighted
	// appends has the appends that share a request.
	appends *appendQueue
}

// NewClient returns a client. The error names an invalid option.
func NewClient(opts Options) (*Client, error) {
	base, err := url.Parse(opts.URL)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("dispatch URL %q is not of the form https://host:port", opts.URL)
	}
	if opts.CAFile != "" && base.Scheme != "https" {
		return nil, fmt.Errorf("dispatch URL %q is plain http and cannot have an authority", opts.URL)
	}
	if opts.Token == "" && opts.TokenFile == "" {
		return nil, errors.New("a dispatch token or a token file is required")
	}
	c := &Client{opts: opts, base: base, http: &http.Client{Transport: newTransport(opts.CAFile)}, large: semaphore.NewWeighted(maxLargeRequests)}
	c.appends = &appendQueue{send: c.sendAppends}
	return c, nil
}

// Claim sends one claim request and waits as long as the request says. It does not retry, because
// the caller has a loop.
func (c *Client) Claim(ctx context.Context, req ClaimRequest) (ClaimResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, claimTimeout+time.Duration(req.WaitSeconds)*time.Second)
	defer cancel()
	var resp ClaimResponse
	return resp, c.callOnce(ctx, http.MethodPost, "/v1/claim", req, &resp)
}

// Heartbeat renews claims once. It does not retry, because the caller has a ticker.
func (c *Client) Heartbeat(ctx context.Context, req HeartbeatRequest) (HeartbeatResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	var resp HeartbeatResponse
	return resp, c.callOnce(ctx, http.MethodPost, "/v1/heartbeat", req, &resp)
}

// Journal appends entries to a run's journal. Small appends that come together share a request. A retry has a request of its own.
func (c *Client) Journal(ctx context.Context, runID uuid.UUID, req JournalRequest) error {
	isRetry := false
	return c.retryCall(ctx, func(context.Context) error {
		if !isRetry {
			isRetry = true
			if err := c.appends.tryAppend(ctx, RunAppend{RunID: runID, JournalRequest: req}); !errors.Is(err, errAlone) {
				return err
			}
		}
		return c.sendOnce(ctx, journalPath(runID), req.Entries.size(), req)
	})
}

func journalPath(runID uuid.UUID) string { return "/v1/runs/" + runID.String() + "/journal" }

// Complete ends a run.
func (c *Client) Complete(ctx context.Context, runID uuid.UUID, req CompleteRequest) error {
	size := req.Journal.size() + len(req.Output) + len(req.Context)
	return c.sendLarge(ctx, "/v1/runs/"+runID.String()+"/complete", size, req)
}

// Release releases a claim, so that another runner can resume the run.
func (c *Client) Release(ctx context.Context, runID uuid.UUID, req ReleaseRequest) error {
	return c.callWithRetries(ctx, http.MethodPost, "/v1/runs/"+runID.String()+"/release", req)
}

// Send sends a payload to an outbound connector. A *RejectedError has the problem of the payload.
func (c *Client) Send(ctx context.Context, runID uuid.UUID, req SendRequest) (resp SendResponse, err error) {
	err = c.retryCall(ctx, func(ctx context.Context) error {
		return c.callOnce(ctx, http.MethodPost, "/v1/runs/"+runID.String()+"/sends", req, &resp)
	})
	return resp, err
}

// ReportBuild reports the progress of the build.
func (c *Client) ReportBuild(ctx context.Context, req BuildReport) error {
	return c.callWithRetries(ctx, http.MethodPost, "/v1/build/report", req)
}

// AppendLog appends a chunk to the build's log.
func (c *Client) AppendLog(ctx context.Context, req BuildLog) error {
	return c.callWithRetries(ctx, http.MethodPost, "/v1/build/log", req)
}

// FinishBuild ends the build.
func (c *Client) FinishBuild(ctx context.Context, req BuildResult) error {
	return c.callWithRetries(ctx, http.MethodPost, "/v1/build/result", req)
}

// PutBundle uploads the build's bundle.
func (c *Client) PutBundle(ctx context.Context, digest string, data []byte) error {
	return c.retryCall(ctx, func(ctx context.Context) error {
		return c.sendExchange(ctx, exchange{method: http.MethodPut, path: "/v1/build/bundle/" + digest, contentType: "application/zstd", body: data})
	})
}

// Upload fetches an upload of at most limit bytes. The caller verifies the digest.
func (c *Client) Upload(ctx context.Context, limit int64) ([]byte, error) {
	return c.fetchBody(ctx, "/v1/build/upload", limit)
}

// ReadJournal fetches a journal that was too large for its claim.
func (c *Client) ReadJournal(ctx context.Context, runID uuid.UUID, token int64) ([]JournalEntry, error) {
	var entries []JournalEntry
	call := exchange{
		method: http.MethodGet, path: "/v1/runs/" + runID.String() + "/journal",
		query: url.Values{"token": {strconv.FormatInt(token, 10)}},
		read: func(r io.Reader) (err error) {
			entries, err = readEntries(r, maxJournalStream)
			return err
		},
	}
	err := c.retryCall(ctx, func(ctx context.Context) error { return c.sendExchange(ctx, call) })
	return entries, err
}

// readEntries reads one entry per line, of at most most bytes together.
func readEntries(r io.Reader, most int64) ([]JournalEntry, error) {
	limited := &io.LimitedReader{R: r, N: most + 1}
	lines := json.NewDecoder(limited)
	var entries []JournalEntry
	for {
		var entry JournalEntry
		switch err := lines.Decode(&entry); {
		case limited.N <= 0:
			return nil, fmt.Errorf("the journal is larger than %d bytes: %w", most, ErrRejected)
		case errors.Is(err, io.EOF):
			return entries, nil
		case err != nil:
			return nil, err
		}
		entries = append(entries, entry)
	}
}

// Input fetches an input that was too large for its claim.
func (c *Client) Input(ctx context.Context, runID uuid.UUID, limit int64) ([]byte, error) {
	return c.fetchBody(ctx, "/v1/runs/"+runID.String()+"/input", limit)
}

// Files lists the attachments of a run's input.
func (c *Client) Files(ctx context.Context, runID uuid.UUID) (files Files, err error) {
	data, err := c.fetchBody(ctx, "/v1/runs/"+runID.String()+"/files", MaxSmallRequest)
	if err == nil {
		err = json.Unmarshal(data, &files)
	}
	return files, err
}

// File fetches an accepted attachment by its number, of at most limit bytes.
func (c *Client) File(ctx context.Context, runID uuid.UUID, number int, limit int64) ([]byte, error) {
	return c.fetchBody(ctx, "/v1/runs/"+runID.String()+"/files/"+strconv.Itoa(number), limit)
}

// Save appends entries to a run's journal, one of them of a file with these bytes. It takes no part in the limit of large
// requests, because the engine limits the files that are saved at the same time, and the ends of other runs must not wait.
//
// A *RejectedError means that nothing is saved. If an earlier request of the call failed without a decision, the gateway may still be
// saving the file when it rejects the next request. The rejection is then no ErrRejected: the caller's attempt ends, and the claim of
// the next one stops the earlier request. More requests would not help, because the storage can stay full.
func (c *Client) Save(ctx context.Context, runID uuid.UUID, req SaveRequest, data []byte) error {
	journal, err := encodeRequest(req)
	if err != nil {
		return fmt.Errorf("encoding the request to save a file: %w", err)
	}
	call := exchange{
		method: http.MethodPut, path: "/v1/runs/" + runID.String() + "/saved", contentType: "application/octet-stream",
		query: url.Values{"journal": {strconv.Itoa(len(journal))}}, body: slices.Concat(journal, data),
	}
	isUndecided := false
	err = c.retryCall(ctx, func(context.Context) error {
		once, cancel := context.WithTimeout(ctx, SaveTimeout)
		defer cancel()
		err := c.sendExchange(once, call)
		isUndecided = isUndecided || err != nil && !isFinal(err) && !errors.Is(err, errBusy)
		return err
	})
	if isUndecided && errors.Is(err, ErrRejected) {
		return fmt.Errorf("an earlier request may have saved the file: %v", err) //nolint:errorlint // it must not be an ErrRejected
	}
	return err
}

// SavedPart fetches at most length bytes of a file that the run has saved, from an offset.
func (c *Client) SavedPart(ctx context.Context, runID uuid.UUID, token int64, file string, offset, length int64) (part []byte, err error) {
	call := exchange{
		method: http.MethodGet, path: "/v1/runs/" + runID.String() + "/saved/" + file,
		query: url.Values{
			"token": {strconv.FormatInt(token, 10)}, "offset": {strconv.FormatInt(offset, 10)}, "length": {strconv.FormatInt(length, 10)},
		},
		read: func(r io.Reader) (err error) {
			part, err = io.ReadAll(io.LimitReader(r, length))
			return err
		},
	}
	err = c.retryCall(ctx, func(ctx context.Context) error { return c.sendExchange(ctx, call) })
	return part, err
}

// Bundle fetches a bundle of at most limit bytes. The caller verifies the digest.
func (c *Client) Bundle(ctx context.Context, digest string, limit int64) ([]byte, error) {
	return c.fetchBody(ctx, "/v1/bundles/"+digest, limit)
}

func (c *Client) fetchBody(ctx context.Context, path string, limit int64) ([]byte, error) {
	var body []byte
	err := c.retryCall(ctx, func(ctx context.Context) error {
		return c.sendExchange(ctx, exchange{method: http.MethodGet, path: path, read: func(r io.Reader) error {
			var err error
			body, err = io.ReadAll(io.LimitReader(r, limit+1))
			if err == nil && int64(len(body)) > limit {
				return fmt.Errorf("%s is larger than %d bytes: %w", path, limit, ErrRejected)
			}
			return err
		}})
	})
	return body, err
}

func (c *Client) callWithRetries(ctx context.Context, method, path string, req any) error {
	return c.retryCall(ctx, func(ctx context.Context) error { return c.callOnce(ctx, method, path, req, nil) })
}

// sendLarge is callWithRetries for a request with data of the given size. Other large requests may come first.
func (c *Client) sendLarge(ctx context.Context, path string, size int, req any) error {
	return c.retryCall(ctx, func(context.Context) error { return c.sendOnce(ctx, path, size, req) })
}

// sendOnce is an attempt of sendLarge. Its time limit begins after the wait for other large requests.
func (c *Client) sendOnce(ctx context.Context, path string, size int, req any) error {
	if size > smallRequest {
		weight := min(int64(size), maxLargeRequests)
		if err := c.large.Acquire(ctx, weight); err != nil {
			return err
		}
		defer c.large.Release(weight)
	}
	once, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.callOnce(once, http.MethodPost, path, req, nil)
}

func (c *Client) callOnce(ctx context.Context, method, path string, req, resp any) error {
	body, err := encodeRequest(req)
	if err != nil {
		return fmt.Errorf("encoding the request to %s: %w", path, err)
	}
	var read func(io.Reader) error
	if resp != nil {
		read = func(r io.Reader) error { return json.NewDecoder(r).Decode(resp) }
	}
	return c.sendExchange(ctx, exchange{method: method, path: path, contentType: "application/json", body: body, read: read})
}

// encodeRequest returns a request as JSON. JSON values in it keep their size, which is limited.
func encodeRequest(req any) ([]byte, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(req)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

// isFinal reports whether a retry is pointless.
func isFinal(err error) bool {
	return errors.Is(err, ErrFenced) || errors.Is(err, ErrUnauthorized) || errors.Is(err, ErrRejected)
}

// retryCall repeats try until it succeeds, returns a final error or ctx ends.
func (c *Client) retryCall(ctx context.Context, try func(context.Context) error) error {
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.MaxInterval = 50*time.Millisecond, 5*time.Second
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		once, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		err := try(once)
		if isFinal(err) {
			return struct{}{}, backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(pauses), backoff.WithMaxElapsedTime(0))
	return err
}

// exchange is one request and the reader of its response.
type exchange struct {
	method, path, contentType string
	query                     url.Values
	body                      []byte
	read                      func(io.Reader) error // nil without a response body
}

func (c *Client) sendExchange(ctx context.Context, e exchange) error {
	err := c.tryExchange(ctx, e)
	if leavesGateway(ctx, err) {
		// The response has been read, so its connection is idle too.
		c.http.CloseIdleConnections()
	}
	return err
}

// leavesGateway reports whether the next attempt should use another gateway: the error is not a
// regular response, and the caller did not cancel.
func leavesGateway(ctx context.Context, err error) bool {
	return err != nil && !isFinal(err) && !errors.Is(err, errBusy) && !errors.Is(ctx.Err(), context.Canceled)
}

func (c *Client) tryExchange(ctx context.Context, e exchange) error {
	target := c.base.JoinPath(e.path)
	target.RawQuery = e.query.Encode()
	req, err := http.NewRequestWithContext(ctx, e.method, target.String(), bytes.NewReader(e.body))
	if err != nil {
		return fmt.Errorf("building the request to %s: %w", e.path, err)
	}
	token, err := c.readToken()
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if e.contentType != "" {
		req.Header.Set("Content-Type", e.contentType)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("calling %s %s: %w", e.method, e.path, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		return responseError(e.method, e.path, resp)
	}
	if e.read == nil {
		_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
		return err
	}
	if err := e.read(resp.Body); err != nil {
		return fmt.Errorf("reading the answer of %s %s: %w", e.method, e.path, err)
	}
	return nil
}

func (c *Client) readToken() (string, error) {
	if c.opts.TokenFile == "" {
		return c.opts.Token, nil
	}
	data, err := os.ReadFile(c.opts.TokenFile)
	if err != nil {
		return "", fmt.Errorf("reading the dispatch token: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}

// errorResponse is the error of a response. Its text is that of statusError.
type errorResponse struct {
	error
	status     int
	retryAfter time.Duration // 0 without one
}

// Unwrap returns the error that shows whether a retry is useful.
func (e *errorResponse) Unwrap() error { return e.error }

// responseError converts an error response to an error that shows whether a retry is useful.
func responseError(method, path string, resp *http.Response) error {
	var problem struct {
		Detail string          `json:"detail"`
		Code   httpserver.Code `json:"code"`
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil || json.Unmarshal(data, &problem) != nil || problem.Detail == "" {
		problem.Detail = resp.Status
	}
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // the port sends no dates
	failed := statusError(method+" "+path, resp.StatusCode, problem.Detail)
	if rejected := (*RejectedError)(nil); errors.As(failed, &rejected) {
		rejected.Code = problem.Code
	}
	return &errorResponse{failed, resp.StatusCode, time.Duration(seconds) * time.Second}
}

// statusError converts the status and the detail of a failed call to an error.
func statusError(call string, status int, text string) error {
	detail := fmt.Errorf("%s: %s", call, text)
	switch {
	case status == http.StatusConflict:
		return fmt.Errorf("%w: %w", detail, ErrFenced)
	case status == http.StatusUnauthorized:
		return fmt.Errorf("%w: %w", detail, ErrUnauthorized)
	case status == http.StatusTooManyRequests:
		return fmt.Errorf("%w: %w", detail, errBusy)
	case status < http.StatusInternalServerError:
		return fmt.Errorf("%w: %w", detail, &RejectedError{Detail: text})
	default:
		return detail
	}
}
