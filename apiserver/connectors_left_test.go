// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/httpserver"
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
	require.False(t, left[0].Enabled)
	require.Equal(t, `its environment "production" was deleted`, *left[0].DisabledReason)
	status, body = w.call(t, key, http.MethodGet, "/connectors?environment_id="+uuid.NewString(), "")
	require.Equal(t, http.StatusNotFound, status, "%s", body)
	require.LessOrEqual(t, questions, 1, "what is shown of it may be asked for")
}

// A connector whose environment was deleted says so and cannot be changed, whoever defines it.
func TestUpdateConnector_OfADeletedEnvironment(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key := w.key(t, nil)
	code := w.connectorNamed(t, "production.crm", func(c *v1alpha1.Connector) {
		c.Labels = map[string]string{v1alpha1.LabelDefinedInCode: "true"}
	})
	require.NoError(t, w.db.PutConnector(t.Context(), store.Connector{
		Ref: w.refOf(t, store.KindConnector, code.Name), ID: uuid.MustParse(code.Status.ID), ProjectID: w.projectID, EnvironmentID: w.id(t, "environment"),
		Name: "crm", Type: "webhook", Mode: "inbound", Enabled: true, Config: []byte("{}"), DefinedInCode: true,
	}))
	environment := w.refOf(t, store.KindEnvironment, "production")
	require.NoError(t, w.client.Delete(t.Context(), &v1alpha1.Environment{ObjectMeta: w.meta("production")}))
	w.server.patience = time.Hour
	for range 2 { // before the store knows of it, and afterwards
		for _, id := range []string{w.ids["connector"], code.Status.ID} {
			status, body := w.call(t, key, http.MethodGet, "/connectors/"+id, "")
			require.Equal(t, http.StatusOK, status, "%s", body)
			shown := decode[Connector](t, body)
			require.False(t, shown.Enabled)
			require.Equal(t, `its environment "production" was deleted`, *shown.DisabledReason)
			changes := []string{`{"enabled":true}`, `{"enabled":false}`}
			if id != code.Status.ID {
				changes = append(changes, `{"name":"Other"}`, `{"config":{"authentication":"github"}}`)
			}
			for _, change := range changes {
				t.Run(change, func(t *testing.T) {
					answer := w.ask(t, key, http.MethodPatch, "/connectors/"+id, change)
					requireRefused(t, answer, http.StatusConflict, httpserver.CodeGone)
					require.Contains(t, answer.Body.String(), "was deleted")
				})
			}
		}
		require.NoError(t, w.db.Remove(t.Context(), w.projectID, environment))
	}
}

// A connector whose environment is yet to be created was never in one.
func TestGetConnector_BeforeItsEnvironment(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.connectorNamed(t, "early", func(c *v1alpha1.Connector) { c.Spec.Environment = "later" })
	v1alpha1.MarkReferenceMissing(conn, store.KindEnvironment, "later")
	require.NoError(t, w.client.Status().Update(t.Context(), conn))
	shown := w.shown(t, w.key(t, nil), conn)
	require.True(t, shown.Enabled)
	require.Contains(t, *shown.DisabledReason, "create it")
}
