// SPDX-License-Identifier: Apache-2.0

package projection_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/controllers/projection"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/store"
)

func mirror(t *testing.T, content string) projection.Mirror {
	t.Helper()
	c, err := bundle.ParseConnector("orders", []byte(content), []string{"one", "two"})
	require.NoError(t, err)
	m, err := projection.MirrorOf("team", "dev", c)
	require.NoError(t, err)
	return m
}

// TestALinkRow: what it joins, and how old it is, for a sync answer is that of the oldest.
func TestALinkRow(t *testing.T) {
	t.Parallel()
	project, noon := uuid.New(), time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	ref := store.ObjectRef{Namespace: "team", Kind: "ConnectorLink", Name: "l", ObjectUID: "u", Generation: 2}
	id, connector := store.Key{ProjectID: project, ID: uuid.New()}, store.Key{ProjectID: project, ID: uuid.New()}
	link := &v1alpha1.ConnectorLink{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(noon)},
		Spec: v1alpha1.ConnectorLinkSpec{Connector: "ask", Agent: "hello", FilesRequired: true}}
	want := store.Link{
		Ref: ref, ID: id.ID, ProjectID: project, ConnectorID: connector.ID, AgentName: "hello", ObjectCreatedAt: noon, FilesRequired: true,
	}
	require.Equal(t, want, projection.LinkRow(ref, link, id, connector))
	link.Labels = map[string]string{v1alpha1.LabelPosition: "3", v1alpha1.LabelActivation: "7"}
	require.Equal(t, want, projection.LinkRow(ref, link, id, connector), "it is nobody's but its author's")
	link.Labels[v1alpha1.LabelDefinedInCode] = "true"
	want.ObjectCreatedAt, want.Activation = time.UnixMicro(3).UTC(), 7
	require.Equal(t, want, projection.LinkRow(ref, link, id, connector), "links of the code come first, as their file has them")
}

func TestWhatMirrorsAFile(t *testing.T) {
	t.Parallel()
	m := mirror(t, "type: webhook\nmode: sync\nname: Orders\nenabled: false\nagents: [two]\nlinks: [{agent: one, files_required: true}]\n"+
		"config: {authentication: standard_webhooks, context_headers: [X-A], files_required: true, timeout_seconds: 7}\n")
	require.Equal(t, "dev.orders", m.Connector.Name)
	require.Equal(t, map[string]string{
		"app.kubernetes.io/managed-by": "agentplatform", "agentplatform.dev/defined-in-code": "true", "agentplatform.dev/environment": "dev",
	}, m.Connector.Labels, "none by which GitOps tools know what is theirs")
	require.Equal(t, v1alpha1.ConnectorSpec{
		Environment: "dev", DisplayName: "Orders", Mode: v1alpha1.ModeSync, Enabled: ptr.To(false), SecretVersion: 1, SecretGracePeriodSeconds: ptr.To(int32(86400)),
		Webhook: &v1alpha1.WebhookConnector{Authentication: v1alpha1.AuthenticationStandardWebhooks, ContextHeaders: []v1alpha1.HeaderName{"X-A"},
			FilesRequired: true, TimeoutSeconds: ptr.To(int32(7))},
	}, m.Connector.Spec)
	require.Len(t, m.Links, 2)
	require.Equal(t, "dev.orders.two", m.Links[0].Name)
	require.Equal(t, "1", m.Links[1].Labels[v1alpha1.LabelPosition])
	require.Equal(t, v1alpha1.ConnectorLinkSpec{Connector: "dev.orders", Agent: "one", FilesRequired: true}, m.Links[1].Spec)

	cron := mirror(t, "type: cron\nconfig: {schedule: '@daily', payload: {b: 1, a: 2}}\n").Connector
	require.Equal(t, "UTC", cron.Spec.Cron.TimeZone)
	require.Equal(t, v1alpha1.MissedTicksSkip, cron.Spec.Cron.MissedTicks)
	latest := mirror(t, "type: cron\nconfig: {schedule: '@daily', missed_ticks: latest, timezone: Europe/Paris}\n").Connector
	require.Equal(t, v1alpha1.MissedTicksLatest, latest.Spec.Cron.MissedTicks)
	other := cron.DeepCopy()
	other.Spec.Cron.Payload.Raw = []byte(`{ "b": 1, "a": 2 }`)
	require.True(t, projection.SameConnector(cron, other), "however kube-apiserver writes it")
	other.Spec.Cron.Payload.Raw = []byte(`{"b":1}`)
	require.False(t, projection.SameConnector(cron, other))
	other.Spec.Cron.Payload = nil
	require.False(t, projection.SameConnector(cron, other))
}

// Names are as long as they can be, and no longer than Kubernetes takes.
func TestTheLongestNames(t *testing.T) {
	t.Parallel()
	name := v1alpha1.CodeConnectorName(v1alpha1.EnvironmentName(strings.Repeat("e", 40)), strings.Repeat("s", 40))
	require.Len(t, name, 81)
	require.LessOrEqual(t, len(v1alpha1.CodeLinkName(name, strings.Repeat("a", store.MaxAgentName))), 253)
}

func TestWhatStaysOfWhatPeopleChange(t *testing.T) {
	t.Parallel()
	const content = "type: webhook\nmode: sync\nagents: [one]\n"
	changed := func(rank int64, change func(*v1alpha1.Connector)) *v1alpha1.Connector {
		m := mirror(t, content)
		m.Onto(nil, rank)
		change(m.Connector)
		return m.Connector
	}
	paused := func(c *v1alpha1.Connector) { c.Spec.Enabled, c.Spec.SecretVersion = ptr.To(false), 4 }
	for name, c := range map[string]struct {
		existing *v1alpha1.Connector
		enabled  bool
		version  int32
	}{
		"there was none":           {nil, true, 1},
		"paused since":             {changed(7, paused), false, 4},
		"paused before":            {changed(6, paused), true, 4},
		"retired by the same":      {changed(7, func(c *v1alpha1.Connector) { paused(c); c.Labels[v1alpha1.LabelRetired] = "true" }), true, 4},
		"a label that is none":     {changed(7, func(c *v1alpha1.Connector) { paused(c); c.Labels[v1alpha1.LabelActivation] = "x" }), true, 4},
		"nothing changed at all":   {changed(7, func(*v1alpha1.Connector) {}), true, 1},
		"mirrored by hand, paused": {&v1alpha1.Connector{Spec: v1alpha1.ConnectorSpec{Enabled: ptr.To(false)}}, true, 1},
	} {
		m := mirror(t, content)
		m.Onto(c.existing, 7)
		require.Equal(t, c.enabled, m.Connector.IsEnabled(), name)
		require.Equal(t, c.version, m.Connector.SecretVersion(), name)
		require.EqualValues(t, 7, m.Connector.Activation())
		require.EqualValues(t, 7, m.Links[0].Activation())
	}
	m := mirror(t, content)
	m.Onto(nil, 0)
	require.Zero(t, m.Connector.Activation(), "nothing is mirrored yet")
}

func TestWhoseObjectsAreOurs(t *testing.T) {
	t.Parallel()
	ours := func(change func(*v1alpha1.Connector)) *v1alpha1.Connector {
		c := mirror(t, "type: webhook\nmode: sync\n").Connector
		change(c)
		return c
	}
	require.True(t, projection.IsOurs(ours(func(*v1alpha1.Connector) {}), "dev"))
	for name, c := range map[string]*v1alpha1.Connector{
		"of another environment": ours(func(c *v1alpha1.Connector) { c.Labels[v1alpha1.LabelEnvironment] = "prod" }),
		"of somebody":            ours(func(c *v1alpha1.Connector) { delete(c.Labels, v1alpha1.LabelDefinedInCode) }),
		"by somebody":            ours(func(c *v1alpha1.Connector) { delete(c.Labels, "app.kubernetes.io/managed-by") }),
		"of another name":        ours(func(c *v1alpha1.Connector) { c.Name = "prod.orders" }),
		"with a chosen id":       ours(func(c *v1alpha1.Connector) { c.Spec.ID = "7b0c7a52-6c1f-4c3e-9a55-0f6d1f1f8f10" }),
	} {
		require.False(t, projection.IsOurs(c, "dev"), name)
	}
}

func TestVariablesInTexts(t *testing.T) {
	t.Parallel()
	variables := runnerconfig.Sorted([]runnerconfig.Variable{{Name: "A", Value: "a"}, {Name: "SECRET", Value: "s", Sensitive: true}})
	cron := func(change func(*v1alpha1.CronConnector)) *v1alpha1.Connector {
		c := mirror(t, "type: cron\nconfig: {schedule: '@daily'}\n").Connector
		change(c.Spec.Cron)
		return c
	}
	for name, change := range map[string]func(*v1alpha1.CronConnector){
		"schedule": func(c *v1alpha1.CronConnector) { c.Schedule = "${A}" },
		"timezone": func(c *v1alpha1.CronConnector) { c.TimeZone = "${A}" },
		"prompt":   func(c *v1alpha1.CronConnector) { c.Prompt = "${A}" },
		"payload":  func(c *v1alpha1.CronConnector) { c.Payload = &runtime.RawExtension{Raw: []byte(`{"x":["\u0024{A}"]}`)} },
	} {
		c := cron(change)
		require.True(t, projection.NamesVariables(c), name)
		before := c.DeepCopy()
		got, err := projection.Expanded(c, variables)
		require.NoError(t, err, name)
		require.Equal(t, before, c, "the object keeps the names")
		config := projection.CronConfig(got)
		require.Contains(t, []string{config.Schedule, config.TimeZone, config.Prompt, string(config.Payload)}, map[bool]string{true: `{"x":["a"]}`, false: "a"}[name == "payload"])

		c.Labels = nil
		require.False(t, projection.NamesVariables(c), "what people write is as they write it")
		got, err = projection.Expanded(c, variables)
		require.NoError(t, err)
		require.Same(t, c, got)
	}
	for text, want := range map[string]string{
		"${NONE}":   `Environment "dev" has no variable NONE`,
		"${SECRET}": "the variable SECRET is sensitive",
		"${":        `"prompt" has ${ without the name`,
	} {
		_, err := projection.Expanded(cron(func(c *v1alpha1.CronConnector) { c.Prompt = text }), variables)
		problem, is := projection.IsTextError(err)
		require.True(t, is, text)
		require.Contains(t, problem, want)
		require.NotContains(t, problem, `"s"`)
	}
}

// What is kept in a Secret, or sealed, is known to be sensitive; its value is not needed.
func TestVariablesOfTexts(t *testing.T) {
	t.Parallel()
	e := &v1alpha1.Environment{Spec: v1alpha1.EnvironmentSpec{Variables: []v1alpha1.EnvironmentVariable{
		{Name: "WHEN", Value: ptr.To("@daily")}, {Name: "SEALED", SealedValue: "no base64"},
		{Name: "GONE", SecretKeyRef: &v1alpha1.SecretKeyReference{Name: "gone", Key: "a"}},
		{Name: "HIDDEN", Value: ptr.To("a"), Sensitive: true},
	}}}
	require.Equal(t, []runnerconfig.Variable{
		{Name: "GONE", Sensitive: true}, {Name: "HIDDEN", Value: "a", Sensitive: true}, {Name: "SEALED", Sensitive: true}, {Name: "WHEN", Value: "@daily"},
	}, projection.VariablesOf(e).Variables)
}
