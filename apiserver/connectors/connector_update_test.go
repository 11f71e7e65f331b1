// SPDX-License-Identifier: Apache-2.0

package connectors_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/connectors"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// createCRM makes a sync connector through the API, by another name each time.
func createCRM(t testing.TB, w *apiservertest.Project, key, name string) connectors.Connector {
	t.Helper()
	status, body := w.Call(t, key, http.MethodPost, "/connectors?environment_id="+w.EnvironmentID("production"),
		`{"name":"`+name+`","type":"webhook","mode":"sync","config":{"timeout_seconds":30}}`)
	require.Equal(t, http.StatusCreated, status, "%s", body)
	return apiservertest.Decode[connectors.Connector](t, body)
}

// beforePatch calls back before each change that the facade makes.
func beforePatch(w *apiservertest.Project, before func(client.Object)) (heal func()) {
	working := w.Server.Service.Client
	w.Server.Service.Client = interceptor.NewClient(working.(client.WithWatch), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			before(o)
			return c.Patch(ctx, o, p, opts...)
		},
	})
	return func() { w.Server.Service.Client = working }
}

func TestUpdateConnector_KeepsOmittedFields(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key, no, yes, thirty, sixty := w.CreateKey(t, nil), false, true, int32(30), int32(60)
	for i, c := range []struct {
		body string
		want func(*v1alpha1.ConnectorSpec)
	}{
		{`{}`, nil},
		{`{"name":null,"type":null,"mode":null,"enabled":null,"config":null}`, nil},
		{`{"enabled":true,"type":"webhook","mode":"sync"}`, nil},
		{`{"config":{"timeout_seconds":30,"require_authentication":true,"authentication":"secret","files_required":false}}`, nil},
		{`{"enabled":false}`, func(s *v1alpha1.ConnectorSpec) { s.Enabled = &no }},
		{`{"name":"Renamed"}`, func(s *v1alpha1.ConnectorSpec) { s.DisplayName = "Renamed" }},
		{`{"config":{"timeout_seconds":60}}`, func(s *v1alpha1.ConnectorSpec) { s.Webhook.TimeoutSeconds = &sixty }},
		{`{"config":{}}`, func(s *v1alpha1.ConnectorSpec) { s.Webhook.TimeoutSeconds = nil }},
		{`{"config":{"files_required":true}}`, func(s *v1alpha1.ConnectorSpec) { s.Webhook.TimeoutSeconds, s.Webhook.FilesRequired = nil, true }},
		{`{"enabled":false,"config":{"authentication":"none"}}`, func(s *v1alpha1.ConnectorSpec) {
			s.Enabled, s.Webhook = &no, &v1alpha1.WebhookConnector{Authentication: v1alpha1.AuthenticationNone}
		}},
	} {
		t.Run(c.body, func(t *testing.T) {
			name := "CRM " + string(rune('A'+i))
			made := createCRM(t, w, key, name)
			before := w.ConnectorObject(t, made.ID)
			require.Equal(t, &yes, before.Spec.Enabled)
			require.Equal(t, &thirty, before.Spec.Webhook.TimeoutSeconds)
			answer := w.Request(t, key, http.MethodPatch, "/connectors/"+made.ID, c.body)
			require.Equal(t, http.StatusOK, answer.Code, "%s", answer.Body)
			after := w.ConnectorObject(t, made.ID)
			if c.want == nil {
				require.Equal(t, before.ResourceVersion, after.ResourceVersion, "%s writes nothing", c.body)
				require.Equal(t, made, apiservertest.Decode[connectors.Connector](t, answer.Body.Bytes()))
				return
			}
			want := before.Spec.DeepCopy()
			c.want(want)
			require.Equal(t, *want, after.Spec)
			require.Equal(t, before.Generation+1, after.Generation)
			require.Equal(t, rest.ETag(after), answer.Header().Get("ETag"))
			got := w.Request(t, key, http.MethodGet, "/connectors/"+made.ID, "")
			require.JSONEq(t, got.Body.String(), answer.Body.String(), "the response equals a later read")
			shown := apiservertest.Decode[connectors.Connector](t, answer.Body.Bytes())
			require.Equal(t, want.Enabled, &shown.Enabled)
			require.Equal(t, string(want.DisplayName), shown.Name)
			require.Equal(t, !shown.Enabled, shown.DisabledReason != nil)
		})
	}
}

// The error names immutable and invalid fields.
func TestUpdateConnector_NamesRejectedFields(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	made := createCRM(t, w, key, "CRM")
	before := w.ConnectorObject(t, made.ID)
	path := "/connectors/" + made.ID
	for body, location := range map[string]string{
		`{"type":"cron"}`:                             "body.type",
		`{"type":"CANARY"}`:                           "body.type",
		`{"mode":"inbound"}`:                          "body.mode",
		`{"mode":"outbound"}`:                         "body.mode",
		`{"environment_id":"CANARY"}`:                 "body.environment_id",
		`{"id":"CANARY"}`:                             "body.id",
		`{"secret":"CANARY"}`:                         "body.secret",
		`{"agents":["CANARY"]}`:                       "body.agents",
		`{"name":""}`:                                 "body.name",
		`{"name":"` + strings.Repeat("a", 64) + `"}`:  "body.name",
		`{"enabled":"CANARY"}`:                        "body.enabled",
		`{"config":{"timeout_seconds":901}}`:          "body.config.timeout_seconds",
		`{"config":{"CANARY":1}}`:                     "body.config.CANARY",
		`{"config":{"authentication":"CANARY"}}`:      "body.config.authentication",
		`{"name":"Other","config":{"schedule":null}}`: "body.config.schedule",
	} {
		t.Run(fmt.Sprintf("%.60s", body), func(t *testing.T) {
			status, answer := w.Call(t, key, http.MethodPatch, path, body)
			apiservertest.RequireField(t, status, answer, location)
			require.NotContains(t, strings.ReplaceAll(string(answer), "config.CANARY", ""), "CANARY")
		})
	}
	status, answer := w.Call(t, key, http.MethodPatch, path+"?environment_id="+w.EnvironmentID("staging"), `{}`)
	apiservertest.RequireField(t, status, answer, "query.environment_id")
	require.Equal(t, before.ResourceVersion, w.ConnectorObject(t, made.ID).ResourceVersion)
	elsewhere := w.CreateConnector(t, "derived", nil) // its id follows from its name
	status, answer = w.Call(t, key, http.MethodPatch, "/connectors/"+elsewhere.Status.ID, `{"config":{"authentication":"none"}}`)
	require.Contains(t, apiservertest.RequireField(t, status, answer, "body.config.authentication").Message, "cannot become none")
}

// The rule holds if the facade sees the other name before or after the change.
func TestUpdateConnector_RejectsTakenName(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	first, second := createCRM(t, w, key, "First"), createCRM(t, w, key, "Second")
	rename := func(headers ...string) (int, httpserver.Code) {
		answer := w.Request(t, key, http.MethodPatch, "/connectors/"+second.ID, `{"name":"First","enabled":false}`, headers...)
		return answer.Code, apiservertest.Decode[rest.Problem](t, answer.Body.Bytes()).Code
	}
	status, code := rename()
	require.Equal(t, http.StatusConflict, status)
	require.Equal(t, httpserver.CodeNameTaken, code)
	status, answer := w.Call(t, key, http.MethodPatch, "/connectors/"+first.ID, `{"name":"First"}`)
	require.Equal(t, http.StatusOK, status, "its own: %s", answer)

	taken := w.ConnectorObject(t, first.ID)
	taken.Spec.DisplayName = "Freed"
	require.NoError(t, w.Client.Update(t.Context(), taken))
	working := w.Server.Service.Client
	w.Server.Service.Client = interceptor.NewClient(w.Options.Client.(client.WithWatch), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			err := c.Patch(ctx, o, p, opts...)
			if conn := o.(*v1alpha1.Connector); err == nil && conn.Spec.DisplayName == "First" {
				conn.MarkNameTaken("Connector team/other") // which came at the same time
				err = w.Client.Status().Update(ctx, conn)
			}
			return err
		},
	})
	status, code = rename("Idempotency-Key", "k")
	w.Server.Service.Client = working
	require.Equal(t, http.StatusConflict, status)
	require.Equal(t, httpserver.CodeNameTaken, code)
	after := w.ConnectorObject(t, second.ID)
	require.Equal(t, v1alpha1.DisplayName("Second"), after.Spec.DisplayName, "it is put back")
	require.True(t, after.IsEnabled(), "with all of the change")
	require.Empty(t, after.Annotations["agentplatform.dev/requests"], "and a repetition is tried anew")
}

// A retired connector can be deleted but not enabled.
func TestUpdateConnector_OfCodeChangesEnabledOnly(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	conn := w.CreateConnector(t, "production.crm", func(c *v1alpha1.Connector) {
		c.Labels = map[string]string{v1alpha1.LabelDefinedInCode: "true"}
	})
	link := &v1alpha1.ConnectorLink{ObjectMeta: w.Meta("crm-hello"), Spec: v1alpha1.ConnectorLinkSpec{Connector: "production.crm", Agent: "hello"}}
	w.Create(t, link)
	path := "/connectors/" + conn.Status.ID
	call := func(method, path, body string, want int, code httpserver.Code) {
		t.Helper()
		answer := w.Request(t, key, method, path, body)
		require.Equal(t, want, answer.Code, "%s: %s", body, answer.Body)
		if code != "" {
			require.Equal(t, code, apiservertest.Decode[rest.Problem](t, answer.Body.Bytes()).Code)
		}
	}
	for _, body := range []string{`{"name":"Other"}`, `{"config":{}}`, `{"type":"webhook"}`, `{"mode":"inbound"}`, `{"enabled":false,"name":"Other"}`} {
		call(http.MethodPatch, path, body, http.StatusConflict, httpserver.CodeDefinedInCode)
	}
	call(http.MethodPost, path+"/rotate-secret", `{}`, http.StatusConflict, httpserver.CodeDefinedInCode)
	call(http.MethodPatch, path+"/links/"+link.Status.ID, `{}`, http.StatusConflict, httpserver.CodeDefinedInCode)
	call(http.MethodPatch, path, `{"enabled":false}`, http.StatusOK, "")
	call(http.MethodPatch, path, `{"enabled":true}`, http.StatusOK, "")
	call(http.MethodPatch, path, `{}`, http.StatusOK, "")
	creates := "/connectors?environment_id=" + w.IDs["environment"]
	own := createCRM(t, w.Project, key, "Own").ID
	requireTaken := func() {
		t.Helper()
		for _, name := range []string{"crm", "Crm"} {
			call(http.MethodPost, creates, `{"name":"`+name+`","type":"webhook"}`, http.StatusConflict, httpserver.CodeNameTaken)
			call(http.MethodPatch, "/connectors/"+own, `{"name":"`+name+`"}`, http.StatusConflict, httpserver.CodeNameTaken)
		}
	}
	requireTaken()
	require.Equal(t, "crm", w.GetConnector(t, key, conn).Name)
	call(http.MethodPatch, "/connectors/"+own, `{"name":"OWN"}`, http.StatusOK, "")
	call(http.MethodDelete, path, "", http.StatusConflict, httpserver.CodeDefinedInCode)
	require.False(t, w.GetConnector(t, key, conn).Retired)

	require.NoError(t, w.Store.PutConnector(t.Context(), store.Connector{
		Ref: w.StoredRef(t, store.KindConnector, conn.Name), ID: uuid.MustParse(conn.Status.ID), ProjectID: w.ProjectID, EnvironmentID: w.ObjectID(t, "environment"),
		Name: conn.Title(), Type: "webhook", Mode: "inbound", Config: []byte("{}"), DefinedInCode: true, Retired: true,
	}))
	require.True(t, w.GetConnector(t, key, conn).Retired)
	call(http.MethodPatch, path, `{"enabled":false}`, http.StatusOK, "")
	call(http.MethodPatch, path, `{"enabled":true}`, http.StatusConflict, httpserver.CodeConnectorRetired)
	requireTaken()
	call(http.MethodDelete, path, "", http.StatusOK, "")
	call(http.MethodPost, creates, `{"name":"crm","type":"webhook"}`, http.StatusCreated, "")
	call(http.MethodGet, path, "", http.StatusNotFound, httpserver.CodeNotFound)
}

func TestUpdateLink_ResetsOmittedSettings(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	made := createCRM(t, w, key, "CRM")
	links := "/connectors/" + made.ID + "/links"
	status, body := w.Call(t, key, http.MethodPost, links, `{"agent_name":"support"}`)
	require.Equal(t, http.StatusCreated, status, string(body))
	link := apiservertest.Decode[connectors.Link](t, body)
	for _, step := range []struct {
		body     string
		required bool
	}{{`{"files_required":true}`, true}, {`{"files_required":true}`, true}, {`{}`, false}, {`{"files_required":true}`, true}, {`{"files_required":false}`, false}} {
		status, body = w.Call(t, key, http.MethodPatch, links+"/"+link.ID, step.body)
		require.Equal(t, http.StatusOK, status, string(body))
		require.Equal(t, step.required, apiservertest.Decode[connectors.Link](t, body).FilesRequired, step.body)
		status, body = w.Call(t, key, http.MethodGet, links+"/"+link.ID, "")
		require.Equal(t, http.StatusOK, status, string(body))
		require.Equal(t, step.required, apiservertest.Decode[connectors.Link](t, body).FilesRequired, step.body)
	}
	status, body = w.Call(t, key, http.MethodPatch, links+"/"+link.ID, `{"outbound":{}}`)
	apiservertest.RequireField(t, status, body, "body.outbound")
}

// A change between the read and the write is a conflict. A controller that writes the status is not.
func TestAmend_DetectsConcurrentChanges(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	for name, c := range map[string]struct {
		change func(*v1alpha1.Connector)
		status bool
		match  bool
		want   int
	}{
		"the spec":               {func(c *v1alpha1.Connector) { c.Spec.Webhook.TimeoutSeconds = nil }, false, false, http.StatusOK},
		"the spec, with an ETag": {func(c *v1alpha1.Connector) { c.Spec.Webhook.TimeoutSeconds = nil }, false, true, http.StatusPreconditionFailed},
		"the status":             {func(c *v1alpha1.Connector) { c.Status.URL = "https://new.example" }, true, true, http.StatusOK},
		"now in code":            {func(c *v1alpha1.Connector) { c.Labels = map[string]string{v1alpha1.LabelDefinedInCode: "true"} }, false, false, http.StatusConflict},
	} {
		t.Run(name, func(t *testing.T) {
			made := createCRM(t, w, key, name)
			done := false
			heal := beforePatch(w, func(client.Object) {
				if done {
					return
				}
				done = true
				now := w.ConnectorObject(t, made.ID)
				if c.change(now); c.status {
					require.NoError(t, w.Client.Status().Update(t.Context(), now))
				} else {
					require.NoError(t, w.Client.Update(t.Context(), now))
				}
			})
			var headers []string
			if c.match {
				headers = []string{"If-Match", rest.ETag(w.ConnectorObject(t, made.ID))}
			}
			answer := w.Request(t, key, http.MethodPatch, "/connectors/"+made.ID, `{"name":"new `+name+`"}`, headers...)
			heal()
			require.Equal(t, c.want, answer.Code, "%s", answer.Body)
			after := w.ConnectorObject(t, made.ID)
			require.Equal(t, c.want == http.StatusOK, string(after.Spec.DisplayName) == "new "+name)
			require.Equal(t, name == "the spec" || c.match && !c.status, after.Spec.Webhook.TimeoutSeconds == nil, "the other change stays")
		})
	}
}

// A repeated call changes nothing, whatever happened to the connector since.
func TestUpdateConnector_RepetitionKeepsLaterChanges(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	made := createCRM(t, w, key, "CRM")
	path := "/connectors/" + made.ID
	send := func(body string, headers ...string) (int, connectors.Connector) {
		answer := w.Request(t, key, http.MethodPatch, path, body, headers...)
		return answer.Code, apiservertest.Decode[connectors.Connector](t, answer.Body.Bytes())
	}
	tag := rest.ETag(w.ConnectorObject(t, made.ID))
	status, first := send(`{"enabled":false}`, "Idempotency-Key", "off", "If-Match", tag)
	require.Equal(t, http.StatusOK, status)
	require.False(t, first.Enabled)
	status, _ = send(`{"enabled":true}`)
	require.Equal(t, http.StatusOK, status)
	status, again := send(`{"enabled":false}`, "Idempotency-Key", "off", "If-Match", tag)
	require.Equal(t, http.StatusOK, status, "the ETag was that of the first call")
	require.True(t, again.Enabled, "somebody has enabled it since")
	status, _ = send(`{"enabled":true}`, "Idempotency-Key", "off")
	require.Equal(t, http.StatusUnprocessableEntity, status, "another request under the key")
	other := w.Request(t, w.CreateKey(t, nil), http.MethodPatch, path, `{"enabled":false}`, "Idempotency-Key", "off")
	require.Equal(t, http.StatusOK, other.Code, "another API key's keys are its own")
	require.False(t, apiservertest.Decode[connectors.Connector](t, other.Body.Bytes()).Enabled)

	for i := range 20 {
		status, _ = send(`{"enabled":true}`, "Idempotency-Key", "k"+string(rune('a'+i)))
		require.Equal(t, http.StatusOK, status)
	}
	require.Len(t, strings.Fields(w.ConnectorObject(t, made.ID).Annotations["agentplatform.dev/requests"]), 10, "the number of recorded requests is limited")
}
