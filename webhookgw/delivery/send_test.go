// SPDX-License-Identifier: Apache-2.0

package delivery

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// TestSend_StatusLineDecides: the status line decides about an attempt, however the body ends.
func TestSend_StatusLineDecides(t *testing.T) {
	t.Parallel()
	body := io.MultiReader(strings.NewReader("drop"), iotest.ErrReader(errors.New("drips until the time is over")))
	saw := resultOfResponse(&http.Response{StatusCode: http.StatusAccepted, Body: io.NopCloser(body)})
	require.Empty(t, saw.class)
	require.Equal(t, "drop", saw.response)
	saw = resultOfResponse(&http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(strings.Repeat("x", 2*store.MaxExcerpt)))})
	require.Len(t, saw.response, store.MaxExcerpt)
}
