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
	// Of the store's connections for short statements callsOf in callsIn are for calls
	// of runners and builds: webhooks, ends and sweeps have the rest, however much is
	// called here. A project has one part in callShare of those.
	// Heartbeats stand in a line of their own, for beatsOf of them: work goes on
	// elsewhere that they cannot keep.
	callsOf, beatsOf, callsIn = 4, 2, 8
	callShare                 = 2
	// callTime bounds a call, from when it is its turn.
	callTime = 10 * time.Second
	// beatPatience is how long a heartbeat waits for its turn: less than its runner does
	// for the answer, which else would not hear why there is none.
	beatPatience = 2 * time.Second
)

var (
	errProjectCalls = later(http.StatusTooManyRequests, httpserver.CodeTooManyWaiting,
		"Too many of this project's calls are waiting for the store; call again.")
	errCalls = later(http.StatusServiceUnavailable, httpserver.CodeBusy,
		"Too many calls are waiting for the store; call again.")
)

// newCalls is the line of what may ask a store of so many connections at once, of
// which it has so many parts in callsIn.
func newCalls(connections, parts int, patience time.Duration) *quota.Budget {
	return quota.NewBudget(callsAmong(connections, parts), callShare, maxInLine, patience)
}

func callsAmong(connections, parts int) int64 { return max(int64(connections*parts/callsIn), 1) }

// call asks the store something in the turn of a project. What it does waits for nobody
// but the store, least of all for a body.
func (h *Handler) call(ctx context.Context, project uuid.UUID, do func(ctx context.Context) error) error {
	return inLine(ctx, h.calls, project, do)
}

func inLine(ctx context.Context, line *quota.Budget, project uuid.UUID, do func(ctx context.Context) error) error {
	turn, err := line.Wait(ctx, project, 1)
	switch {
	case errors.Is(err, quota.ErrInVain): // another gateway may be better off
		return errCalls
	case err != nil:
		return quota.Refusal(err, errProjectCalls, errCalls)
	}
	defer turn.End()
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	return do(ctx)
}

// inTurn reads what streams from the store, each chunk in the turn of a project. cancel
// ends ctx, within which the body is read, when a chunk takes too long.
func (h *Handler) inTurn(ctx context.Context, cancel context.CancelFunc, project uuid.UUID, body io.Reader) io.Reader {
	return bufio.NewReaderSize(readerFunc(func(p []byte) (n int, err error) {
		err = h.call(ctx, project, func(turn context.Context) (err error) {
			defer context.AfterFunc(turn, cancel)()
			n, err = body.Read(p)
			return err
		})
		return n, err
	}), store.BlobChunk)
}

type readerFunc func(p []byte) (int, error)

// Read implements io.Reader.
func (read readerFunc) Read(p []byte) (int, error) { return read(p) }
