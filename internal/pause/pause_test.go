// SPDX-License-Identifier: Apache-2.0

package pause_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/pause"
)

func TestFor_EndsWithContext(t *testing.T) {
	t.Parallel()
	require.NoError(t, pause.For(t.Context(), time.Nanosecond))
	stopped := errors.New("stopped")
	ctx, stop := context.WithCancelCause(t.Context())
	stop(stopped)
	require.ErrorIs(t, pause.For(ctx, time.Hour), stopped)
}
