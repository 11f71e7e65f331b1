// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"bytes"
	"context"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// No event of a page leaves after the end of the stream.
func TestEvents_EndWithStream(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	recorder := httptest.NewRecorder()
	events := newEvents(recorder)
	require.True(t, events.WriteEvent(ctx, Event{Name: "step", Data: []byte("1")}.WithID(7)))
	cancel()
	require.False(t, events.WriteEvent(ctx, Event{Name: "step", Data: []byte("2")}))
	require.Equal(t, "id: 7\nevent: step\ndata: 1\n\n", recorder.Body.String())
}

// A panic while a stream is checked ends this stream and is logged. It does not end the facade.
func TestStream_EndsAfterPanic(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	service := &Service{Options: Options{Logger: slog.New(slog.NewJSONHandler(&log, nil))}} // without an index, a check panics
	open := openStream{service: service, caller: &Caller{Endpoint: &Endpoint{ID: "streamRunEvents"}}}
	checks := make(chan time.Time, 1)
	checks <- time.Time{}
	ctx, cancel := context.WithCancel(t.Context())
	open.watch(ctx, cancel, checks)
	require.ErrorIs(t, ctx.Err(), context.Canceled)
	require.Contains(t, log.String(), `"endpoint":"streamRunEvents"`)
	require.Contains(t, log.String(), "stillAllows", "the stack")
}
