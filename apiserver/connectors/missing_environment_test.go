// SPDX-License-Identifier: Apache-2.0

package connectors_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/connectors"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// oneByOne counts questions about one connector.
type oneByOne struct {
	apiserver.Store
	questions *int
}

func (o oneByOne) Connector(ctx context.Context, key store.Key) (store.Connector, error) {
	*o.questions++
	return o.Store.Connector(ctx, key)
}

// The store knows the connectors of a deleted environment. One query is enough for any number of connectors.
func TestListConnectors_OfADeletedEnvironment(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	for i := range 5 { // of which the store has no row
		w.Create(t, &v1alpha1.Connector{ObjectMeta: w.Meta(fmt.Sprintf("orphan-%d", i)), Spec: v1alpha1.ConnectorSpec{
			Environment: "nowhere", Mode: v1alpha1.ModeInbound, Webhook: &v1alpha1.WebhookConnector{},
		}})
	}
	gone := w.EnvironmentID("production")
	environment := &v1alpha1.Environment{ObjectMeta: w.Meta("production")}
	require.NoError(t, w.Client.Delete(t.Context(), environment))
	questions := 0
	w.UseStore(oneByOne{w.Store, &questions})
	status, body := w.Call(t, key, http.MethodGet, "/connectors?environment_id="+gone, "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	left := apiservertest.Decode[[]connectors.Connector](t, body)
	require.Len(t, left, 1)
	require.Equal(t, w.IDs["connector"], left[0].ID)
	require.Nil(t, left[0].EnvironmentID)
	require.False(t, left[0].Enabled)
	require.Equal(t, `its environment "production" was deleted`, *left[0].DisabledReason)
	status, body = w.Call(t, key, http.MethodGet, "/connectors?environment_id="+uuid.NewString(), "")
	require.Equal(t, http.StatusNotFound, status, "%s", body)
	require.LessOrEqual(t, questions, 1, "one query for the fields of the response")
}

// A connector whose environment was deleted says so and cannot be changed, whoever defines it.
func TestUpdateConnector_OfADeletedEnvironment(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	code := w.CreateConnector(t, "production.crm", func(c *v1alpha1.Connector) {
		c.Labels = map[string]string{v1alpha1.LabelDefinedInCode: "true"}
	})
	require.NoError(t, w.Store.PutConnector(t.Context(), store.Connector{
		Ref: w.StoredRef(t, store.KindConnector, code.Name), ID: uuid.MustParse(code.Status.ID), ProjectID: w.ProjectID, EnvironmentID: w.ObjectID(t, "environment"),
		Name: "crm", Type: "webhook", Mode: "inbound", Enabled: true, Config: []byte("{}"), DefinedInCode: true,
	}))
	environment := w.StoredRef(t, store.KindEnvironment, "production")
	require.NoError(t, w.Client.Delete(t.Context(), &v1alpha1.Environment{ObjectMeta: w.Meta("production")}))
	w.Server.Service.ReadyTimeout = time.Hour
	for range 2 { // before the store knows of it, and afterwards
		for _, id := range []string{w.IDs["connector"], code.Status.ID} {
			status, body := w.Call(t, key, http.MethodGet, "/connectors/"+id, "")
			require.Equal(t, http.StatusOK, status, "%s", body)
			shown := apiservertest.Decode[connectors.Connector](t, body)
			require.False(t, shown.Enabled)
			require.Equal(t, `its environment "production" was deleted`, *shown.DisabledReason)
			changes := []string{`{"enabled":true}`, `{"enabled":false}`}
			if id != code.Status.ID {
				changes = append(changes, `{"name":"Other"}`, `{"config":{"authentication":"github"}}`)
			}
			for _, change := range changes {
				t.Run(change, func(t *testing.T) {
					answer := w.Request(t, key, http.MethodPatch, "/connectors/"+id, change)
					apiservertest.RequireProblem(t, answer, http.StatusConflict, httpserver.CodeGone)
					require.Contains(t, answer.Body.String(), "was deleted")
				})
			}
			if id != code.Status.ID {
				apiservertest.RequireProblem(t, w.Request(t, key, http.MethodPost, "/connectors/"+id+"/links", `{"agent_name":"other"}`), http.StatusConflict, httpserver.CodeGone)
			}
		}
		require.NoError(t, w.Store.Remove(t.Context(), w.ProjectID, environment))
	}
}

// A connector whose environment is yet to be created was never in one.
func TestGetConnector_BeforeItsEnvironment(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	conn := w.CreateConnector(t, "early", func(c *v1alpha1.Connector) { c.Spec.Environment = "later" })
	v1alpha1.MarkReferenceMissing(conn, store.KindEnvironment, "later")
	require.NoError(t, w.Client.Status().Update(t.Context(), conn))
	shown := w.GetConnector(t, w.CreateKey(t, nil), conn)
	require.True(t, shown.Enabled)
	require.Contains(t, *shown.DisabledReason, "create it")
}
