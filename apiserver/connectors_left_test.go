// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/store"
)

// oneByOne counts questions about one connector.
type oneByOne struct {
	Store
	questions *int
}

func (o oneByOne) Connector(ctx context.Context, key store.Key) (store.Connector, error) {
	*o.questions++
	return o.Store.Connector(ctx, key)
}

// TestConnectorsThatAnEnvironmentHasLeftBehind: they are those that the store knows to be of it, which is
// asked once, however many there are that no environment has.
func TestConnectorsThatAnEnvironmentHasLeftBehind(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	for i := range 5 { // of which the store has no row
		w.create(t, &v1alpha1.Connector{ObjectMeta: w.meta(fmt.Sprintf("orphan-%d", i)), Spec: v1alpha1.ConnectorSpec{
			Environment: "nowhere", Mode: v1alpha1.ModeInbound, Webhook: &v1alpha1.WebhookConnector{},
		}})
	}
	gone := w.environmentID("production")
	environment := &v1alpha1.Environment{ObjectMeta: w.meta("production")}
	require.NoError(t, w.client.Delete(t.Context(), environment))
	questions := 0
	w.server.store = oneByOne{w.db, &questions}
	status, body := w.call(t, key, http.MethodGet, "/connectors?environment_id="+gone, "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	left := decode[[]Connector](t, body)
	require.Len(t, left, 1)
	require.Equal(t, w.ids["connector"], left[0].ID)
	require.Nil(t, left[0].EnvironmentID)
	status, body = w.call(t, key, http.MethodGet, "/connectors?environment_id="+uuid.NewString(), "")
	require.Equal(t, http.StatusNotFound, status, "%s", body)
	require.LessOrEqual(t, questions, 1, "what is shown of it may be asked for")
}
