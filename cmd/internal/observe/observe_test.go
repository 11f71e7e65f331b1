// SPDX-License-Identifier: Apache-2.0

package observe_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/cmd/internal/observe"
	"github.com/agentplatform/agentplatform/internal/metrics"
)

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	return listener
}

func process() observe.Process {
	return observe.Process{Metrics: metrics.NewRegistry(), Ready: func(context.Context) error { return nil }}
}

// A process serves its ports while it works and while it shuts down, but not afterwards.
func TestFlags_ServeProbesWhileWorkRuns(t *testing.T) {
	t.Parallel()
	listener, failed := listen(t), errors.New("the work failed")
	addr := listener.Addr().String()
	require.NoError(t, listener.Close())
	ctx, stop := context.WithCancel(t.Context())
	flags := observe.Flags{Health: addr, Metrics: "0"}
	err := flags.Run(ctx, process(), func(ctx context.Context) error {
		stop()
		<-ctx.Done()
		resp, err := http.Get("http://" + addr + "/readyz")
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
		require.Equal(t, http.StatusOK, resp.StatusCode)
		return failed
	})
	require.ErrorIs(t, err, failed)
	_, err = http.Get("http://" + addr + "/readyz")
	require.Error(t, err)
}

// A process reports an address in use before its work begins.
func TestFlags_ReportAnAddressInUseBeforeWork(t *testing.T) {
	t.Parallel()
	taken := listen(t).Addr().String()
	for _, flags := range []observe.Flags{{Health: taken, Metrics: "0"}, {Health: "0", Metrics: taken}} {
		err := flags.Run(t.Context(), process(), func(context.Context) error {
			t.Error("the work began")
			return nil
		})
		require.ErrorContains(t, err, "address already in use")
	}
}
