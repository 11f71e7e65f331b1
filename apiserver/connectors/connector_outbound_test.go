// SPDX-License-Identifier: Apache-2.0

package connectors_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/connectors"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/connector"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

// sealedHeader is the value of a header that is sealed in a connector's object.
func sealedHeader(t *testing.T, w *apiservertest.Project, id, name string) string {
	t.Helper()
	sealed, err := base64.StdEncoding.DecodeString(w.ConnectorObject(t, id).Spec.Webhook.SealedHeaders[name])
	require.NoError(t, err)
	plain, err := w.PlatformKeys.Open(secrets.HeaderField(w.ProjectID, uuid.MustParse(id), name), sealed)
	require.NoError(t, err)
	return string(plain)
}

// linkObject reads the ConnectorLink of an id.
func linkObject(t testing.TB, w *apiservertest.Project, id string) *v1alpha1.ConnectorLink {
	t.Helper()
	var list v1alpha1.ConnectorLinkList
	require.NoError(t, w.Client.List(t.Context(), &list, client.InNamespace(w.Namespace), client.MatchingFields{"spec.id": id}))
	require.Len(t, list.Items, 1)
	return &list.Items[0]
}

// Headers are sealed in the object and masked in responses. A masked, empty or omitted value keeps the stored value.
func TestOutboundHeaders_AreCredentials(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	made := w.CreateOutboundConnector(t, key, "Results", `{"url":"https://a.example/hook","headers":{"Authorization":"Bearer CANARY","X-Team":"CANARY"}}`)
	require.Nil(t, made.WebhookURL)
	require.Nil(t, made.Secret)
	require.Equal(t, map[string]any{
		"url": "https://a.example/hook", "headers": map[string]any{"Authorization": rest.Masked, "X-Team": rest.Masked}, "headers_secret": nil, "timeout_seconds": float64(15),
		"retry": map[string]any{"max_attempts": float64(10), "schedule_seconds": seconds(connector.DefaultSchedule)},
	}, made.Config.Value)
	require.Equal(t, "Bearer CANARY", sealedHeader(t, w, made.ID, "Authorization"))
	require.Equal(t, v1alpha1.ModeOutbound, w.ConnectorObject(t, made.ID).Spec.Mode)

	path := "/connectors/" + made.ID
	patch := func(body string) connectors.Connector {
		t.Helper()
		status, answer := w.Call(t, key, http.MethodPatch, path, body)
		require.Equal(t, http.StatusOK, status, string(answer))
		require.NotContains(t, string(answer), "CANARY")
		return apiservertest.Decode[connectors.Connector](t, answer)
	}
	was := w.ConnectorObject(t, made.ID)
	patch(`{"config":{"url":"https://a.example/hook","headers":{"Authorization":"********","X-Team":""}}}`)
	require.Equal(t, was.Generation, w.ConnectorObject(t, made.ID).Generation, "nothing has changed")
	patch(`{"name":"Other"}`)
	require.Equal(t, "Bearer CANARY", sealedHeader(t, w, made.ID, "Authorization"))

	shown := patch(`{"config":{"url":"https://b.example","headers":{"Authorization":"********","X-New":"new"},"timeout_seconds":60,"retry":{"max_attempts":3,"schedule_seconds":[0,7]}}}`)
	require.Equal(t, map[string]any{
		"url": "https://b.example", "headers": map[string]any{"Authorization": rest.Masked, "X-New": rest.Masked}, "headers_secret": nil, "timeout_seconds": float64(60),
		"retry": map[string]any{"max_attempts": float64(3), "schedule_seconds": []any{float64(0), float64(7)}},
	}, shown.Config.Value)
	require.Equal(t, "Bearer CANARY", sealedHeader(t, w, made.ID, "Authorization"))
	require.Equal(t, "new", sealedHeader(t, w, made.ID, "X-New"))
	require.NotContains(t, w.ConnectorObject(t, made.ID).Spec.Webhook.SealedHeaders, "X-Team")
	entries, err := w.Store.ListAudit(t.Context(), store.AuditQuery{ProjectID: w.ProjectID, Limit: 100})
	require.NoError(t, err)
	told, err := json.Marshal(entries)
	require.NoError(t, err)
	require.Contains(t, string(told), "https://b.example")
	require.NotContains(t, string(told), "CANARY")

	ring, err := w.PlatformKeys.Ring()
	require.NoError(t, err)
	ring, added, err := ring.WithNewKey(secrets.Sealing)
	require.NoError(t, err)
	require.NoError(t, w.PlatformKeys.Set(ring, append(ring.IDs(secrets.Derivation), added)))
	patch(`{"config":{"url":"https://b.example","headers":{"Authorization":"********"}}}`)
	sealed, err := base64.StdEncoding.DecodeString(w.ConnectorObject(t, made.ID).Spec.Webhook.SealedHeaders["Authorization"])
	require.NoError(t, err)
	require.True(t, w.PlatformKeys.SealedNow(sealed), "what stays is sealed with the key that serves now")
	require.Equal(t, "Bearer CANARY", sealedHeader(t, w, made.ID, "Authorization"))
}

// The rule holds for plain values and for references to variables.
func TestOutboundHeaders_OfCodeAreMasked(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	conn := w.CreateConnector(t, "production.erp", func(c *v1alpha1.Connector) {
		c.Labels = map[string]string{v1alpha1.LabelDefinedInCode: "true"}
		c.Spec.Mode, c.Spec.Webhook.URL = v1alpha1.ModeOutbound, "https://${HOST}/invoices"
		c.Spec.Webhook.Headers = map[string]string{"Authorization": "Bearer CANARY", "X-Key": "${KEY}"}
	})
	status, body := w.Call(t, w.CreateKey(t, nil), http.MethodGet, "/connectors/"+conn.Status.ID, "")
	require.Equal(t, http.StatusOK, status, string(body))
	require.NotContains(t, string(body), "CANARY")
	config := apiservertest.Decode[connectors.Connector](t, body).Config.Value.(map[string]any)
	require.Equal(t, "https://${HOST}/invoices", config["url"])
	require.Equal(t, map[string]any{"Authorization": rest.Masked, "X-Key": rest.Masked}, config["headers"])
}

func seconds(schedule []time.Duration) (all []any) {
	for _, d := range schedule {
		all = append(all, d.Seconds())
	}
	return all
}

// The facade shows the name of the Secret and does not change it.
func TestOutboundHeaders_OfSecretAreNamed(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	conn := w.CreateConnector(t, "results", func(c *v1alpha1.Connector) {
		c.Spec.Mode, c.Spec.Webhook.URL, c.Spec.HeadersSecretRef, c.Spec.ID = v1alpha1.ModeOutbound, "https://a.example", &v1alpha1.SecretReference{Name: "mine"}, v1alpha1.UUID(uuid.NewString())
	})
	shown := w.GetConnector(t, key, conn)
	require.Equal(t, "mine", shown.Config.Value.(map[string]any)["headers_secret"])
	status, body := w.Call(t, key, http.MethodPatch, "/connectors/"+shown.ID, `{"config":{"url":"https://b.example","headers":{"X-A":"CANARY"}}}`)
	apiservertest.RequireField(t, status, body, "body.config.headers")
	status, body = w.Call(t, key, http.MethodPatch, "/connectors/"+shown.ID, `{"config":{"url":"https://b.example"}}`)
	require.Equal(t, http.StatusOK, status, string(body))
	require.EqualValues(t, "mine", w.ConnectorObject(t, shown.ID).Spec.HeadersSecretRef.Name)
}

func TestRotateSecret_RotatesSigningSecret(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	made := w.CreateOutboundConnector(t, key, "Results", `{"url":"https://a.example"}`)
	require.NotNil(t, made.SigningSecret)
	require.Contains(t, *made.SigningSecret, secrets.SigningSecretPrefix)
	status, body := w.Call(t, key, http.MethodPost, "/connectors/"+made.ID+"/rotate-secret", "")
	require.Equal(t, http.StatusOK, status, string(body))
	require.NotEqual(t, *made.SigningSecret, *apiservertest.Decode[connectors.Connector](t, body).SigningSecret)

	own := w.CreateConnector(t, "own", func(c *v1alpha1.Connector) {
		c.Spec.Mode, c.Spec.Webhook.URL, c.Spec.SecretRef = v1alpha1.ModeOutbound, "https://a.example", &v1alpha1.SecretReference{Name: "mine"}
	})
	require.Equal(t, rest.Masked, *w.GetConnector(t, key, own).SigningSecret)
}

// The connector shows the reason of the pause, and enabled ends the pause.
func TestUpdateConnector_ResumesPausedDestination(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	conn := w.CreateConnector(t, "results", func(c *v1alpha1.Connector) {
		c.Spec.Mode, c.Spec.Webhook.URL = v1alpha1.ModeOutbound, "https://a.example"
	})
	conn.MarkRoutesReady()
	require.NoError(t, w.Client.Status().Update(t.Context(), conn))
	shown := w.GetConnector(t, key, conn)
	require.Nil(t, shown.DisabledReason)
	w.ExecuteSQL(t, `INSERT INTO destinations (project_id, connector_id, failures, paused_generation, paused_reason) VALUES (?, ?, 0, ?, 'it answered 410 Gone')`,
		w.ProjectID.String(), shown.ID, conn.Generation)
	require.Contains(t, *w.GetConnector(t, key, conn).DisabledReason, "410 Gone")
	status, body := w.Call(t, key, http.MethodGet, "/connectors?environment_id="+w.EnvironmentID("production"), "")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, string(body), "410 Gone")

	status, body = w.Call(t, key, http.MethodPatch, "/connectors/"+shown.ID, `{"name":"Renamed"}`)
	require.Equal(t, http.StatusOK, status, string(body))
	require.NoError(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(conn), conn))
	w.ExecuteSQL(t, `UPDATE destinations SET paused_generation = ?`, conn.Generation)
	status, body = w.Call(t, key, http.MethodPatch, "/connectors/"+shown.ID, `{"enabled":true}`)
	require.Equal(t, http.StatusOK, status, string(body))
	require.Nil(t, apiservertest.Decode[connectors.Connector](t, body).DisabledReason)
	require.Nil(t, w.GetConnector(t, key, conn).DisabledReason)

	answer := w.Request(t, key, http.MethodPatch, "/connectors/"+shown.ID, `{"enabled":true}`, "Idempotency-Key", "once")
	require.Equal(t, http.StatusOK, answer.Code, answer.Body)
	require.NoError(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(conn), conn))
	w.ExecuteSQL(t, `UPDATE destinations SET paused_generation = ?, paused_reason = 'later'`, conn.Generation)
	for _, repeated := range []string{`{"enabled":true}`} {
		answer = w.Request(t, key, http.MethodPatch, "/connectors/"+shown.ID, repeated, "Idempotency-Key", "once")
		require.Equal(t, http.StatusOK, answer.Code, answer.Body)
		require.Contains(t, *apiservertest.Decode[connectors.Connector](t, answer.Body.Bytes()).DisabledReason, "later", "a repetition ends no later pause")
	}
}

// How the deliveries of a connector go is what the store has of its destination, and what its condition has noted.
func TestGetConnector_SaysHowDeliveriesGo(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	require.Nil(t, w.GetConnector(t, key, w.CreateConnector(t, "inbound", nil)).Delivering.Value)
	conn := w.CreateConnector(t, "results", func(c *v1alpha1.Connector) {
		c.Spec.Mode, c.Spec.Webhook.URL = v1alpha1.ModeOutbound, "https://a.example"
	})
	w.ExecuteSQL(t, `INSERT INTO destinations (project_id, connector_id, failures, paused_reason) VALUES (?, ?, 0, '')`, w.ProjectID.String(), conn.Status.ID)
	for name, c := range map[string]struct {
		set, state, reason string
		mark               func()
	}{
		"delivering": {`failures = 0, rejected = 0, paused_generation = NULL`, "delivering", "", conn.MarkDelivering},
		"failing":    {`failures = 5, rejected = 0, paused_generation = NULL`, "failing", "the last attempts failed", conn.MarkDestinationFailing},
		"rejecting":  {`failures = 0, rejected = 1, rejected_reason = '401', paused_generation = NULL`, "rejecting", "401", func() { conn.MarkDeliveriesFailing("401") }},
		"paused":     {fmt.Sprintf(`failures = 0, rejected = 0, paused_generation = %d, paused_reason = '410 Gone'`, conn.Generation), "paused", "410 Gone", func() { conn.MarkPaused("410 Gone") }},
	} {
		t.Run(name, func(t *testing.T) {
			w.ExecuteSQL(t, `UPDATE destinations SET `+c.set)
			meta.RemoveStatusCondition(&conn.Status.Conditions, v1alpha1.ConditionDelivering)
			require.NoError(t, w.Client.Status().Update(t.Context(), conn))
			got := w.GetConnector(t, key, conn).Delivering.Value
			require.Equal(t, connectors.DeliveringState(c.state), got.State)
			require.Equal(t, c.reason == "", got.Reason == nil)
			if got.Reason != nil {
				require.Contains(t, *got.Reason, c.reason)
			}
			require.Nil(t, got.Since, "nobody has noted it")
			c.mark()
			require.NoError(t, w.Client.Status().Update(t.Context(), conn))
			noted := conn.Status.Condition(v1alpha1.ConditionDelivering).LastTransitionTime
			require.True(t, noted.Time.Equal(*w.GetConnector(t, key, conn).Delivering.Value.Since))
		})
	}
	off := false
	conn.Spec.Enabled = &off
	require.NoError(t, w.Client.Update(t.Context(), conn))
	conn.MarkDisabled()
	require.NoError(t, w.Client.Status().Update(t.Context(), conn))
	require.Equal(t, &connectors.Delivering{State: "stopped", Reason: rest.Optional("disabled")}, w.GetConnector(t, key, conn).Delivering.Value)
}

// Only links of outbound connectors select results.
func TestLink_SelectsResults(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	out, in := w.CreateOutboundConnector(t, key, "Results", `{"url":"https://a.example"}`), createCRM(t, w, key, "CRM")
	links := "/connectors/" + out.ID + "/links"
	status, body := w.Call(t, key, http.MethodPost, links, `{"agent_name":"support"}`)
	require.Equal(t, http.StatusCreated, status, string(body))
	link := apiservertest.Decode[connectors.Link](t, body)
	require.Equal(t, &connectors.OutboundLink{Mode: "automatic", SourceConnectorIDs: []string{}, Statuses: []connectors.LinkStatus{"completed"}}, link.Outbound.Value)

	full := `{"outbound":{"mode":"automatic","source_connector_ids":["` + in.ID + `"],"statuses":["failed","cancelled"]}}`
	for _, method := range []string{http.MethodPatch, http.MethodGet} {
		sent := full
		if method == http.MethodGet {
			sent = ""
		}
		status, body = w.Call(t, key, method, links+"/"+link.ID, sent)
		require.Equal(t, http.StatusOK, status, string(body))
		require.Equal(t, &connectors.OutboundLink{Mode: "automatic", SourceConnectorIDs: []string{in.ID}, Statuses: []connectors.LinkStatus{"failed", "cancelled"}}, apiservertest.Decode[connectors.Link](t, body).Outbound.Value)
	}
	for location, sent := range map[string]string{
		"body.outbound.source_connector_ids[0]": `{"outbound":{"source_connector_ids":["` + out.ID + `"]}}`,
		"body.outbound.source_connector_ids[1]": `{"outbound":{"source_connector_ids":["` + in.ID + `","` + in.ID + `"]}}`,
		"body.outbound.statuses[0]":             `{"outbound":{"statuses":["running"]}}`,
		"body.outbound.statuses[1]":             `{"outbound":{"statuses":["failed","failed"]}}`,
		"body.outbound.statuses[2]":             `{"outbound":{"statuses":["completed","delivery_failed","later"]}}`,
		"body.outbound.statuses":                `{"outbound":{"mode":"agent_tool","statuses":["completed"]}}`,
		"body.outbound.source_connector_ids":    `{"outbound":{"mode":"agent_tool","source_connector_ids":["` + in.ID + `"]}}`,
		"body.outbound.action_name":             `{"outbound":{"action_name":"tell"}}`,
		"body.outbound.mode":                    `{"outbound":{"mode":"by_hand"}}`,
		"body.outbound.url":                     `{"outbound":{"url":"https://b.example"}}`,
		"body.files_required":                   `{"files_required":true}`,
	} {
		t.Run(location, func(t *testing.T) {
			status, body := w.Call(t, key, http.MethodPatch, links+"/"+link.ID, sent)
			apiservertest.RequireField(t, status, body, location)
		})
	}
	for sent, name := range map[string]string{`{"outbound":{"mode":"agent_tool"}}`: "send_to_results", `{"outbound":{"mode":"agent_tool","action_name":"tell"}}`: "tell"} {
		t.Run(name, func(t *testing.T) {
			status, body := w.Call(t, key, http.MethodPatch, links+"/"+link.ID, sent)
			require.Equal(t, http.StatusOK, status, string(body))
			require.Equal(t, &connectors.OutboundLink{Mode: "agent_tool", ActionName: &name, SourceConnectorIDs: []string{}, Statuses: []connectors.LinkStatus{}}, apiservertest.Decode[connectors.Link](t, body).Outbound.Value)
			read, err := json.Marshal(map[string]any{"outbound": apiservertest.Decode[connectors.Link](t, body).Outbound.Value})
			require.NoError(t, err)
			status, body = w.Call(t, key, http.MethodPatch, links+"/"+link.ID, string(read))
			require.Equal(t, http.StatusOK, status, "a link can be sent as it was read: %s", body)
		})
	}
	status, body = w.Call(t, key, http.MethodPatch, links+"/"+link.ID, `{}`)
	require.Equal(t, http.StatusOK, status, string(body))
	require.Nil(t, linkObject(t, w, link.ID).Spec.Outbound, "a missing field gets its default")
	status, body = w.Call(t, key, http.MethodPost, "/connectors/"+in.ID+"/links", `{"agent_name":"support","outbound":{}}`)
	apiservertest.RequireField(t, status, body, "body.outbound")
}

// A link in the mode middleware has no tool and no statuses. A client can send the link that it has read.
func TestLink_SendsByMiddleware(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	out := w.CreateOutboundConnector(t, key, "Results", `{"url":"https://a.example"}`)
	links := "/connectors/" + out.ID + "/links"
	status, body := w.Call(t, key, http.MethodPost, links, `{"agent_name":"support","outbound":{"mode":"middleware"}}`)
	require.Equal(t, http.StatusCreated, status, string(body))
	link := apiservertest.Decode[connectors.Link](t, body)
	require.Equal(t, &connectors.OutboundLink{Mode: "middleware", SourceConnectorIDs: []string{}, Statuses: []connectors.LinkStatus{}}, link.Outbound.Value)
	require.Equal(t, v1alpha1.LinkMiddleware, linkObject(t, w, link.ID).Spec.Outbound.Mode)
	read, err := json.Marshal(map[string]any{"outbound": link.Outbound.Value})
	require.NoError(t, err)
	status, body = w.Call(t, key, http.MethodPatch, links+"/"+link.ID, string(read))
	require.Equal(t, http.StatusOK, status, string(body))
	status, body = w.Call(t, key, http.MethodPatch, links+"/"+link.ID, `{"outbound":{"mode":"middleware","action_name":"tell"}}`)
	apiservertest.RequireField(t, status, body, "body.outbound.action_name")
}

// A response with a source that was deleted since is invalid in a request.
func TestUpdateLink_RejectsDeletedSource(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	out, in := w.CreateOutboundConnector(t, key, "Results", `{"url":"https://a.example"}`), createCRM(t, w, key, "CRM")
	links := "/connectors/" + out.ID + "/links"
	status, body := w.Call(t, key, http.MethodPost, links, `{"agent_name":"support","outbound":{"source_connector_ids":["`+in.ID+`"]}}`)
	require.Equal(t, http.StatusCreated, status, string(body))
	link := apiservertest.Decode[connectors.Link](t, body)
	status, body = w.Call(t, key, http.MethodDelete, "/connectors/"+in.ID, "")
	require.Equal(t, http.StatusOK, status, string(body))
	status, body = w.Call(t, key, http.MethodGet, links+"/"+link.ID, "")
	require.Equal(t, http.StatusOK, status, string(body))
	gone := apiservertest.Decode[connectors.Link](t, body).Outbound.Value
	require.Len(t, gone.SourceConnectorIDs, 1, "only results of a deleted connector")
	read, err := json.Marshal(map[string]any{"outbound": gone})
	require.NoError(t, err)
	status, body = w.Call(t, key, http.MethodPatch, links+"/"+link.ID, string(read))
	apiservertest.RequireField(t, status, body, "body.outbound.source_connector_ids[0]")
}
