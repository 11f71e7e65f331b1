// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/internal/quota"
	"github.com/agentplatform/agentplatform/store"
)

const (
	// Calls of runners and builds use callParts of totalParts parts of the store's connections for short
	// statements. The rest is for webhooks, ended runs and sweeps. A project gets one part in
	// callShare. Heartbeats have their own queue with heartbeatParts parts, so that other calls cannot
	// delay them until leases expire.
	callParts, heartbeatParts, totalParts = 4, 2, 8
	callShare                             = 2
	// callTimeout limits a call after it left the queue.
	callTimeout = 10 * time.Second
	// heartbeatQueueTimeout is how long a heartbeat waits in the queue. It is shorter than the runner's
	// timeout, so that the runner gets the reason.
	heartbeatQueueTimeout = 2 * time.Second
)

var (
	errProjectCalls = temporaryProblem(http.StatusTooManyRequests, httpserver.CodeTooManyWaiting,
		"Too many calls of this project wait for the store. Retry later.")
	errCalls = temporaryProblem(http.StatusServiceUnavailable, httpserver.CodeBusy,
		"Too many calls wait for the store. Retry later.")
)

// newCalls returns the queue for calls to a store with the given number of connections. It uses
// parts/callsIn of them.
func newCalls(connections, parts int, patience time.Duration) *quota.Budget {
	return quota.NewBudget(connectionShare(connections, parts), callShare, maxQueued, patience)
}

func connectionShare(connections, parts int) int64 {
	return max(int64(connections*parts/totalParts), 1)
}

// callStore runs a store call after the project's turn in the queue. The function do must only wait for
// the store, never for a body.
func (h *Handler) callStore(ctx context.Context, project uuid.UUID, do func(ctx context.Context) error) error {
	return runInQueue(ctx, h.calls, project, do)
}

func runInQueue(ctx context.Context, line *quota.Budget, project uuid.UUID, do func(ctx context.Context) error) error {
	turn, err := waitForTurn(ctx, line, project)
	if err != nil {
		return err
	}
	defer turn.End()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return do(ctx)
}

// waitForTurn waits for a project's turn in a queue of store calls.
func waitForTurn(ctx context.Context, line *quota.Budget, project uuid.UUID) (*quota.Grant, error) {
	turn, err := line.Wait(ctx, project, 1)
	if errors.Is(err, quota.ErrWaitTimeout) { // another gateway may have free capacity
		return nil, errCalls
	}
	return turn, quota.Refusal(err, errProjectCalls, errCalls)
}

// writeFairly runs a store call that stores a body. The call has the project's turn, except while it waits for a chunk of the
// body. If it takes too long in a turn, its context ends.
func (h *Handler) writeFairly(ctx context.Context, project uuid.UUID, body io.Reader, do func(ctx context.Context, body io.Reader) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	end := func() {}
	begin := func() error {
		turn, err := waitForTurn(ctx, h.calls, project)
		if err == nil {
			limit := time.AfterFunc(callTimeout, func() { cancel(context.DeadlineExceeded) })
			end = func() {
				limit.Stop()
				turn.End()
			}
		}
		return err
	}
	if err := begin(); err != nil {
		return err
	}
	defer func() { end() }()
	return do(ctx, readerFunc(func(p []byte) (int, error) {
		end()
		end = func() {}
		n, err := io.ReadFull(body, p)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = nil // the next read returns io.EOF
		}
		if turn := begin(); turn != nil {
			err = turn
		}
		return n, err
	}))
}

// readFairly reads a stream from the store. Each chunk waits for the project's turn. If a chunk takes
// too long, inTurn cancels ctx, which must be the context of the body.
func (h *Handler) readFairly(ctx context.Context, cancel context.CancelFunc, project uuid.UUID, body io.Reader) io.Reader {
	return bufio.NewReaderSize(readerFunc(func(p []byte) (n int, err error) {
		err = h.callStore(ctx, project, func(turn context.Context) (err error) {
			defer context.AfterFunc(turn, cancel)()
			n, err = body.Read(p)
			return err
		})
		return n, err
	}), store.BlobChunk)
}

type readerFunc func(p []byte) (int, error)

func (read readerFunc) Read(p []byte) (int, error) { return read(p) }
