// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/httpserver"
	"github.com/agentplatform/agentplatform/store"
)

// connectorNamed makes a connector of the environment production.
func (w *world) connectorNamed(t testing.TB, name string, change func(*v1alpha1.Connector)) *v1alpha1.Connector {
	t.Helper()
	conn := &v1alpha1.Connector{ObjectMeta: w.meta(name), Spec: v1alpha1.ConnectorSpec{
		Environment: "production", Mode: v1alpha1.ModeInbound, Webhook: &v1alpha1.WebhookConnector{},
	}}
	if change != nil {
		change(conn)
	}
	w.create(t, conn)
	return conn
}

// shown is how the facade shows a connector.
func (w *world) shown(t testing.TB, key string, conn *v1alpha1.Connector) Connector {
	t.Helper()
	status, body := w.call(t, key, http.MethodGet, "/connectors/"+conn.Status.ID, "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	return decode[Connector](t, body)
}

// TestAConnectorSaysWhyItDoesNotWork: and nothing while webhooks reach it.
func TestAConnectorSaysWhyItDoesNotWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key, off := w.key(t, nil), false
	for name, c := range map[string]struct {
		mark func(*v1alpha1.Connector)
		want string
	}{
		"works":                  {func(*v1alpha1.Connector) {}, ""},
		"disabled":               {func(c *v1alpha1.Connector) { c.Spec.Enabled = &off; c.MarkDisabled() }, "disabled"},
		"disabled, nobody knows": {func(c *v1alpha1.Connector) { c.Spec.Enabled = &off }, "to be disabled; until then webhooks are taken"},
		"enabled, nobody knows":  {func(c *v1alpha1.Connector) { c.MarkDisabled() }, "not taken it up yet"},
		"new":                    {func(c *v1alpha1.Connector) { c.Status.Conditions = nil }, "not taken it up yet"},
		"taken":                  {func(c *v1alpha1.Connector) { c.MarkNameTaken("Connector team/other") }, "Connector team/other"},
		"homeless":               {func(c *v1alpha1.Connector) { v1alpha1.MarkReferenceMissing(c, "Environment", "dev") }, "dev"},
		"no secret": {func(c *v1alpha1.Connector) {
			c.Status.Conditions = nil
			v1alpha1.MarkSecretMissing(c, "mine")
		}, "mine"},
		"lost its secret": {func(c *v1alpha1.Connector) { v1alpha1.MarkSecretMissing(c, "mine") }, ""},
		"went back":       {func(c *v1alpha1.Connector) { c.MarkSecretVersionWentBack(2) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			conn := w.connectorNamed(t, strings.NewReplacer(" ", "-", ",", "").Replace(name), nil)
			c.mark(conn)
			status := conn.Status
			require.NoError(t, w.client.Update(t.Context(), conn))
			conn.Status = status
			require.NoError(t, w.client.Status().Update(t.Context(), conn))
			got := w.shown(t, key, conn)
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

// TestSecretsAreShownThatThePlatformMade: and no other one.
func TestSecretsAreShownThatThePlatformMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key(t, nil)
	generated := w.shown(t, key, w.connectorNamed(t, "generated", nil))
	require.NotEqual(t, masked, *generated.Secret)
	require.NotEmpty(t, *generated.Secret)
	require.Nil(t, generated.SigningSecret)
	rotated := w.connectorNamed(t, "rotated", func(c *v1alpha1.Connector) { c.Spec.SecretVersion = 2 })
	second := w.shown(t, key, rotated).Secret
	require.NotEqual(t, *generated.Secret, *second)
	rotated.Spec.SecretVersion = 1
	require.NoError(t, w.client.Update(t.Context(), rotated))
	rotated.MarkSecretVersionWentBack(2)
	require.NoError(t, w.client.Status().Update(t.Context(), rotated))
	require.Equal(t, second, w.shown(t, key, rotated).Secret, "what callers send, whatever was asked for")
	brought := w.shown(t, key, w.connectorNamed(t, "brought", func(c *v1alpha1.Connector) {
		c.Spec.SecretRef = &v1alpha1.SecretReference{Name: "mine"}
	}))
	require.Equal(t, masked, *brought.Secret)
	open := w.shown(t, key, w.connectorNamed(t, "open", func(c *v1alpha1.Connector) {
		c.Spec.ID = v1alpha1.UUID(uuid.NewString())
		c.Spec.Webhook.Authentication = v1alpha1.AuthenticationNone
	}))
	require.Nil(t, open.Secret)
	require.NotNil(t, open.WebhookURL)
}

// TestAListOfConnectorsShowsWhatEachOneShows: with the links and the secret of each.
func TestAListOfConnectorsShowsWhatEachOneShows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key(t, nil)
	var want []Connector
	for _, name := range []string{"a", "b", "c"} {
		conn := w.connectorNamed(t, name, nil)
		for _, agent := range []string{"one", "two"}[:len(want)%3] {
			w.create(t, &v1alpha1.ConnectorLink{ObjectMeta: w.meta(name + "-" + agent), Spec: v1alpha1.ConnectorLinkSpec{
				Connector: v1alpha1.ConnectorName(name), Agent: v1alpha1.AgentName(agent),
			}})
		}
		want = append(want, w.shown(t, key, conn))
	}
	elsewhere := w.connectorNamed(t, "d", func(c *v1alpha1.Connector) { c.Spec.Environment = "staging" })
	_, body := w.call(t, key, http.MethodGet, "/connectors?environment_id="+w.environmentID("production"), "")
	require.Equal(t, want, decode[[]Connector](t, body))
	require.Equal(t, [][]string{{}, {"one"}, {"one", "two"}}, [][]string{want[0].Agents, want[1].Agents, want[2].Agents})
	_, body = w.call(t, key, http.MethodGet, "/connectors?environment_id="+w.environmentID("staging"), "")
	require.Equal(t, []Connector{w.shown(t, key, elsewhere)}, decode[[]Connector](t, body))
}

// TestAnAgentThatIsLinkedTwiceIsShownOnce: the second link is not in effect.
func TestAnAgentThatIsLinkedTwiceIsShownOnce(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key, conn := w.key(t, nil), w.connectorNamed(t, "doubled", nil)
	for _, name := range []string{"first", "second"} {
		link := &v1alpha1.ConnectorLink{ObjectMeta: w.meta(name), Spec: v1alpha1.ConnectorLinkSpec{Connector: "doubled", Agent: "hello"}}
		w.create(t, link)
		if name == "second" {
			link.MarkDuplicate("ConnectorLink team/first")
			require.NoError(t, w.client.Status().Update(t.Context(), link))
		}
	}
	require.Equal(t, []string{"hello"}, w.shown(t, key, conn).Agents)
	_, body := w.call(t, key, http.MethodGet, "/agents/hello?environment_id="+w.environmentID("production"), "")
	rows := 0
	for _, c := range decode[AgentDetails](t, body).Connectors {
		if c.ID == conn.Status.ID {
			rows++
		}
	}
	require.Equal(t, 1, rows)
}

// TestAgentsWhoseLinksAreNotTakenUpAreNotShown: for whatever reason.
func TestAgentsWhoseLinksAreNotTakenUpAreNotShown(t *testing.T) {
	t.Parallel()
	w := newPast(t)
	key, conn := w.key(t, nil), w.connectorNamed(t, "linked", nil)
	for agent, mark := range map[string]func(l *v1alpha1.ConnectorLink){
		"hello": nil,
		"many":  func(l *v1alpha1.ConnectorLink) { l.MarkTooMany(8) },
		"named": func(l *v1alpha1.ConnectorLink) { l.MarkActionTaken("tell", "ConnectorLink team/other") },
		"sends": func(l *v1alpha1.ConnectorLink) { l.MarkTooManyOutbound(32) },
	} {
		link := &v1alpha1.ConnectorLink{ObjectMeta: w.meta(agent), Spec: v1alpha1.ConnectorLinkSpec{Connector: "linked", Agent: v1alpha1.AgentName(agent)}}
		w.create(t, link)
		if mark != nil {
			mark(link)
			require.NoError(t, w.client.Status().Update(t.Context(), link))
		}
	}
	require.Equal(t, []string{"hello"}, w.shown(t, key, conn).Agents)
}

// TestAConnectorWhoseEnvironmentIsGoneIsShownWithoutOne.
func TestAConnectorWhoseEnvironmentIsGoneIsShownWithoutOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.connectorNamed(t, "orphan", func(c *v1alpha1.Connector) { c.Spec.Environment = "gone" })
	require.Nil(t, w.shown(t, w.key(t, nil), conn).EnvironmentID)
}

// The answer of a create says that its agent is in no live deployment.
func TestCreateConnector_SaysThatItsAgentIsUnknown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key(t, nil)
	w.controllers(func(o v1alpha1.ConditionedObject) {
		v1alpha1.MarkReady(o, "")
		if link, ok := o.(*v1alpha1.ConnectorLink); ok {
			link.MarkAgentUnknown([]string{"triage"})
			require.NoError(t, w.client.Status().Update(t.Context(), link)) // what lists are made of
		}
	})
	w.server.patience = time.Hour
	status, body := w.call(t, key, http.MethodPost, "/connectors?agent_name=traige&environment_id="+w.environmentID("production"), `{"name":"Tickets","type":"webhook"}`)
	require.Equal(t, http.StatusCreated, status, "%s", body)
	made := decode[Connector](t, body)
	require.Equal(t, []string{"traige"}, made.Agents)
	require.Len(t, made.UnreadyAgents, 1)
	require.Equal(t, "agent_unknown", made.UnreadyAgents[0].NotReadyReason)
	require.Contains(t, made.UnreadyAgents[0].Message, "triage")
}

// TestObjectsThatHoldNoIDAreNotThere: what spec.id and status.id say is a tenant's
// word.
func TestObjectsThatHoldNoIDAreNotThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key(t, nil)
	claimed := w.connectorNamed(t, "claimed", nil)
	unclaimed := &v1alpha1.Connector{ObjectMeta: w.meta("unclaimed"), Spec: claimed.DeepCopy().Spec}
	unclaimed.Spec.ID = v1alpha1.UUID(uuid.NewString())
	require.NoError(t, w.client.Create(t.Context(), unclaimed))
	unclaimed.Status.ID = claimed.Status.ID
	v1alpha1.MarkReady(unclaimed, "")
	require.NoError(t, w.client.Status().Update(t.Context(), unclaimed))
	_, body := w.call(t, key, http.MethodGet, "/connectors?environment_id="+w.environmentID("production"), "")
	list := decode[[]Connector](t, body)
	require.Len(t, list, 1)
	require.Equal(t, "claimed", list[0].Name)
	status, _ := w.call(t, key, http.MethodGet, "/connectors/"+string(unclaimed.Spec.ID), "")
	require.Equal(t, http.StatusNotFound, status)

	require.NoError(t, w.client.Delete(t.Context(), claimed))
	again := &v1alpha1.Connector{ObjectMeta: w.meta("claimed"), Spec: claimed.Spec}
	require.NoError(t, w.client.Create(t.Context(), again))
	status, _ = w.call(t, key, http.MethodGet, "/connectors/"+claimed.Status.ID, "")
	require.Equal(t, http.StatusNotFound, status, "another incarnation has not claimed it yet")
	status, _ = w.call(t, key, http.MethodGet, "/environments/"+claimed.Status.ID, "")
	require.Equal(t, http.StatusNotFound, status, "an id of another kind")
}

// TestALinkSaysWhetherItIsInEffect: and why it is not.
func TestALinkSaysWhetherItIsInEffect(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key, conn := w.key(t, nil), w.connectorNamed(t, "tickets", nil)
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
		"new": {func(l *v1alpha1.ConnectorLink) { l.Status.Conditions = nil }, false, "progressing", "not taken it up"},
	} {
		t.Run(name, func(t *testing.T) {
			link := &v1alpha1.ConnectorLink{ObjectMeta: w.meta("link-" + name), Spec: v1alpha1.ConnectorLinkSpec{Connector: "tickets", Agent: v1alpha1.AgentName(name)}}
			w.create(t, link)
			c.mark(link)
			require.NoError(t, w.client.Status().Update(t.Context(), link))
			_, body := w.call(t, key, http.MethodGet, "/connectors/"+conn.Status.ID+"/links/"+link.Status.ID, "")
			got := decode[Link](t, body)
			require.Equal(t, c.ready, got.Ready)
			require.Equal(t, c.ready, got.Message == nil)
			require.Equal(t, c.ready, got.NotReadyReason == nil)
			if !c.ready {
				require.Contains(t, *got.Message, c.message)
				require.Equal(t, c.reason, *got.NotReadyReason)
			}
		})
	}
	unready := w.shown(t, key, conn).UnreadyAgents
	require.Len(t, unready, 2, "one that is refused is no agent of the connector")
	for _, agent := range unready {
		require.Equal(t, map[string]string{"unknown": "agent_unknown", "new": "progressing"}[agent.AgentName], agent.NotReadyReason)
		require.NotEmpty(t, agent.Message)
	}
	_, body := w.call(t, key, http.MethodGet, "/connectors/"+conn.Status.ID+"/links", "")
	require.Len(t, decode[[]Link](t, body), 4)
}

// controllers is a client behind which objects become what a controller makes of
// them once they are there.
func (w *world) controllers(judge func(o v1alpha1.ConditionedObject)) (looks func() int) {
	n, working := 0, w.server.client
	w.server.client = interceptor.NewClient(working.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if err := c.Get(ctx, key, o, opts...); err != nil {
				return err
			}
			switch o := o.(type) {
			case *v1alpha1.Environment, *v1alpha1.Connector, *v1alpha1.ConnectorLink:
				n++
				judge(o.(v1alpha1.ConditionedObject))
			}
			return nil
		},
	})
	return func() int { return n }
}

// TestWaitingEndsWhenAControllerHasComeToAnEnd: whatever the end is.
func TestWaitingEndsWhenAControllerHasComeToAnEnd(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		judge  func(v1alpha1.ConditionedObject)
		status int
		code   httpserver.Code
	}{
		"ready": {func(o v1alpha1.ConditionedObject) { v1alpha1.MarkReady(o, "") }, http.StatusCreated, ""},
		"its agent is unknown": {func(o v1alpha1.ConditionedObject) {
			if link, ok := o.(*v1alpha1.ConnectorLink); ok {
				link.MarkAgentUnknown(nil)
			}
		}, http.StatusCreated, ""},
		"duplicate": {func(o v1alpha1.ConditionedObject) {
			v1alpha1.MarkStalled(o, v1alpha1.ReasonDuplicateLink, "another link is there")
		}, http.StatusConflict, httpserver.CodeAlreadyExists},
		"too many": {func(o v1alpha1.ConditionedObject) {
			v1alpha1.MarkStalled(o, v1alpha1.ReasonLimitReached, "too many")
		}, http.StatusConflict, httpserver.CodeLimitReached},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			key, conn := w.key(t, nil), w.connectorNamed(t, "tickets", nil)
			w.server.patience = time.Hour
			looks := w.controllers(func(o v1alpha1.ConditionedObject) {
				if o.ObjectKind() == store.KindConnectorLink {
					c.judge(o)
				} else {
					v1alpha1.MarkReady(o, "")
				}
			})
			answer := w.ask(t, key, http.MethodPost, "/connectors/"+conn.Status.ID+"/links", `{"agent_name":"hello"}`)
			require.Equal(t, c.status, answer.Code, "%s", answer.Body)
			require.LessOrEqual(t, looks(), 3)
			_, links := w.objects(t)
			require.Equal(t, c.status == http.StatusCreated, links == 1, "what is refused is taken back")
			if c.code != "" {
				require.Equal(t, c.code, decode[Problem](t, answer.Body.Bytes()).Code)
			}
			before, _ := w.objects(t)
			answer = w.ask(t, key, http.MethodPost, "/connectors?agent_name=hello&environment_id="+w.environmentID("production"),
				`{"name":"Results","type":"webhook","mode":"outbound","config":{"url":"https://a.example"}}`)
			require.Equal(t, c.status, answer.Code, "with its connector: %s", answer.Body)
			after, _ := w.objects(t)
			require.Equal(t, c.status == http.StatusCreated, after == before+1, "what is refused is taken back")
		})
	}
}

// TestANameThatSomebodyElseTookMeanwhileIsRefused: the controllers tell.
func TestANameThatSomebodyElseTookMeanwhileIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key(t, nil)
	path := "/connectors?environment_id=" + w.environmentID("production")
	w.connectorNamed(t, "first", func(c *v1alpha1.Connector) { c.Spec.DisplayName = "Tickets" })
	answer := w.ask(t, key, http.MethodPost, path, `{"name":"Tickets","type":"webhook"}`)
	require.Equal(t, http.StatusConflict, answer.Code, "%s", answer.Body)
	require.Equal(t, httpserver.CodeNameTaken, decode[Problem](t, answer.Body.Bytes()).Code)

	require.Equal(t, http.StatusCreated, w.ask(t, key, http.MethodPost, "/connectors?environment_id="+w.environmentID("staging"),
		`{"name":"Tickets","type":"webhook"}`).Code, "names are unique in their environment")
	w.server.patience = time.Hour
	w.controllers(func(o v1alpha1.ConditionedObject) { v1alpha1.MarkStalled(o, v1alpha1.ReasonNameTaken, "taken") })
	answer = w.ask(t, key, http.MethodPost, path, `{"name":"Other","type":"webhook"}`)
	require.Equal(t, http.StatusConflict, answer.Code, "%s", answer.Body)
	connectors, _ := w.objects(t)
	require.Equal(t, 2, connectors)
}

// TestEnvironmentsShowTheirSettings: with what is not set filled in.
func TestEnvironmentsShowTheirSettings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key(t, nil)
	e := &v1alpha1.Environment{ObjectMeta: w.meta("qa"), Spec: v1alpha1.EnvironmentSpec{
		DisplayName: "Quality", Kind: v1alpha1.EnvironmentTest, Git: v1alpha1.EnvironmentGit{Branch: "develop"},
	}}
	e.Spec.Runner.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: *quantity("1Gi")}
	w.create(t, e)
	_, body := w.call(t, key, http.MethodGet, "/environments/"+e.Status.ID, "")
	got := decode[Environment](t, body)
	require.Equal(t, "Quality", got.Name)
	require.Equal(t, EnvironmentKind("test"), got.Kind)
	require.Equal(t, "develop", *got.GitBranch)
	require.Equal(t, map[string]string{"memory": "1Gi"}, got.Settings.Runner.Limits)
	require.Equal(t, map[string]string{}, got.Settings.Runner.Requests)
	require.False(t, got.IsDefault)
	_, body = w.call(t, key, http.MethodGet, "/environments/"+w.environmentID("staging"), "")
	plain := decode[Environment](t, body)
	require.Equal(t, EnvironmentKind("standard"), plain.Kind)
	require.Nil(t, plain.GitBranch)
	require.Equal(t, plain.CreatedAt, plain.UpdatedAt)
}

// TestWhatACallerMayDoInAnEnvironmentIsShown: what the key and its owner both may.
func TestWhatACallerMayDoInAnEnvironmentIsShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	narrow := w.key(t, func(k *v1alpha1.APIKeySpec) {
		k.Access, k.Permissions = v1alpha1.AccessSelected, []v1alpha1.Permission{"environments.view", "runs.view"}
	})
	_, body := w.call(t, narrow, http.MethodGet, "/environments/"+w.environmentID("staging"), "")
	require.Equal(t, []Permission{"environments.view", "runs.view"}, decode[Environment](t, body).Permissions)
}

func TestWhenAnObjectWasLastChanged(t *testing.T) {
	t.Parallel()
	at := func(seconds int64) *metav1.Time { m := metav1.Unix(seconds, 0); return &m }
	o := &v1alpha1.Connector{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: *at(10), ManagedFields: []metav1.ManagedFieldsEntry{
		{Time: at(20)}, {Time: at(15)}, {Time: nil}, {Time: at(30), Subresource: "status"},
	}}}
	require.Equal(t, time.Unix(20, 0).UTC(), updatedAt(o), "a status is not the object's own")
}
