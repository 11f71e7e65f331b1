// SPDX-License-Identifier: Apache-2.0

package webhookgw

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/store"
)

// emptyEnvironment returns a bundle with another environment without a live deployment.
func (b *bundle) emptyEnvironment() *bundle {
	other := *b
	other.environment = uuid.New()
	name := "e" + other.environment.String()
	require.NoError(b.t, b.store.PutEnvironment(b.t.Context(), store.Environment{
		Ref: ref("Environment", name, 1), ID: other.environment, ProjectID: b.project, DisplayName: name, Slug: name, Kind: "standard",
		ObjectCreatedAt: time.Unix(2, 0),
	}))
	return &other
}

// overAtOnce is an expired timeout for sync webhooks.
func overAtOnce(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx, cancel
}

// TestWebhook_NoLiveDeployment: a sync request is rejected and stores nothing, until the next
// request after an activation on any gateway. Other events are queued.
func TestWebhook_NoLiveDeployment(t *testing.T) {
	t.Parallel()
	first := setup(t).emptyEnvironment()
	first.gateway = first.serveWith(first.store, func(o *Options) { o.WithTimeout = overAtOnce })
	gateways := map[string]*Gateway{"one": first.gateway, "two": first.serveWith(first.store, func(o *Options) { o.WithTimeout = overAtOnce })}
	sync, inbound := first.connector("sync", nil, "hello").ID.String(), first.connector("inbound", nil, "hello").ID.String()
	async := func(r *http.Request) { r.Header.Set("Prefer", "respond-async") }
	keyed := func(r *http.Request) { r.Header.Set("Idempotency-Key", "key") }

	for name, gateway := range gateways {
		t.Run(name, func(t *testing.T) {
			requireAnswer(t, first.post(gateway, sync, `{}`, nil), 409, "no_live_deployment")
			requireAnswer(t, first.post(gateway, sync, `{"a":1}`, keyed), 409, "no_live_deployment")
			requireAnswer(t, first.post(gateway, sync, `{`, nil), 409, "no_live_deployment")
			_, stored, err := first.store.ListConnectorRuns(t.Context(), store.ConnectorRunQuery{Connector: store.Key{ProjectID: first.project, ID: uuid.MustParse(sync)}, Limit: 1})
			require.NoError(t, err)
			require.Zero(t, stored, "by gateway %s", name)
		})
	}
	requireAnswer(t, first.post(first.gateway, sync, `{}`, async), 202, nil)
	requireAnswer(t, first.post(first.gateway, inbound, `{}`, nil), 200, nil)
	first.deploy("hello")
	for name, gateway := range gateways {
		t.Run(name, func(t *testing.T) {
			requireAnswer(t, first.post(gateway, sync, `{}`, nil), 504, "sync_timeout")
		})
	}
}

// TestWebhook_EnvironmentGone: the response has the reason, and no remedy that does not exist.
func TestWebhook_EnvironmentGone(t *testing.T) {
	t.Parallel()
	b := setup(t).emptyEnvironment()
	for _, mode := range []string{"sync", "inbound"} {
		t.Run(mode, func(t *testing.T) {
			connector := b.connector(mode, nil, "hello").ID.String()
			disabled := b.connector(mode, func(c *store.Connector) { c.Enabled = false }, "hello").ID.String()
			requireAnswer(t, b.post(b.gateway, disabled, `{}`, nil), 409, "connector_disabled")
			environment, err := b.store.Environment(t.Context(), store.Key{ProjectID: b.project, ID: b.environment})
			require.NoError(t, err)
			require.NoError(t, b.store.Remove(t.Context(), b.project, environment.Ref))
			for _, id := range []string{connector, disabled} {
				got := b.post(b.gateway, id, `{}`, nil)
				requireAnswer(t, got, 409, "environment_gone")
				require.Contains(t, got.body["detail"], "was deleted")
				requireAnswer(t, b.post(b.gateway, id, `{}`, func(r *http.Request) { r.Header.Set("X-Service-Secret", "wrong") }), 401, "invalid_secret")
			}
			require.NoError(t, b.store.PutEnvironment(t.Context(), environment))
		})
	}
}
