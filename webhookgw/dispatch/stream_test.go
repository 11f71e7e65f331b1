// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// streaming is a store with one input.
type streaming struct {
	fake
	input func(ctx context.Context) io.Reader
}

func (s *streaming) RunInput(ctx context.Context, _ store.Key) (string, io.ReadCloser, error) {
	return "text/plain", io.NopCloser(s.input(ctx)), nil
}

// inputOf returns a function that requests the input of a known run.
func inputOf(t *testing.T, st *streaming) (*Handler, func() (int, int)) {
	t.Helper()
	h := New(Options{Store: st, Logger: slog.New(slog.DiscardHandler)})
	h.owners.Put(store.Key{ProjectID: named("a"), ID: known}, named("a"))
	return h, func() (code, size int) {
		defer func() {
			if recover() != nil { // a started response is broken off
				code = 0
			}
		}()
		w := ask(t, h, "a", http.MethodGet, "/v1/runs/"+known.String()+"/input", "")
		return w.Code, w.Body.Len()
	}
}

// TestStream_OneTurnPerChunk: however small the writes are.
func TestStream_OneTurnPerChunk(t *testing.T) {
	t.Parallel()
	const chunks = 8
	turns := 0
	_, get := inputOf(t, &streaming{input: func(context.Context) io.Reader {
		body := bytes.NewReader(make([]byte, chunks*store.BlobChunk))
		return readerFunc(func(p []byte) (int, error) {
			turns++
			return body.Read(p)
		})
	}})
	code, size := get()
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, chunks*store.BlobChunk, size)
	require.Equal(t, chunks+1, turns, "one more read for the end")
}

// TestStream_HangingReadTimesOut: a hanging read holds its turn no longer than a call, and the
// stream ends.
func TestStream_HangingReadTimesOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, get := inputOf(t, &streaming{input: func(ctx context.Context) io.Reader {
			return readerFunc(func([]byte) (int, error) {
				<-ctx.Done()
				return 0, ctx.Err()
			})
		}})
		ended := make(chan int, 1)
		go func() {
			code, _ := get()
			ended <- code
		}()
		time.Sleep(callTimeout - time.Second) // bubble time
		synctest.Wait()
		require.False(t, h.calls.Free())
		time.Sleep(time.Second)
		synctest.Wait()
		require.True(t, h.calls.Free())
		require.Len(t, ended, 1)
	})
}
