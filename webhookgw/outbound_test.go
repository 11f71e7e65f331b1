// SPDX-License-Identifier: Apache-2.0

package webhookgw

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"
	"time"

	"github.com/google/uuid"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/internal/dispatchapi"
	"github.com/agentplatform/agentplatform/internal/egress"
	"github.com/agentplatform/agentplatform/internal/keyring"
	"github.com/agentplatform/agentplatform/internal/seal"
	"github.com/agentplatform/agentplatform/store"
)

// TestTheResultOfAWebhookIsDelivered: from the request to the signed delivery, by one
// gateway with the platform's keys.
func TestTheResultOfAWebhookIsDelivered(t *testing.T) {
	t.Parallel()
	type arrival struct {
		headers http.Header
		body    []byte
	}
	arrived := make(chan arrival, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			arrived <- arrival{r.Header.Clone(), body}
		}
	}))
	t.Cleanup(receiver.Close)

	ring, err := keyring.New()
	require.NoError(t, err)
	keys := &keyring.Keys{}
	derivation := ring.IDs(keyring.Derivation)[0]
	require.NoError(t, keys.Set(ring, []string{derivation, ring.IDs(keyring.Sealing)[0]}))
	b := setupWith(t, func(o *Options) {
		o.Keys = keys
		o.Guard = egress.New(egress.Rules{Allowed: map[egress.Purpose][]netip.Prefix{egress.Webhook: {netip.MustParsePrefix("127.0.0.0/8")}}})
	})
	out := b.connector("outbound", func(c *store.Connector) {
		c.Config = json.RawMessage(fmt.Sprintf(`{"url":%q}`, receiver.URL))
		c.SecretKey, c.SecretVersion = derivation, 2
		var err error
		c.Sealed, c.SealedKey, err = keys.Seal(seal.CredentialsField(c.ProjectID, c.ID), []byte(`{"headers":{"X-Team":"payments"}}`))
		require.NoError(t, err)
	})
	require.NoError(t, b.store.PutLink(t.Context(), store.Link{
		Ref: ref("ConnectorLink", uuid.NewString(), 1), ID: uuid.New(), ProjectID: b.project, ConnectorID: out.ID,
		AgentName: "hello", Outbound: &store.OutboundPolicy{Mode: store.LinkAutomatic}, ObjectCreatedAt: time.Unix(1, 0),
	}))
	in := b.connector("sync", nil, "hello")
	b.runner(func(run dispatchapi.Run) dispatchapi.CompleteRequest {
		return dispatchapi.CompleteRequest{Token: run.Token, Status: string(store.RunCompleted), Output: "42"}
	})
	answer := b.post(b.gateway, in.ID.String(), `{}`, nil)
	require.Equal(t, http.StatusOK, answer.status)

	got := <-arrived
	var body map[string]any
	require.NoError(t, json.Unmarshal(got.body, &body))
	require.Equal(t, answer.body["result"].(map[string]any)["run_id"], body["run_id"])
	require.Equal(t, "42", body["output"])
	require.Equal(t, "payments", got.headers.Get("X-Team"))
	secret, err := keys.SigningSecret(derivation, seal.Generated{ProjectID: b.project, ConnectorID: out.ID, Version: 2})
	require.NoError(t, err)
	verify, err := standardwebhooks.NewWebhook(secret)
	require.NoError(t, err)
	require.NoError(t, verify.Verify(got.body, got.headers))
}
