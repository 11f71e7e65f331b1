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
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"
)

// Errors that repeating a call does not mend.
var (
	// ErrFenced says that another claim on the run came in between, or that the
	// run or build ended: the caller stops working on it.
	ErrFenced = errors.New("claim is no longer current")
	// ErrUnauthorized says that the token is not, or no longer, valid.
	ErrUnauthorized = errors.New("token is not valid")
	// ErrRejected says that the request itself is wrong.
	ErrRejected = errors.New("request was rejected")
)

// RejectedError is an ErrRejected of the port, in its words.
type RejectedError struct{ Detail string }

// Error is ErrRejected's: the detail stands beside it already.
func (*RejectedError) Error() string { return ErrRejected.Error() }

// Unwrap makes it an ErrRejected.
func (*RejectedError) Unwrap() error { return ErrRejected }

// errBusy says that the gateway is well and wants fewer requests.
var errBusy = errors.New("too many requests")

// requestTimeout bounds one try of a call that does not wait for work.
const requestTimeout = 30 * time.Second

// claimTimeout is what a claim has beyond the time that it asks dispatch to wait.
const claimTimeout = 10 * time.Second

// heartbeatTimeout is short: a gateway that hangs must not cost the lease, and the
// next try, by another connection, may find another gateway.
const heartbeatTimeout = 5 * time.Second

// maxJournalStream is the most bytes of a journal on the wire: its data, which JSON
// may double, and what stands around them in each line.
const maxJournalStream = 3 * MaxJournal

// Options configure a Client.
type Options struct {
	// URL is the address of the dispatch port, such as https://webhookgw-dispatch:8081.
	URL string
	// Token, or the file that holds it; the file is read for every request, so
	// that a token may be replaced.
	Token, TokenFile string
	// CAFile holds the authorities (PEM) to trust in place of the system's; while the
	// file is empty the system's are trusted. It is read for every connection, so that
	// it may be replaced.
	CAFile string
}

// Client calls the dispatch port. Calls are repeated with growing pauses
// until their context ends, unless their error is one of this package's.
//
// A gateway may be sick or gone while others are well, and connections are kept: so
// whenever a call fails for want of the gateway all idle ones are dropped, and the
// next try goes to whichever gateway a new connection finds.
type Client struct {
	opts Options
	base *url.URL
	http *http.Client
}

// NewClient returns a client; an error names the option that is wrong.
func NewClient(opts Options) (*Client, error) {
	base, err := url.Parse(opts.URL)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("dispatch URL %q is not of the form https://host:port", opts.URL)
	}
	if opts.CAFile != "" && base.Scheme != "https" {
		return nil, fmt.Errorf("dispatch URL %q is plain http, for which no authority can be named", opts.URL)
	}
	if opts.Token == "" && opts.TokenFile == "" {
		return nil, errors.New("a dispatch token or the file that holds it is required")
	}
	return &Client{opts: opts, base: base, http: &http.Client{Transport: newTransport(opts.CAFile)}}, nil
}

// Claim asks once for runs, waiting as long as the request says. It is not
// repeated: the caller's loop is.
func (c *Client) Claim(ctx context.Context, req ClaimRequest) (ClaimResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, claimTimeout+time.Duration(req.WaitSeconds)*time.Second)
	defer cancel()
	var resp ClaimResponse
	return resp, c.once(ctx, http.MethodPost, "/v1/claim", req, &resp)
}

// Heartbeat renews claims, once: the caller's ticker repeats it.
func (c *Client) Heartbeat(ctx context.Context, req HeartbeatRequest) (HeartbeatResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	var resp HeartbeatResponse
	return resp, c.once(ctx, http.MethodPost, "/v1/heartbeat", req, &resp)
}

// Journal appends entries to a run's journal.
func (c *Client) Journal(ctx context.Context, runID uuid.UUID, req JournalRequest) error {
	return c.call(ctx, http.MethodPost, "/v1/runs/"+runID.String()+"/journal", req)
}

// Complete ends a run.
func (c *Client) Complete(ctx context.Context, runID uuid.UUID, req CompleteRequest) error {
	return c.call(ctx, http.MethodPost, "/v1/runs/"+runID.String()+"/complete", req)
}

// Release gives a claim back, so that another runner may resume the run.
func (c *Client) Release(ctx context.Context, runID uuid.UUID, req ReleaseRequest) error {
	return c.call(ctx, http.MethodPost, "/v1/runs/"+runID.String()+"/release", req)
}

// Send sends a payload to an outbound connector. A *RejectedError says what is wrong with it.
func (c *Client) Send(ctx context.Context, runID uuid.UUID, req SendRequest) (resp SendResponse, err error) {
	err = c.retry(ctx, func(ctx context.Context) error {
		return c.once(ctx, http.MethodPost, "/v1/runs/"+runID.String()+"/sends", req, &resp)
	})
	return resp, err
}

// ReportBuild tells how far the build is.
func (c *Client) ReportBuild(ctx context.Context, req BuildReport) error {
	return c.call(ctx, http.MethodPost, "/v1/build/report", req)
}

// AppendLog appends a chunk to the build's log.
func (c *Client) AppendLog(ctx context.Context, req BuildLog) error {
	return c.call(ctx, http.MethodPost, "/v1/build/log", req)
}

// FinishBuild ends the build.
func (c *Client) FinishBuild(ctx context.Context, req BuildResult) error {
	return c.call(ctx, http.MethodPost, "/v1/build/result", req)
}

// PutBundle uploads the build's bundle.
func (c *Client) PutBundle(ctx context.Context, digest string, data []byte) error {
	return c.retry(ctx, func(ctx context.Context) error {
		return c.send(ctx, exchange{method: http.MethodPut, path: "/v1/build/bundle/" + digest, contentType: "application/zstd", body: data})
	})
}

// Upload fetches what was uploaded to be deployed, of at most limit bytes. The caller verifies
// the digest.
func (c *Client) Upload(ctx context.Context, limit int64) ([]byte, error) {
	return c.fetch(ctx, "/v1/build/upload", limit)
}

// ReadJournal fetches the journal of a run that was too large for its claim.
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
	err := c.retry(ctx, func(ctx context.Context) error { return c.send(ctx, call) })
	return entries, err
}

// readEntries reads an entry a line, of at most so many bytes together.
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

// Input fetches the input of a run that was too large for its claim.
func (c *Client) Input(ctx context.Context, runID uuid.UUID, limit int64) ([]byte, error) {
	return c.fetch(ctx, "/v1/runs/"+runID.String()+"/input", limit)
}

// Files lists the attachments of a run's input.
func (c *Client) Files(ctx context.Context, runID uuid.UUID) (files Files, err error) {
	data, err := c.fetch(ctx, "/v1/runs/"+runID.String()+"/files", MaxSmallRequest)
	if err == nil {
		err = json.Unmarshal(data, &files)
	}
	return files, err
}

// File fetches the accepted attachment of a number, of at most limit bytes.
func (c *Client) File(ctx context.Context, runID uuid.UUID, number int, limit int64) ([]byte, error) {
	return c.fetch(ctx, "/v1/runs/"+runID.String()+"/files/"+strconv.Itoa(number), limit)
}

// Bundle fetches a bundle of at most limit bytes. The caller verifies the digest.
func (c *Client) Bundle(ctx context.Context, digest string, limit int64) ([]byte, error) {
	return c.fetch(ctx, "/v1/bundles/"+digest, limit)
}

func (c *Client) fetch(ctx context.Context, path string, limit int64) ([]byte, error) {
	var body []byte
	err := c.retry(ctx, func(ctx context.Context) error {
		return c.send(ctx, exchange{method: http.MethodGet, path: path, read: func(r io.Reader) error {
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

func (c *Client) call(ctx context.Context, method, path string, req any) error {
	return c.retry(ctx, func(ctx context.Context) error { return c.once(ctx, method, path, req, nil) })
}

func (c *Client) once(ctx context.Context, method, path string, req, resp any) error {
	body, err := json.Marshal(req)
	if err != nil {
		return fmt.Errorf("encoding the request to %s: %w", path, err)
	}
	var read func(io.Reader) error
	if resp != nil {
		read = func(r io.Reader) error { return json.NewDecoder(r).Decode(resp) }
	}
	return c.send(ctx, exchange{method: method, path: path, contentType: "application/json", body: body, read: read})
}

// final says that repeating a call does not mend its error.
func final(err error) bool {
	return errors.Is(err, ErrFenced) || errors.Is(err, ErrUnauthorized) || errors.Is(err, ErrRejected)
}

// retry repeats try until it succeeds, its error is final or ctx ends.
func (c *Client) retry(ctx context.Context, try func(context.Context) error) error {
	pauses := backoff.NewExponentialBackOff()
	pauses.InitialInterval, pauses.MaxInterval = 50*time.Millisecond, 5*time.Second
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		once, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		err := try(once)
		if final(err) {
			return struct{}{}, backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(pauses), backoff.WithMaxElapsedTime(0))
	return err
}

// exchange is one request and what reads its answer.
type exchange struct {
	method, path, contentType string
	query                     url.Values
	body                      []byte
	read                      func(io.Reader) error // nil when nothing is answered
}

func (c *Client) send(ctx context.Context, e exchange) error {
	err := c.try(ctx, e)
	if leavesGateway(ctx, err) {
		// After the answer was read: its connection is idle by now as well.
		c.http.CloseIdleConnections()
	}
	return err
}

// leavesGateway says whether an error lets another gateway be tried: it is no answer
// of one that is well, and not the caller's who gave up.
func leavesGateway(ctx context.Context, err error) bool {
	return err != nil && !final(err) && !errors.Is(err, errBusy) && !errors.Is(ctx.Err(), context.Canceled)
}

func (c *Client) try(ctx context.Context, e exchange) error {
	target := c.base.JoinPath(e.path)
	target.RawQuery = e.query.Encode()
	req, err := http.NewRequestWithContext(ctx, e.method, target.String(), bytes.NewReader(e.body))
	if err != nil {
		return fmt.Errorf("building the request to %s: %w", e.path, err)
	}
	token, err := c.token()
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

func (c *Client) token() (string, error) {
	if c.opts.TokenFile == "" {
		return c.opts.Token, nil
	}
	data, err := os.ReadFile(c.opts.TokenFile)
	if err != nil {
		return "", fmt.Errorf("reading the dispatch token: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}

// responseError turns an error answer into an error that says whether it is
// worth repeating the call.
func responseError(method, path string, resp *http.Response) error {
	var problem struct {
		Detail string `json:"detail"`
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil || json.Unmarshal(data, &problem) != nil || problem.Detail == "" {
		problem.Detail = resp.Status
	}
	detail := fmt.Errorf("%s %s: %s", method, path, problem.Detail)
	switch {
	case resp.StatusCode == http.StatusConflict:
		return fmt.Errorf("%w: %w", detail, ErrFenced)
	case resp.StatusCode == http.StatusUnauthorized:
		return fmt.Errorf("%w: %w", detail, ErrUnauthorized)
	case resp.StatusCode == http.StatusTooManyRequests:
		return fmt.Errorf("%w: %w", detail, errBusy)
	case resp.StatusCode < http.StatusInternalServerError:
		return fmt.Errorf("%w: %w", detail, &RejectedError{Detail: problem.Detail})
	default:
		return detail
	}
}
