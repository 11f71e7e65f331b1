// SPDX-License-Identifier: Apache-2.0

package webhookgw

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/store"
)

// A gateway without keys exports traces too, so their outbox does not grow.
func TestTraces_NeedNoKeys(t *testing.T) {
	t.Parallel()
	paths := make(chan string, 10)
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { paths <- r.URL.Path }))
	t.Cleanup(collector.Close)
	b := setupWith(t, func(o *Options) {
		o.Guard = egress.New(egress.Rules{Allowed: map[egress.Purpose][]netip.Prefix{egress.Telemetry: {netip.MustParsePrefix("127.0.0.0/8")}}})
	})
	require.NoError(t, b.store.PutProject(t.Context(), store.Project{
		Ref: ref("Project", "project", 2), ID: b.project, Telemetry: &store.Telemetry{Endpoint: collector.URL, SamplePercent: 100},
	}))
	in := b.connector("sync", nil, "hello")
	b.runner(func(run dispatchapi.Run) dispatchapi.CompleteRequest {
		return dispatchapi.CompleteRequest{Token: run.Token, Status: string(store.RunCompleted), Output: "42"}
	})
	require.Equal(t, http.StatusOK, b.post(b.gateway, in.ID.String(), `{}`, nil).status)
	require.Equal(t, "/v1/traces", <-paths)
}
