// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/keyring"
	"github.com/agentplatform/agentplatform/internal/outbound"
	"github.com/agentplatform/agentplatform/internal/seal"
	"github.com/agentplatform/agentplatform/store"
)

// outbound makes an outbound connector by REST.
func (w *world) outbound(t *testing.T, key, name, config string) Connector {
	t.Helper()
	status, body := w.call(t, key, http.MethodPost, "/connectors?environment_id="+w.environmentID("production"),
		`{"name":"`+name+`","type":"webhook","mode":"outbound","config":`+config+`}`)
	require.Equal(t, http.StatusCreated, status, string(body))
	return decode[Connector](t, body)
}

// header is the value of a header that is sealed in a connector's object.
func (w *world) header(t *testing.T, id, name string) string {
	t.Helper()
	sealed, err := base64.StdEncoding.DecodeString(w.object(t, id).Spec.Webhook.SealedHeaders[name])
	require.NoError(t, err)
	plain, err := w.platform.Open(seal.HeaderField(w.projectID, uuid.MustParse(id), name), sealed)
	require.NoError(t, err)
	return string(plain)
}

// exec changes the store in a way that no method does.
func (w *world) exec(t testing.TB, statement string, args ...any) {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+w.path+"?_pragma=busy_timeout(10000)")
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	_, err = db.ExecContext(t.Context(), statement, args...)
	require.NoError(t, err)
}

// linkObject reads the ConnectorLink of an id.
func (w *world) linkObject(t testing.TB, id string) *v1alpha1.ConnectorLink {
	t.Helper()
	var list v1alpha1.ConnectorLinkList
	require.NoError(t, w.client.List(t.Context(), &list, client.InNamespace(w.namespace), client.MatchingFields{"spec.id": id}))
	require.Len(t, list.Items, 1)
	return &list.Items[0]
}

// TestHeadersAreCredentials: sealed in the object, masked in each answer, kept when they
// are sent masked, empty or not at all with a change of something else.
func TestHeadersAreCredentials(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key(t, nil)
	made := w.outbound(t, key, "Results", `{"url":"https://a.example/hook","headers":{"Authorization":"Bearer CANARY","X-Team":"CANARY"}}`)
	require.Nil(t, made.WebhookURL)
	require.Nil(t, made.Secret)
	require.Equal(t, map[string]any{
		"url": "https://a.example/hook", "headers": map[string]any{"Authorization": masked, "X-Team": masked}, "headers_secret": nil, "timeout_seconds": float64(15),
		"retry": map[string]any{"max_attempts": float64(10), "schedule_seconds": seconds(outbound.DefaultSchedule)},
	}, made.Config.Value)
	require.Equal(t, "Bearer CANARY", w.header(t, made.ID, "Authorization"))
	require.Equal(t, v1alpha1.ModeOutbound, w.object(t, made.ID).Spec.Mode)

	path := "/connectors/" + made.ID
	patch := func(body string) Connector {
		t.Helper()
		status, answer := w.call(t, key, http.MethodPatch, path, body)
		require.Equal(t, http.StatusOK, status, string(answer))
		require.NotContains(t, string(answer), "CANARY")
		return decode[Connector](t, answer)
	}
	was := w.object(t, made.ID)
	patch(`{"config":{"url":"https://a.example/hook","headers":{"Authorization":"********","X-Team":""}}}`)
	require.Equal(t, was.Generation, w.object(t, made.ID).Generation, "nothing has changed")
	patch(`{"name":"Other"}`)
	require.Equal(t, "Bearer CANARY", w.header(t, made.ID, "Authorization"))

	shown := patch(`{"config":{"url":"https://b.example","headers":{"Authorization":"********","X-New":"new"},"timeout_seconds":60,"retry":{"max_attempts":3,"schedule_seconds":[0,7]}}}`)
	require.Equal(t, map[string]any{
		"url": "https://b.example", "headers": map[string]any{"Authorization": masked, "X-New": masked}, "headers_secret": nil, "timeout_seconds": float64(60),
		"retry": map[string]any{"max_attempts": float64(3), "schedule_seconds": []any{float64(0), float64(7)}},
	}, shown.Config.Value)
	require.Equal(t, "Bearer CANARY", w.header(t, made.ID, "Authorization"))
	require.Equal(t, "new", w.header(t, made.ID, "X-New"))
	require.NotContains(t, w.object(t, made.ID).Spec.Webhook.SealedHeaders, "X-Team")
	entries, err := w.db.ListAudit(t.Context(), store.AuditQuery{ProjectID: w.projectID, Limit: 100})
	require.NoError(t, err)
	told, err := json.Marshal(entries)
	require.NoError(t, err)
	require.Contains(t, string(told), "https://b.example")
	require.NotContains(t, string(told), "CANARY")

	ring, err := w.platform.Ring()
	require.NoError(t, err)
	ring, added, err := ring.WithNewKey(keyring.Sealing)
	require.NoError(t, err)
	require.NoError(t, w.platform.Set(ring, append(ring.IDs(keyring.Derivation), added)))
	patch(`{"config":{"url":"https://b.example","headers":{"Authorization":"********"}}}`)
	sealed, err := base64.StdEncoding.DecodeString(w.object(t, made.ID).Spec.Webhook.SealedHeaders["Authorization"])
	require.NoError(t, err)
	require.True(t, w.platform.SealedNow(sealed), "what stays is sealed with the key that serves now")
	require.Equal(t, "Bearer CANARY", w.header(t, made.ID, "Authorization"))
}

// TestHeadersOfTheCodeAreMasked: those that a file has as they are, and those that name variables.
func TestHeadersOfTheCodeAreMasked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.connectorNamed(t, "production.erp", func(c *v1alpha1.Connector) {
		c.Labels = map[string]string{v1alpha1.LabelDefinedInCode: "true"}
		c.Spec.Mode, c.Spec.Webhook.URL = v1alpha1.ModeOutbound, "https://${HOST}/invoices"
		c.Spec.Webhook.Headers = map[string]string{"Authorization": "Bearer CANARY", "X-Key": "${KEY}"}
	})
	status, body := w.call(t, w.key(t, nil), http.MethodGet, "/connectors/"+conn.Status.ID, "")
	require.Equal(t, http.StatusOK, status, string(body))
	require.NotContains(t, string(body), "CANARY")
	config := decode[Connector](t, body).Config.Value.(map[string]any)
	require.Equal(t, "https://${HOST}/invoices", config["url"])
	require.Equal(t, map[string]any{"Authorization": masked, "X-Key": masked}, config["headers"])
}

func seconds(schedule []time.Duration) (all []any) {
	for _, d := range schedule {
		all = append(all, d.Seconds())
	}
	return all
}

// TestHeadersOfASecret: the facade names it, and changes nothing there.
func TestHeadersOfASecret(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key(t, nil)
	conn := w.connectorNamed(t, "results", func(c *v1alpha1.Connector) {
		c.Spec.Mode, c.Spec.Webhook.URL, c.Spec.HeadersSecretRef, c.Spec.ID = v1alpha1.ModeOutbound, "https://a.example", &v1alpha1.SecretReference{Name: "mine"}, v1alpha1.UUID(uuid.NewString())
	})
	shown := w.shown(t, key, conn)
	require.Equal(t, "mine", shown.Config.Value.(map[string]any)["headers_secret"])
	status, body := w.call(t, key, http.MethodPatch, "/connectors/"+shown.ID, `{"config":{"url":"https://b.example","headers":{"X-A":"CANARY"}}}`)
	requireField(t, status, body, "body.config.headers")
	status, body = w.call(t, key, http.MethodPatch, "/connectors/"+shown.ID, `{"config":{"url":"https://b.example"}}`)
	require.Equal(t, http.StatusOK, status, string(body))
	require.EqualValues(t, "mine", w.object(t, shown.ID).Spec.HeadersSecretRef.Name)
}

// TestSigningSecretsAreShownAndRotated: as generated secrets of callers are.
func TestSigningSecretsAreShownAndRotated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key(t, nil)
	made := w.outbound(t, key, "Results", `{"url":"https://a.example"}`)
	require.NotNil(t, made.SigningSecret)
	require.Contains(t, *made.SigningSecret, seal.SigningSecretPrefix)
	status, body := w.call(t, key, http.MethodPost, "/connectors/"+made.ID+"/rotate-secret", "")
	require.Equal(t, http.StatusOK, status, string(body))
	require.NotEqual(t, *made.SigningSecret, *decode[Connector](t, body).SigningSecret)

	own := w.connectorNamed(t, "own", func(c *v1alpha1.Connector) {
		c.Spec.Mode, c.Spec.Webhook.URL, c.Spec.SecretRef = v1alpha1.ModeOutbound, "https://a.example", &v1alpha1.SecretReference{Name: "mine"}
	})
	require.Equal(t, masked, *w.shown(t, key, own).SigningSecret)
}

// TestAPausedConnectorIsResumed: the answer says why nothing is sent, and enabled ends it.
func TestAPausedConnectorIsResumed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key(t, nil)
	conn := w.connectorNamed(t, "results", func(c *v1alpha1.Connector) {
		c.Spec.Mode, c.Spec.Webhook.URL = v1alpha1.ModeOutbound, "https://a.example"
	})
	conn.MarkRoutesReady()
	require.NoError(t, w.client.Status().Update(t.Context(), conn))
	shown := w.shown(t, key, conn)
	require.Nil(t, shown.DisabledReason)
	w.exec(t, `INSERT INTO destinations (project_id, connector_id, failures, paused_generation, paused_reason) VALUES (?, ?, 0, ?, 'it answered 410 Gone')`,
		w.projectID.String(), shown.ID, conn.Generation)
	require.Contains(t, *w.shown(t, key, conn).DisabledReason, "410 Gone")
	status, body := w.call(t, key, http.MethodGet, "/connectors?environment_id="+w.environmentID("production"), "")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, string(body), "410 Gone")

	status, body = w.call(t, key, http.MethodPatch, "/connectors/"+shown.ID, `{"name":"Renamed"}`)
	require.Equal(t, http.StatusOK, status, string(body))
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKeyFromObject(conn), conn))
	w.exec(t, `UPDATE destinations SET paused_generation = ?`, conn.Generation)
	status, body = w.call(t, key, http.MethodPatch, "/connectors/"+shown.ID, `{"enabled":true}`)
	require.Equal(t, http.StatusOK, status, string(body))
	require.Nil(t, decode[Connector](t, body).DisabledReason)
	require.Nil(t, w.shown(t, key, conn).DisabledReason)

	answer := w.ask(t, key, http.MethodPatch, "/connectors/"+shown.ID, `{"enabled":true}`, "Idempotency-Key", "once")
	require.Equal(t, http.StatusOK, answer.Code, answer.Body)
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKeyFromObject(conn), conn))
	w.exec(t, `UPDATE destinations SET paused_generation = ?, paused_reason = 'later'`, conn.Generation)
	for _, repeated := range []string{`{"enabled":true}`} {
		answer = w.ask(t, key, http.MethodPatch, "/connectors/"+shown.ID, repeated, "Idempotency-Key", "once")
		require.Equal(t, http.StatusOK, answer.Code, answer.Body)
		require.Contains(t, *decode[Connector](t, answer.Body.Bytes()).DisabledReason, "later", "a repetition ends no later pause")
	}
}

// How the deliveries of a connector go is what the store has of its destination, and what its condition has noted.
func TestGetConnector_SaysHowDeliveriesGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key(t, nil)
	require.Nil(t, w.shown(t, key, w.connectorNamed(t, "inbound", nil)).Delivering.Value)
	conn := w.connectorNamed(t, "results", func(c *v1alpha1.Connector) {
		c.Spec.Mode, c.Spec.Webhook.URL = v1alpha1.ModeOutbound, "https://a.example"
	})
	w.exec(t, `INSERT INTO destinations (project_id, connector_id, failures, paused_reason) VALUES (?, ?, 0, '')`, w.projectID.String(), conn.Status.ID)
	for name, c := range map[string]struct {
		set, state, reason string
		mark               func()
	}{
		"delivering": {`failures = 0, rejected = 0, paused_generation = NULL`, "delivering", "", conn.MarkDelivering},
		"failing":    {`failures = 5, rejected = 0, paused_generation = NULL`, "failing", "one after the other", conn.MarkDestinationFailing},
		"rejecting":  {`failures = 0, rejected = 1, rejected_reason = '401', paused_generation = NULL`, "rejecting", "401", func() { conn.MarkDeliveriesFailing("401") }},
		"paused":     {fmt.Sprintf(`failures = 0, rejected = 0, paused_generation = %d, paused_reason = '410 Gone'`, conn.Generation), "paused", "410 Gone", func() { conn.MarkPaused("410 Gone") }},
	} {
		t.Run(name, func(t *testing.T) {
			w.exec(t, `UPDATE destinations SET `+c.set)
			meta.RemoveStatusCondition(&conn.Status.Conditions, v1alpha1.ConditionDelivering)
			require.NoError(t, w.client.Status().Update(t.Context(), conn))
			got := w.shown(t, key, conn).Delivering.Value
			require.Equal(t, DeliveringState(c.state), got.State)
			require.Equal(t, c.reason == "", got.Reason == nil)
			if got.Reason != nil {
				require.Contains(t, *got.Reason, c.reason)
			}
			require.Nil(t, got.Since, "nobody has noted it")
			c.mark()
			require.NoError(t, w.client.Status().Update(t.Context(), conn))
			noted := conn.Status.Condition(v1alpha1.ConditionDelivering).LastTransitionTime
			require.True(t, noted.Time.Equal(*w.shown(t, key, conn).Delivering.Value.Since))
		})
	}
	off := false
	conn.Spec.Enabled = &off
	require.NoError(t, w.client.Update(t.Context(), conn))
	conn.MarkDisabled()
	require.NoError(t, w.client.Status().Update(t.Context(), conn))
	require.Equal(t, &Delivering{State: deliveringStopped, Reason: opt("disabled")}, w.shown(t, key, conn).Delivering.Value)
}

// TestLinksSayWhichResultsGoOut: for connectors that send, and no others.
func TestLinksSayWhichResultsGoOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key(t, nil)
	out, in := w.outbound(t, key, "Results", `{"url":"https://a.example"}`), w.crm(t, key, "CRM")
	links := "/connectors/" + out.ID + "/links"
	status, body := w.call(t, key, http.MethodPost, links, `{"agent_name":"support"}`)
	require.Equal(t, http.StatusCreated, status, string(body))
	link := decode[Link](t, body)
	require.Equal(t, &OutboundLink{Mode: "automatic", SourceConnectorIDs: []string{}, Statuses: []LinkStatus{"completed"}}, link.Outbound.Value)

	full := `{"outbound":{"mode":"automatic","source_connector_ids":["` + in.ID + `"],"statuses":["failed","cancelled"]}}`
	for _, method := range []string{http.MethodPatch, http.MethodGet} {
		sent := full
		if method == http.MethodGet {
			sent = ""
		}
		status, body = w.call(t, key, method, links+"/"+link.ID, sent)
		require.Equal(t, http.StatusOK, status, string(body))
		require.Equal(t, &OutboundLink{Mode: "automatic", SourceConnectorIDs: []string{in.ID}, Statuses: []LinkStatus{"failed", "cancelled"}}, decode[Link](t, body).Outbound.Value)
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
		"body.outbound.mode":                    `{"outbound":{"mode":"middleware"}}`,
		"body.outbound.url":                     `{"outbound":{"url":"https://b.example"}}`,
		"body.files_required":                   `{"files_required":true}`,
	} {
		t.Run(location, func(t *testing.T) {
			status, body := w.call(t, key, http.MethodPatch, links+"/"+link.ID, sent)
			requireField(t, status, body, location)
		})
	}
	for sent, name := range map[string]string{`{"outbound":{"mode":"agent_tool"}}`: "send_to_results", `{"outbound":{"mode":"agent_tool","action_name":"tell"}}`: "tell"} {
		t.Run(name, func(t *testing.T) {
			status, body := w.call(t, key, http.MethodPatch, links+"/"+link.ID, sent)
			require.Equal(t, http.StatusOK, status, string(body))
			require.Equal(t, &OutboundLink{Mode: "agent_tool", ActionName: &name, SourceConnectorIDs: []string{}, Statuses: []LinkStatus{}}, decode[Link](t, body).Outbound.Value)
			read, err := json.Marshal(map[string]any{"outbound": decode[Link](t, body).Outbound.Value})
			require.NoError(t, err)
			status, body = w.call(t, key, http.MethodPatch, links+"/"+link.ID, string(read))
			require.Equal(t, http.StatusOK, status, "what is read may be sent: %s", body)
		})
	}
	status, body = w.call(t, key, http.MethodPatch, links+"/"+link.ID, `{}`)
	require.Equal(t, http.StatusOK, status, string(body))
	require.Nil(t, w.linkObject(t, link.ID).Spec.Outbound, "what is left out gets its default")
	status, body = w.call(t, key, http.MethodPost, "/connectors/"+in.ID+"/links", `{"agent_name":"support","outbound":{}}`)
	requireField(t, status, body, "body.outbound")
}

// TestALinkIsNotWidenedByWhatIsGone: who sends back what was read, whose source was deleted
// meanwhile, is told.
func TestALinkIsNotWidenedByWhatIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key(t, nil)
	out, in := w.outbound(t, key, "Results", `{"url":"https://a.example"}`), w.crm(t, key, "CRM")
	links := "/connectors/" + out.ID + "/links"
	status, body := w.call(t, key, http.MethodPost, links, `{"agent_name":"support","outbound":{"source_connector_ids":["`+in.ID+`"]}}`)
	require.Equal(t, http.StatusCreated, status, string(body))
	link := decode[Link](t, body)
	status, body = w.call(t, key, http.MethodDelete, "/connectors/"+in.ID, "")
	require.Equal(t, http.StatusOK, status, string(body))
	status, body = w.call(t, key, http.MethodGet, links+"/"+link.ID, "")
	require.Equal(t, http.StatusOK, status, string(body))
	gone := decode[Link](t, body).Outbound.Value
	require.Len(t, gone.SourceConnectorIDs, 1, "no results but those of one that is gone")
	read, err := json.Marshal(map[string]any{"outbound": gone})
	require.NoError(t, err)
	status, body = w.call(t, key, http.MethodPatch, links+"/"+link.ID, string(read))
	requireField(t, status, body, "body.outbound.source_connector_ids[0]")
}

// TestDeliveriesAreShownWithTheirAttempts: as connector runs.
func TestDeliveriesAreShownWithTheirAttempts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key(t, nil)
	conn := w.connectorNamed(t, "results", func(c *v1alpha1.Connector) {
		c.Spec.Mode, c.Spec.Webhook.URL = v1alpha1.ModeOutbound, "https://a.example"
	})
	connector, run := uuid.MustParse(conn.Status.ID), uuid.New()
	id, err := uuid.NewV7()
	require.NoError(t, err)
	due := time.Now().Add(time.Hour).Truncate(time.Millisecond).UTC()
	w.exec(t, `INSERT INTO deliveries (project_id, id, environment_id, connector_id, link_id, run_id, attempt, due_at, started_at, waits_for) VALUES (?, ?, ?, ?, ?, ?, 2, ?, ?, 'not just now')`,
		w.projectID.String(), id.String(), w.environmentID("production"), connector.String(), uuid.NewString(), run.String(), due.UnixMicro(), time.Now().UnixMicro())
	for number, class := range map[int]string{1: store.ErrorClassLost, 2: "http_status"} {
		w.exec(t, `INSERT INTO delivery_attempts (project_id, delivery_id, number, at, duration_us, status_code, error_class, error, response)
			VALUES (?, ?, ?, ?, 7000, ?, ?, 'it failed', 'try later')`, w.projectID.String(), id.String(), number, due.UnixMicro(), (number-1)*503, class)
	}
	path := "/connectors/" + conn.Status.ID + "/runs"
	status, body := w.call(t, key, http.MethodGet, path, "")
	require.Equal(t, http.StatusOK, status, string(body))
	listed := decode[ConnectorRunList](t, body).Items[0]
	require.Equal(t, run.String(), *listed.RunID)
	require.Equal(t, TriggerType("outbound"), listed.TriggerType)
	require.Empty(t, listed.RunIDs)
	require.Zero(t, listed.DispatchedTo)
	status, body = w.call(t, key, http.MethodGet, path+"/"+id.String(), "")
	require.Equal(t, http.StatusOK, status, string(body))
	shown := decode[ConnectorRun](t, body)
	inList := slices.Clone(shown.Attempts)
	for i := range inList {
		inList[i].ResponseExcerpt = nil
	}
	require.Equal(t, inList, listed.Attempts)
	require.Equal(t, shown.NextAttemptAt, listed.NextAttemptAt)
	require.Equal(t, shown.Error, listed.Error)
	require.Equal(t, due, *shown.NextAttemptAt)
	require.Equal(t, "not just now", *shown.Error)
	require.Len(t, shown.Attempts, 2)
	require.Nil(t, shown.Attempts[0].StatusCode)
	require.Nil(t, shown.Attempts[0].DurationMS)
	require.Equal(t, store.ErrorClassLost, *shown.Attempts[0].ErrorClass)
	require.Equal(t, 503, *shown.Attempts[1].StatusCode)
	require.EqualValues(t, 7, *shown.Attempts[1].DurationMS)
	require.Equal(t, "try later", *shown.Attempts[1].ResponseExcerpt)
	require.Nil(t, shown.Output)
	require.Equal(t, DeliveryKind("result"), *shown.Kind.Value)
	require.Equal(t, shown.Kind, listed.Kind)
	require.Nil(t, shown.Payload, "the run has it")
}

// TestPayloadsAreShown: what a run has sent, by the filter of its deliveries, to those who may
// see runs; and not what is not stored any more.
func TestPayloadsAreShown(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	conn := w.connectorNamed(t, "results", func(c *v1alpha1.Connector) {
		c.Spec.Mode, c.Spec.Webhook.URL = v1alpha1.ModeOutbound, "https://a.example"
	})
	project, environment := w.projectID.String(), w.environmentID("production")
	path := "/connectors/" + conn.Status.ID + "/runs"
	all, narrow := w.key(t, nil), w.key(t, func(k *v1alpha1.APIKeySpec) {
		k.Access, k.Permissions = v1alpha1.AccessSelected, []v1alpha1.Permission{"connectors.view"}
	})
	blob, err := uuid.NewV7()
	require.NoError(t, err)
	large := `{"a":"` + strings.Repeat("x", store.MaxInlineInput) + `"}`
	_, err = w.db.PutBlob(t.Context(), store.Key{ProjectID: w.projectID, ID: blob}, strings.NewReader(large))
	require.NoError(t, err)
	for name, c := range map[string]struct {
		kind       string
		data, blob any
		want       any
	}{
		"a payload":        {"payload", []byte(`{"n": 1}`), nil, map[string]any{"n": 1.0}},
		"no object":        {"payload", []byte(`[1]`), nil, []any{1.0}},
		"a large one":      {"payload", nil, blob.String(), map[string]any{"a": strings.Repeat("x", store.MaxInlineInput)}},
		"one that is gone": {"payload", nil, uuid.NewString(), nil},
		"of a failure":     {"delivery_failed", []byte(`{"type":"delivery_failed"}`), nil, map[string]any{"type": "delivery_failed"}},
	} {
		t.Run(name, func(t *testing.T) {
			id, run := store.Stamp(uuid.New(), time.Now().UnixMicro(), 0).String(), w.completed.String()
			w.exec(t, `INSERT INTO ended_connector_runs (project_id, id, environment_id, connector_id, status, trigger_type, content_type, run_ids, kind, error, started_at, ended_at)
			VALUES (?, ?, ?, ?, 'completed', 'outbound', 'application/json', json_array(?), ?, '', 1, 2)`, project, id, environment, conn.Status.ID, run, c.kind)
			w.exec(t, `INSERT INTO inputs (project_id, id, content_type, data, blob_id) VALUES (?, ?, 'application/json', ?, ?)`, project, id, c.data, c.blob)
			status, body := w.call(t, all, http.MethodGet, path+"?run_id="+run, "")
			require.Equal(t, http.StatusOK, status, string(body))
			page := decode[ConnectorRunList](t, body)
			require.EqualValues(t, 1, page.Total)
			require.Equal(t, id, page.Items[0].ID)
			require.Equal(t, DeliveryKind(c.kind), *page.Items[0].Kind.Value)
			require.Nil(t, page.Items[0].Payload)
			status, body = w.call(t, all, http.MethodGet, path+"/"+id, "")
			require.Equal(t, http.StatusOK, status, string(body))
			require.Equal(t, c.want, decode[ConnectorRun](t, body).Payload)
			status, body = w.call(t, narrow, http.MethodGet, path+"/"+id, "")
			require.Equal(t, http.StatusOK, status, string(body))
			require.Nil(t, decode[ConnectorRun](t, body).Payload, "%s, to who may not see runs", name)
			w.exec(t, `DELETE FROM ended_connector_runs WHERE id = ?`, id)
		})
	}
}
