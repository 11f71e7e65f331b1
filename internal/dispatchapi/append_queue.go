// SPDX-License-Identifier: Apache-2.0

package dispatchapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	// maxAppendSize limits an append that shares a request, maxAppendBytes all appends of a request, in bytes of JournalEntry.Size.
	maxAppendSize  = 32 << 10
	maxAppendBytes = 1 << 20
	// shareWait is how long an append waits for requests in progress. After that another request begins, so that a gateway that
	// hangs delays only the appends that it got.
	shareWait = 20 * time.Millisecond
	// separateTime is how long appends share no request after a failed one, unless the gateway asks for more. unsupportedTime applies
	// if the gateway does not know the request, because it is of an earlier release.
	separateTime    = time.Second
	unsupportedTime = time.Minute
)

// errAlone means that an append has a request of its own.
var errAlone = errors.New("the append shares no request")

// appendQueue sends appends. Appends that arrive while others are being sent share the next request. An append does not wait for
// others if none is being sent.
type appendQueue struct {
	// send sends appends once and returns the result of each.
	send func(ctx context.Context, appends []RunAppend) ([]error, error)

	mutex   sync.Mutex
	waiting []*pendingAppend
	senders int // goroutines of sendWaiting
	// separateUntil is the time until which appends share no request.
	separateUntil time.Time
}

// pendingAppend is an append that waits for its result.
type pendingAppend struct {
	RunAppend
	size int
	done chan error // capacity 1
}

// tryAppend sends an append once. It returns errAlone if the append has to be sent alone. If ctx ends, the entries may be appended
// nevertheless.
func (q *appendQueue) tryAppend(ctx context.Context, a RunAppend) error {
	own := &pendingAppend{RunAppend: a, done: make(chan error, 1)}
	for _, entry := range a.Entries {
		own.size += entry.Size()
	}
	if !q.addWaiting(own) {
		return errAlone
	}
	patience := time.NewTimer(shareWait)
	defer patience.Stop()
	for {
		select {
		case err := <-own.done:
			return err
		case <-patience.C:
			q.endPatience(own)
		case <-ctx.Done():
			q.removeWaiting(own)
			return context.Cause(ctx)
		}
	}
}

// addWaiting adds an append, unless it has to be sent alone. The first one starts the requests.
func (q *appendQueue) addWaiting(own *pendingAppend) (added bool) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	if own.size > maxAppendSize || time.Now().Before(q.separateUntil) {
		return false
	}
	q.waiting = append(q.waiting, own)
	if q.senders == 0 {
		q.startSender()
	}
	return true
}

// startSender begins a request beside those in progress. The caller holds the lock.
func (q *appendQueue) startSender() {
	q.senders++
	go q.sendWaiting()
}

// endPatience begins another request, unless the append is being sent.
func (q *appendQueue) endPatience(own *pendingAppend) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	if slices.Contains(q.waiting, own) {
		q.startSender()
	}
}

// removeWaiting removes an append, unless it is being sent.
func (q *appendQueue) removeWaiting(own *pendingAppend) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	q.waiting = slices.DeleteFunc(q.waiting, func(other *pendingAppend) bool { return other == own })
}

// sendWaiting sends batches until no append waits.
func (q *appendQueue) sendWaiting() {
	for batch := q.nextBatch(); len(batch) > 0; batch = q.nextBatch() {
		appends := make([]RunAppend, len(batch))
		for i, own := range batch {
			appends[i] = own.RunAppend
		}
		ctx, cancel := context.WithTimeout(context.Background(), requestTimeout)
		errs, err := q.send(ctx, appends)
		cancel()
		if err != nil {
			q.separate(separateTimeAfter(err))
			if isFinal(err) {
				err = fmt.Errorf("%w: %v", errAlone, err) //nolint:errorlint // an error of the request is no error of an append
			}
			errs = slices.Repeat([]error{err}, len(batch))
		}
		for i, own := range batch {
			own.done <- errs[i]
		}
	}
}

// separateTimeAfter returns how long appends share no request after a failed one.
func separateTimeAfter(err error) time.Duration {
	var response *errorResponse
	switch {
	case !errors.As(err, &response):
		return separateTime
	case response.status == http.StatusNotFound || response.status == http.StatusMethodNotAllowed:
		return unsupportedTime
	}
	return max(response.retryAfter, separateTime)
}

// separate sends all appends alone for a time, also those that wait. It does not shorten a time that has begun.
func (q *appendQueue) separate(duration time.Duration) {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	if until := time.Now().Add(duration); until.After(q.separateUntil) {
		q.separateUntil = until
	}
	for _, own := range q.waiting {
		own.done <- errAlone
	}
	q.waiting = nil
}

// nextBatch returns the next appends, oldest first.
func (q *appendQueue) nextBatch() []*pendingAppend {
	q.mutex.Lock()
	defer q.mutex.Unlock()
	n, size := 0, 0
	for n < min(len(q.waiting), MaxAppends) && size+q.waiting[n].size <= maxAppendBytes {
		size += q.waiting[n].size
		n++
	}
	if n == 0 {
		q.senders--
	}
	batch := slices.Clone(q.waiting[:n])
	q.waiting = slices.Delete(q.waiting, 0, n)
	return batch
}

// sendAppends sends appends once. A single one has a request of its own, and its error says nothing about other appends.
func (c *Client) sendAppends(ctx context.Context, appends []RunAppend) ([]error, error) {
	if len(appends) == 1 {
		return []error{c.callOnce(ctx, http.MethodPost, journalPath(appends[0].RunID), appends[0].JournalRequest, nil)}, nil
	}
	const path = "/v1/journals"
	var resp AppendResponse
	if err := c.callOnce(ctx, http.MethodPost, path, AppendRequest{Appends: appends}, &resp); err != nil {
		return nil, err
	}
	if len(resp.Results) != len(appends) {
		return nil, fmt.Errorf("the gateway answered %d of %d appends", len(resp.Results), len(appends))
	}
	errs := make([]error, len(appends))
	for i, result := range resp.Results {
		switch {
		case result.Status == http.StatusNoContent: // the append is stored
		case result.Status < http.StatusBadRequest:
			errs[i] = errAlone
		default:
			errs[i] = statusError("POST "+journalPath(appends[i].RunID), result.Status, result.Detail)
		}
	}
	return errs, nil
}
