// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"net/http/httptest"
	"testing"

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
