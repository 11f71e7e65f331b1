// SPDX-License-Identifier: Apache-2.0

package connectors_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/agents"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/connectors"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// The reason is null while webhooks reach the connector.
func TestGetConnector_ShowsDisabledReason(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key, off := w.CreateKey(t, nil), false
	for name, c := range map[string]struct {
		mark func(*v1alpha1.Connector)
		want string
	}{
		"works":                       {func(*v1alpha1.Connector) {}, ""},
		"disabled":                    {func(c *v1alpha1.Connector) { c.Spec.Enabled = &off; c.MarkDisabled() }, "disabled"},
		"disabled, not yet processed": {func(c *v1alpha1.Connector) { c.Spec.Enabled = &off }, "being disabled; until then webhooks are accepted"},
		"enabled, not yet processed":  {func(c *v1alpha1.Connector) { c.MarkDisabled() }, "not processed the object yet"},
		"new":                         {func(c *v1alpha1.Connector) { c.Status.Conditions = nil }, "not processed the object yet"},
		"name taken":                  {func(c *v1alpha1.Connector) { c.MarkNameTaken("Connector team/other") }, "Connector team/other"},
		"environment missing":         {func(c *v1alpha1.Connector) { v1alpha1.MarkReferenceMissing(c, "Environment", "dev") }, "dev"},
		"secret never existed": {func(c *v1alpha1.Connector) {
			c.Status.Conditions = nil
			v1alpha1.MarkSecretMissing(c, "mine")
		}, "mine"},
		"secret deleted later":     {func(c *v1alpha1.Connector) { v1alpha1.MarkSecretMissing(c, "mine") }, ""},
		"secret version decreased": {func(c *v1alpha1.Connector) { c.MarkSecretVersionWentBack(2) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			conn := w.CreateConnector(t, strings.NewReplacer(" ", "-", ",", "").Replace(name), nil)
			c.mark(conn)
			status := conn.Status
			require.NoError(t, w.Client.Update(t.Context(), conn))
			conn.Status = status
			require.NoError(t, w.Client.Status().Update(t.Context(), conn))
			got := w.GetConnector(t, key, conn)
			require.Equal(t, conn.IsEnabled(), got.Enabled)
			if c.want == "" {
				require.Nil(t, got.DisabledReason)
				return
			}
			require.NotNil(t, got.DisabledReason)
			require.Contains(t, *got.DisabledReason, c.want)
		})
	}
}

// The project's own secrets are masked.
func TestGetConnector_ShowsGeneratedSecretsOnly(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	generated := w.GetConnector(t, key, w.CreateConnector(t, "generated", nil))
	require.NotEqual(t, rest.Masked, *generated.Secret)
	require.NotEmpty(t, *generated.Secret)
	require.Nil(t, generated.SigningSecret)
	rotated := w.CreateConnector(t, "rotated", func(c *v1alpha1.Connector) { c.Spec.SecretVersion = 2 })
	second := w.GetConnector(t, key, rotated).Secret
	require.NotEqual(t, *generated.Secret, *second)
	rotated.Spec.SecretVersion = 1
	require.NoError(t, w.Client.Update(t.Context(), rotated))
	rotated.MarkSecretVersionWentBack(2)
	require.NoError(t, w.Client.Status().Update(t.Context(), rotated))
	require.Equal(t, second, w.GetConnector(t, key, rotated).Secret, "what callers send, whatever was asked for")
	brought := w.GetConnector(t, key, w.CreateConnector(t, "brought", func(c *v1alpha1.Connector) {
		c.Spec.SecretRef = &v1alpha1.SecretReference{Name: "mine"}
	}))
	require.Equal(t, rest.Masked, *brought.Secret)
	open := w.GetConnector(t, key, w.CreateConnector(t, "open", func(c *v1alpha1.Connector) {
		c.Spec.ID = v1alpha1.UUID(uuid.NewString())
		c.Spec.Webhook.Authentication = v1alpha1.AuthenticationNone
	}))
	require.Nil(t, open.Secret)
	require.NotNil(t, open.WebhookURL)
}

// The list shows the links and the secret of each connector.
func TestListConnectors_EqualsSingleReads(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	var want []connectors.Connector
	for _, name := range []string{"a", "b", "c"} {
		conn := w.CreateConnector(t, name, nil)
		for _, agent := range []string{"one", "two"}[:len(want)%3] {
			w.Create(t, &v1alpha1.ConnectorLink{ObjectMeta: w.Meta(name + "-" + agent), Spec: v1alpha1.ConnectorLinkSpec{
				Connector: v1alpha1.ConnectorName(name), Agent: v1alpha1.AgentName(agent),
			}})
		}
		want = append(want, w.GetConnector(t, key, conn))
	}
	elsewhere := w.CreateConnector(t, "d", func(c *v1alpha1.Connector) { c.Spec.Environment = "staging" })
	_, body := w.Call(t, key, http.MethodGet, "/connectors?environment_id="+w.EnvironmentID("production"), "")
	require.Equal(t, want, apiservertest.Decode[[]connectors.Connector](t, body))
	require.Equal(t, [][]string{{}, {"one"}, {"one", "two"}}, [][]string{want[0].Agents, want[1].Agents, want[2].Agents})
	_, body = w.Call(t, key, http.MethodGet, "/connectors?environment_id="+w.EnvironmentID("staging"), "")
	require.Equal(t, []connectors.Connector{w.GetConnector(t, key, elsewhere)}, apiservertest.Decode[[]connectors.Connector](t, body))
}

// The second link of an agent is not in effect.
func TestGetConnector_ShowsDuplicateLinkOnce(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, conn := w.CreateKey(t, nil), w.CreateConnector(t, "doubled", nil)
	for _, name := range []string{"first", "second"} {
		link := &v1alpha1.ConnectorLink{ObjectMeta: w.Meta(name), Spec: v1alpha1.ConnectorLinkSpec{Connector: "doubled", Agent: "hello"}}
		w.Create(t, link)
		if name == "second" {
			link.MarkDuplicate("ConnectorLink team/first")
			require.NoError(t, w.Client.Status().Update(t.Context(), link))
		}
	}
	require.Equal(t, []string{"hello"}, w.GetConnector(t, key, conn).Agents)
	_, body := w.Call(t, key, http.MethodGet, "/agents/hello?environment_id="+w.EnvironmentID("production"), "")
	rows := 0
	for _, c := range apiservertest.Decode[agents.AgentDetails](t, body).Connectors {
		if c.ID == conn.Status.ID {
			rows++
		}
	}
	require.Equal(t, 1, rows)
}

// A rejected link is hidden for every reason.
func TestGetConnector_HidesRejectedLinks(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, conn := w.CreateKey(t, nil), w.CreateConnector(t, "linked", nil)
	for agent, mark := range map[string]func(l *v1alpha1.ConnectorLink){
		"hello": nil,
		"many":  func(l *v1alpha1.ConnectorLink) { l.MarkTooMany(8) },
		"named": func(l *v1alpha1.ConnectorLink) { l.MarkActionTaken("tell", "ConnectorLink team/other") },
		"sends": func(l *v1alpha1.ConnectorLink) { l.MarkTooManyOutbound(32) },
	} {
		link := &v1alpha1.ConnectorLink{ObjectMeta: w.Meta(agent), Spec: v1alpha1.ConnectorLinkSpec{Connector: "linked", Agent: v1alpha1.AgentName(agent)}}
		w.Create(t, link)
		if mark != nil {
			mark(link)
			require.NoError(t, w.Client.Status().Update(t.Context(), link))
		}
	}
	require.Equal(t, []string{"hello"}, w.GetConnector(t, key, conn).Agents)
}

func TestGetConnector_WithoutEnvironment(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	conn := w.CreateConnector(t, "orphan", func(c *v1alpha1.Connector) { c.Spec.Environment = "gone" })
	require.Nil(t, w.GetConnector(t, w.CreateKey(t, nil), conn).EnvironmentID)
}

// The answer of a create says that its agent is in no live deployment.
func TestCreateConnector_SaysThatItsAgentIsUnknown(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	w.OnRead(func(o v1alpha1.ConditionedObject) {
		v1alpha1.MarkReady(o, "")
		if link, ok := o.(*v1alpha1.ConnectorLink); ok {
			link.MarkAgentUnknown([]string{"triage"})
			require.NoError(t, w.Client.Status().Update(t.Context(), link)) // what lists are made of
		}
	})
	w.Server.Service.ReadyTimeout = time.Hour
	status, body := w.Call(t, key, http.MethodPost, "/connectors?agent_name=traige&environment_id="+w.EnvironmentID("production"), `{"name":"Tickets","type":"webhook"}`)
	require.Equal(t, http.StatusCreated, status, "%s", body)
	made := apiservertest.Decode[connectors.Connector](t, body)
	require.Equal(t, []string{"traige"}, made.Agents)
	require.Len(t, made.UnreadyAgents, 1)
	require.Equal(t, "agent_unknown", made.UnreadyAgents[0].NotReadyReason)
	require.Contains(t, made.UnreadyAgents[0].Message, "triage")
}

// Tenants can write spec.id and status.id, so only claimed IDs count.
func TestLookup_IgnoresUnclaimedIDs(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	claimed := w.CreateConnector(t, "claimed", nil)
	unclaimed := &v1alpha1.Connector{ObjectMeta: w.Meta("unclaimed"), Spec: claimed.DeepCopy().Spec}
	unclaimed.Spec.ID = v1alpha1.UUID(uuid.NewString())
	require.NoError(t, w.Client.Create(t.Context(), unclaimed))
	unclaimed.Status.ID = claimed.Status.ID
	v1alpha1.MarkReady(unclaimed, "")
	require.NoError(t, w.Client.Status().Update(t.Context(), unclaimed))
	_, body := w.Call(t, key, http.MethodGet, "/connectors?environment_id="+w.EnvironmentID("production"), "")
	list := apiservertest.Decode[[]connectors.Connector](t, body)
	require.Len(t, list, 1)
	require.Equal(t, "claimed", list[0].Name)
	status, _ := w.Call(t, key, http.MethodGet, "/connectors/"+string(unclaimed.Spec.ID), "")
	require.Equal(t, http.StatusNotFound, status)

	require.NoError(t, w.Client.Delete(t.Context(), claimed))
	again := &v1alpha1.Connector{ObjectMeta: w.Meta("claimed"), Spec: claimed.Spec}
	require.NoError(t, w.Client.Create(t.Context(), again))
	status, _ = w.Call(t, key, http.MethodGet, "/connectors/"+claimed.Status.ID, "")
	require.Equal(t, http.StatusNotFound, status, "another incarnation has not claimed it yet")
	status, _ = w.Call(t, key, http.MethodGet, "/environments/"+claimed.Status.ID, "")
	require.Equal(t, http.StatusNotFound, status, "an id of another kind")
}

// The link shows a reason while it is not in effect.
func TestGetLink_ShowsReadiness(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key, conn := w.CreateKey(t, nil), w.CreateConnector(t, "tickets", nil)
	for name, c := range map[string]struct {
		mark    func(*v1alpha1.ConnectorLink)
		ready   bool
		reason  string
		message string
	}{
		"ready":   {func(l *v1alpha1.ConnectorLink) { v1alpha1.MarkReady(l, "") }, true, "", ""},
		"unknown": {func(l *v1alpha1.ConnectorLink) { l.MarkAgentUnknown([]string{"hello"}) }, false, "agent_unknown", "hello"},
		"stalled": {func(l *v1alpha1.ConnectorLink) {
			v1alpha1.MarkStalled(l, v1alpha1.ReasonDuplicateLink, "another link is there")
		}, false, "duplicate_link", "another link is there"},
		"new": {func(l *v1alpha1.ConnectorLink) { l.Status.Conditions = nil }, false, "progressing", "not processed the object"},
	} {
		t.Run(name, func(t *testing.T) {
			link := &v1alpha1.ConnectorLink{ObjectMeta: w.Meta("link-" + name), Spec: v1alpha1.ConnectorLinkSpec{Connector: "tickets", Agent: v1alpha1.AgentName(name)}}
			w.Create(t, link)
			c.mark(link)
			require.NoError(t, w.Client.Status().Update(t.Context(), link))
			_, body := w.Call(t, key, http.MethodGet, "/connectors/"+conn.Status.ID+"/links/"+link.Status.ID, "")
			got := apiservertest.Decode[connectors.Link](t, body)
			require.Equal(t, c.ready, got.Ready)
			require.Equal(t, c.ready, got.Message == nil)
			require.Equal(t, c.ready, got.NotReadyReason == nil)
			if !c.ready {
				require.Contains(t, *got.Message, c.message)
				require.Equal(t, c.reason, *got.NotReadyReason)
			}
		})
	}
	unready := w.GetConnector(t, key, conn).UnreadyAgents
	require.Len(t, unready, 2, "one that is refused is no agent of the connector")
	for _, agent := range unready {
		require.Equal(t, map[string]string{"unknown": "agent_unknown", "new": "progressing"}[agent.AgentName], agent.NotReadyReason)
		require.NotEmpty(t, agent.Message)
	}
	_, body := w.Call(t, key, http.MethodGet, "/connectors/"+conn.Status.ID+"/links", "")
	require.Len(t, apiservertest.Decode[[]connectors.Link](t, body), 4)
}

// Waiting ends with each final state.
func TestAwaitReady_EndsWithEachOutcome(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		judge  func(v1alpha1.ConditionedObject)
		status int
		code   httpserver.Code
	}{
		"ready": {func(o v1alpha1.ConditionedObject) { v1alpha1.MarkReady(o, "") }, http.StatusCreated, ""},
		"unknown agent": {func(o v1alpha1.ConditionedObject) {
			if link, ok := o.(*v1alpha1.ConnectorLink); ok {
				link.MarkAgentUnknown(nil)
			}
		}, http.StatusCreated, ""},
		"duplicate": {func(o v1alpha1.ConditionedObject) {
			v1alpha1.MarkStalled(o, v1alpha1.ReasonDuplicateLink, "another link is there")
		}, http.StatusConflict, httpserver.CodeAlreadyExists},
		"too many links": {func(o v1alpha1.ConditionedObject) {
			v1alpha1.MarkStalled(o, v1alpha1.ReasonLimitReached, "too many")
		}, http.StatusConflict, httpserver.CodeLimitReached},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := apiservertest.NewProject(t)
			key, conn := w.CreateKey(t, nil), w.CreateConnector(t, "tickets", nil)
			w.Server.Service.ReadyTimeout = time.Hour
			looks := w.OnRead(func(o v1alpha1.ConditionedObject) {
				if o.ObjectKind() == store.KindConnectorLink {
					c.judge(o)
				} else {
					v1alpha1.MarkReady(o, "")
				}
			})
			answer := w.Request(t, key, http.MethodPost, "/connectors/"+conn.Status.ID+"/links", `{"agent_name":"hello"}`)
			require.Equal(t, c.status, answer.Code, "%s", answer.Body)
			require.LessOrEqual(t, looks(), 3)
			_, links := w.CountObjects(t)
			require.Equal(t, c.status == http.StatusCreated, links == 1, "a rejected object is deleted again")
			if c.code != "" {
				require.Equal(t, c.code, apiservertest.Decode[rest.Problem](t, answer.Body.Bytes()).Code)
			}
			before, _ := w.CountObjects(t)
			answer = w.Request(t, key, http.MethodPost, "/connectors?agent_name=hello&environment_id="+w.EnvironmentID("production"),
				`{"name":"Results","type":"webhook","mode":"outbound","config":{"url":"https://a.example"}}`)
			require.Equal(t, c.status, answer.Code, "with its connector: %s", answer.Body)
			after, _ := w.CountObjects(t)
			require.Equal(t, c.status == http.StatusCreated, after == before+1, "a rejected object is deleted again")
		})
	}
}

// The controllers detect a name that another connector took during the call.
func TestCreateConnector_RejectsNameTakenMeanwhile(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	path := "/connectors?environment_id=" + w.EnvironmentID("production")
	w.CreateConnector(t, "first", func(c *v1alpha1.Connector) { c.Spec.DisplayName = "Tickets" })
	answer := w.Request(t, key, http.MethodPost, path, `{"name":"Tickets","type":"webhook"}`)
	require.Equal(t, http.StatusConflict, answer.Code, "%s", answer.Body)
	require.Equal(t, httpserver.CodeNameTaken, apiservertest.Decode[rest.Problem](t, answer.Body.Bytes()).Code)

	require.Equal(t, http.StatusCreated, w.Request(t, key, http.MethodPost, "/connectors?environment_id="+w.EnvironmentID("staging"),
		`{"name":"Tickets","type":"webhook"}`).Code, "names are unique in their environment")
	w.Server.Service.ReadyTimeout = time.Hour
	w.OnRead(func(o v1alpha1.ConditionedObject) { v1alpha1.MarkStalled(o, v1alpha1.ReasonNameTaken, "taken") })
	answer = w.Request(t, key, http.MethodPost, path, `{"name":"Other","type":"webhook"}`)
	require.Equal(t, http.StatusConflict, answer.Code, "%s", answer.Body)
	connectors, _ := w.CountObjects(t)
	require.Equal(t, 2, connectors)
}

func TestUpdatedAt_IgnoresStatus(t *testing.T) {
	t.Parallel()
	at := func(seconds int64) *metav1.Time { m := metav1.Unix(seconds, 0); return &m }
	o := &v1alpha1.Connector{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: *at(10), ManagedFields: []metav1.ManagedFieldsEntry{
		{Time: at(20)}, {Time: at(15)}, {Time: nil}, {Time: at(30), Subresource: "status"},
	}}}
	require.Equal(t, time.Unix(20, 0).UTC(), rest.UpdatedAt(o), "a status is not the object's own")
}
