// SPDX-License-Identifier: Apache-2.0

package projection_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/bundle"
	"github.com/agentplatform/agentplatform/connector"
	"github.com/agentplatform/agentplatform/connector/crd"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/controllers/projection"
	"github.com/agentplatform/agentplatform/internal/runnerconfig"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

func mirror(t *testing.T, content string) projection.Mirror {
	t.Helper()
	c, err := bundle.ParseConnector("orders", []byte(content), []string{"one", "two"})
	require.NoError(t, err)
	m := projection.MirrorOf("team", "dev", c)
	return m
}

// Credentials and DestinationDigest know the sealed texts of senders by name. ExpandTexts expands the texts of the other kinds.
func TestCredentials_HaveAllSealedTexts(t *testing.T) {
	t.Parallel()
	for _, kind := range connector.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			var sealed []string
			for _, f := range kind.Fields() {
				require.Contains(t, []string{"", map[bool]string{true: "any", false: "plain"}[kind.Sends()]}, f.Variables, f.Name)
				if f.Variables == "any" {
					sealed = append(sealed, f.Name)
				}
			}
			if kind.Sends() {
				require.Equal(t, []string{"url", "headers"}, sealed)
			}
		})
	}
}

// The row has connector, agent and age. A sync webhook returns the result of the oldest link.
func TestLinkRow_HasAgentAndAge(t *testing.T) {
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

func TestMirrorOf_InboundFile(t *testing.T) {
	t.Parallel()
	m := mirror(t, "type: webhook\nmode: sync\nname: Orders\nenabled: false\nagents: [two]\nlinks: [{agent: one, files_required: true}]\n"+
		"config: {authentication: standard_webhooks, context_headers: [X-A], files_required: true, timeout_seconds: 7}\n")
	require.Equal(t, "dev.orders", m.Connector.Name)
	require.Equal(t, map[string]string{
		"app.kubernetes.io/managed-by": "agentplatform", "agentplatform.dev/defined-in-code": "true", "agentplatform.dev/environment": "dev",
	}, m.Connector.Labels, "no label of a GitOps tool")
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

// The longest names fit the limits of Kubernetes.
func TestMirrorOf_LongNames(t *testing.T) {
	t.Parallel()
	name := v1alpha1.CodeConnectorName(v1alpha1.EnvironmentName(strings.Repeat("e", 40)), strings.Repeat("s", 40))
	require.Len(t, name, 81)
	require.LessOrEqual(t, len(v1alpha1.CodeLinkName(name, strings.Repeat("a", store.MaxAgentName))), 253)
}

func TestOnto_KeepsUserFields(t *testing.T) {
	t.Parallel()
	const content = "type: webhook\nmode: sync\nagents: [one]\n"
	changed := func(rank int64, change func(*v1alpha1.Connector)) *v1alpha1.Connector {
		m := mirror(t, content)
		m.SetActivation(nil, rank)
		change(m.Connector)
		return m.Connector
	}
	paused := func(c *v1alpha1.Connector) { c.Spec.Enabled, c.Spec.SecretVersion = ptr.To(false), 4 }
	for name, c := range map[string]struct {
		existing *v1alpha1.Connector
		enabled  bool
		version  int32
	}{
		"no mirror before":              {nil, true, 1},
		"paused after this activation":  {changed(7, paused), false, 4},
		"paused before this activation": {changed(6, paused), true, 4},
		"retired by this activation":    {changed(7, func(c *v1alpha1.Connector) { paused(c); c.Labels[v1alpha1.LabelRetired] = "true" }), true, 4},
		"invalid activation label":      {changed(7, func(c *v1alpha1.Connector) { paused(c); c.Labels[v1alpha1.LabelActivation] = "x" }), true, 4},
		"unchanged mirror":              {changed(7, func(*v1alpha1.Connector) {}), true, 1},
		"paused object without labels":  {&v1alpha1.Connector{Spec: v1alpha1.ConnectorSpec{Enabled: ptr.To(false)}}, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			m := mirror(t, content)
			m.SetActivation(c.existing, 7)
			require.Equal(t, c.enabled, m.Connector.IsEnabled())
			require.Equal(t, c.version, m.Connector.SecretVersion())
			require.EqualValues(t, 7, m.Connector.Activation())
			require.EqualValues(t, 7, m.Links[0].Activation())
		})
	}
	rotated := changed(6, func(c *v1alpha1.Connector) { c.RotateSecret(2, ptr.To(int32(604800))) })
	m := mirror(t, content)
	m.SetActivation(rotated, 7)
	require.Equal(t, 7*24*time.Hour, m.Connector.SecretGracePeriod(), "the period of the last rotation")
	m = mirror(t, content)
	m.SetActivation(nil, 0)
	require.Zero(t, m.Connector.Activation(), "nothing is mirrored yet")
}

func TestIsOurs_ChecksLabelsAndName(t *testing.T) {
	t.Parallel()
	ours := func(change func(*v1alpha1.Connector)) *v1alpha1.Connector {
		c := mirror(t, "type: webhook\nmode: sync\n").Connector
		change(c)
		return c
	}
	require.True(t, projection.IsMirror(ours(func(*v1alpha1.Connector) {}), "dev"))
	for name, c := range map[string]*v1alpha1.Connector{
		"of another environment":           ours(func(c *v1alpha1.Connector) { c.Labels[v1alpha1.LabelEnvironment] = "prod" }),
		"without the label of code":        ours(func(c *v1alpha1.Connector) { delete(c.Labels, v1alpha1.LabelDefinedInCode) }),
		"without the label of the manager": ours(func(c *v1alpha1.Connector) { delete(c.Labels, "app.kubernetes.io/managed-by") }),
		"of another name":                  ours(func(c *v1alpha1.Connector) { c.Name = "prod.orders" }),
		"with a chosen id":                 ours(func(c *v1alpha1.Connector) { c.Spec.ID = "7b0c7a52-6c1f-4c3e-9a55-0f6d1f1f8f10" }),
	} {
		t.Run(name, func(t *testing.T) {
			require.False(t, projection.IsMirror(c, "dev"))
		})
	}
}

func TestExpanded_ReplacesVariables(t *testing.T) {
	t.Parallel()
	variables := projection.Variables{Variables: runnerconfig.Sorted([]runnerconfig.Variable{{Name: "A", Value: "a"}, {Name: "SECRET", Value: "s", Sensitive: true}})}
	cron := func(t *testing.T, change func(*v1alpha1.CronConnector)) *v1alpha1.Connector {
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
		t.Run(name, func(t *testing.T) {
			c := cron(t, change)
			require.True(t, projection.NamesVariables(c))
			before := c.DeepCopy()
			got, err := projection.ExpandTexts(c, variables)
			require.NoError(t, err)
			require.Equal(t, before, c, "the object keeps the names")
			config := crd.ConfigOf(got)
			require.Contains(t, []string{config.Schedule, config.Timezone, config.Prompt, string(config.Payload)}, map[bool]string{true: `{"x":["a"]}`, false: "a"}[name == "payload"])

			c.Labels = nil
			require.False(t, projection.NamesVariables(c), "what people write is as they write it")
			got, err = projection.ExpandTexts(c, variables)
			require.NoError(t, err)
			require.Same(t, c, got)
		})
	}
	for text, want := range map[string]string{
		"${NONE}":   `Environment "dev" has no variable NONE`,
		"${SECRET}": "the variable SECRET is sensitive",
		"${":        `"prompt" has ${ that is not followed`,
	} {
		t.Run(text, func(t *testing.T) {
			_, err := projection.ExpandTexts(cron(t, func(c *v1alpha1.CronConnector) { c.Prompt = text }), variables)
			problem, is := projection.IsTextError(err)
			require.True(t, is)
			require.Contains(t, problem, want)
			require.NotContains(t, problem, `"s"`)
		})
	}
}

// Values from Secrets and sealed values are sensitive. A value is read only if a text names it, and a
// problem of one variable does not affect the others.
func TestVariablesOf_ReadsNamedSecrets(t *testing.T) {
	t.Parallel()
	e := &v1alpha1.Environment{ObjectMeta: metav1.ObjectMeta{Namespace: "team"}, Spec: v1alpha1.EnvironmentSpec{Variables: []v1alpha1.EnvironmentVariable{
		{Name: "WHEN", Value: ptr.To("@daily")}, {Name: "SEALED", SealedValue: "no base64"},
		{Name: "GONE", SecretKeyRef: &v1alpha1.SecretKeyReference{Name: "gone", Key: "a"}},
		{Name: "THERE", SecretKeyRef: &v1alpha1.SecretKeyReference{Name: "there", Key: "a"}},
		{Name: "LONG", SecretKeyRef: &v1alpha1.SecretKeyReference{Name: "there", Key: "long"}},
		{Name: "HIDDEN", Value: ptr.To("a"), Sensitive: true},
	}}}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "there"}, Data: map[string][]byte{
		"a": []byte("value"), "long": []byte(strings.Repeat("x", runnerconfig.MaxVariable+1)),
	}}
	from := &base.Base{Reader: fake.NewClientBuilder().WithObjects(secret).Build()}
	read := func(texts ...string) projection.Variables {
		got, err := projection.VariablesOf(t.Context(), from, e, store.Key{}, nil, texts)
		require.NoError(t, err)
		return got
	}
	got := read("GONE", "${GON}", "$GONE")
	require.Equal(t, []runnerconfig.Variable{
		{Name: "GONE", Sensitive: true}, {Name: "HIDDEN", Value: "a", Sensitive: true}, {Name: "LONG", Sensitive: true},
		{Name: "SEALED", Sensitive: true}, {Name: "THERE", Sensitive: true}, {Name: "WHEN", Value: "@daily"},
	}, got.Variables.Variables)
	require.Empty(t, got.Problems)
	got = read("a ${GONE}", "${THERE}${SEALED}${LONG}")
	there, _ := got.Find("THERE")
	require.Equal(t, runnerconfig.Variable{Name: "THERE", Value: "value", Sensitive: true}, there)
	require.Equal(t, `Secret "gone" does not exist`, got.Problems["GONE"])
	require.Contains(t, got.Problems["SEALED"], "cannot be decrypted")
	require.Contains(t, got.Problems["LONG"], "more than 8192 bytes")
	require.Len(t, got.Problems, 3)
}

func sendsTo(t *testing.T, url string, headers string) *v1alpha1.Connector {
	t.Helper()
	return mirror(t, "type: webhook\nmode: outbound\nconfig: {url: '"+url+"', headers: "+headers+"}\n").Connector
}

// The credentials of an outbound connector may contain sensitive values, because they are sealed.
func TestCredentials_ExpandSensitiveVariables(t *testing.T) {
	t.Parallel()
	variables := projection.Variables{
		Variables: runnerconfig.Sorted([]runnerconfig.Variable{
			{Name: "HOST", Value: "erp.example.com"}, {Name: "TOKEN", Value: "CANARY", Sensitive: true}, {Name: "BAD", Value: "CANARY\n"}, {Name: "GONE", Sensitive: true},
		}),
		Problems: map[string]string{"GONE": `Secret "gone" does not exist`},
	}
	c := sendsTo(t, "https://${HOST}/x", "{Authorization: 'Bearer ${TOKEN}', X-Team: 'a $${b'}")
	require.True(t, projection.NamesVariables(c))
	require.Equal(t, []string{"https://${HOST}/x", "Bearer ${TOKEN}", "a $${b"}, projection.Texts(c))
	before := c.DeepCopy()
	got, err := projection.Credentials(c, variables)
	require.NoError(t, err)
	require.Equal(t, "https://erp.example.com/x", got.URL)
	require.Equal(t, map[string]string{"Authorization": "Bearer CANARY", "X-Team": "a ${b"}, got.Headers)
	require.Equal(t, projection.DestinationDigest(c), got.Said)
	require.Equal(t, before, c, "the object keeps the names")
	expanded, err := projection.ExpandTexts(c, variables)
	require.NoError(t, err)
	row, err := projection.Row(store.ObjectRef{}, expanded, projection.Identity{}, "", "")
	require.NoError(t, err)
	require.Equal(t, `{"url":"https://${HOST}/x"}`, string(row.Config), "the readable configuration keeps the names of variables")

	plain := sendsTo(t, "https://a.example.com", "{X-A: b}")
	got, err = projection.Credentials(plain, variables)
	require.NoError(t, err)
	require.Equal(t, secrets.Credentials{Headers: map[string]string{"X-A": "b"}}, got)
	require.NotEqual(t, projection.DestinationDigest(c), projection.DestinationDigest(sendsTo(t, "https://${HOST}/y", "{Authorization: 'Bearer ${TOKEN}', X-Team: 'a $${b'}")))
	require.NotEqual(t, projection.DestinationDigest(c), projection.DestinationDigest(sendsTo(t, "https://${HOST}/x", "{Authorization: 'Bearer ${TOKEN}'}")))
	c.Labels = nil
	got, err = projection.Credentials(c, variables)
	require.NoError(t, err)
	require.True(t, got.IsEmpty(), "what people write is as they write it")
	for name, c := range map[string]struct{ url, headers, want string }{
		"unknown variables in the URL":           {"https://${NONE}/${NO}", "{}", `Environment "dev" has no variables NO and NONE; set them in its spec.variables, with PUT /environments/{environment_id}/variables, or with ` + "`agentctl env set`"},
		"unknown variables in URL and headers":   {"https://${C}/${A}", "{X-B: '${B}'}", `Environment "dev" has no variables A, B and C; set them in its spec.variables, with PUT /environments/{environment_id}/variables, or with ` + "`agentctl env set`"},
		"variable without a value":               {"https://${HOST}", "{X-A: '${GONE}'}", `the variable GONE has no value: Secret "gone" does not exist`},
		"variable that is not a URL":             {"${TOKEN}", "{}", `"url" must be an http or https URL, such as https://example.com/results`},
		"variable with a line break in a header": {"https://${HOST}", "{X-A: '${BAD}'}", `"headers" has a control character, such as a line break, in the value of "X-A": remove it`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := projection.Credentials(sendsTo(t, c.url, c.headers), variables)
			problem, is := projection.IsTextError(err)
			require.True(t, is)
			require.Equal(t, c.want, problem)
		})
	}
}

func TestMirrorOf_OutboundFile(t *testing.T) {
	t.Parallel()
	m := mirror(t, "type: webhook\nmode: outbound\nname: The CRM\nconfig: {url: '${URL}', headers: {X-A: b}, timeout_seconds: 9, retry: {max_attempts: 3, schedule_seconds: [0, 7]}}\n"+
		"agents: [two]\nlinks: [{agent: one, outbound: {source_connectors: [ask], statuses: [failed, delivery_failed]}}]\n")
	require.Equal(t, v1alpha1.WebhookConnector{
		Authentication: v1alpha1.AuthenticationSecret, URL: "${URL}", Headers: map[string]string{"X-A": "b"}, TimeoutSeconds: ptr.To(int32(9)),
		Retry: &v1alpha1.DeliveryRetry{MaxAttempts: ptr.To(int32(3)), ScheduleSeconds: []int32{0, 7}},
	}, *m.Connector.Spec.Webhook)
	require.Nil(t, m.Links[0].Spec.Outbound)
	require.Equal(t, &v1alpha1.OutboundLink{
		Mode: v1alpha1.LinkAutomatic, SourceConnectors: []v1alpha1.ConnectorName{"dev.ask"}, Statuses: []v1alpha1.LinkStatus{v1alpha1.LinkFailed, v1alpha1.LinkDeliveryFailed},
	}, m.Links[1].Spec.Outbound)
	project := uuid.New()
	rows := m.Rows(project)
	require.Equal(t, &store.OutboundPolicy{Mode: store.LinkAutomatic}, rows[0].Outbound)
	require.Equal(t, &store.OutboundPolicy{
		Mode: store.LinkAutomatic, Statuses: []store.RunStatus{store.RunFailed, store.StatusDeliveryFailed},
		SourceConnectorIDs: []uuid.UUID{v1alpha1.ProjectObjectID(project, store.KindConnector, "dev.ask")},
	}, rows[1].Outbound)

	tool := mirror(t, "type: webhook\nmode: outbound\nconfig: {url: '${URL}'}\nlinks: [{agent: one, outbound: {mode: agent_tool}}]\n")
	require.Equal(t, &v1alpha1.OutboundLink{Mode: v1alpha1.LinkAgentTool, ActionName: "send_to_orders"}, tool.Links[0].Spec.Outbound,
		"the same in every environment, as in tests")
	require.Equal(t, &store.OutboundPolicy{Mode: store.LinkAgentTool, ActionName: "send_to_orders"}, tool.Rows(project)[0].Outbound)
}

// The row keeps characters that HTML escapes, because escapes count in the size of a tick's input.
func TestRow_WritesPayloadWithoutEscapes(t *testing.T) {
	t.Parallel()
	c := &v1alpha1.Connector{Spec: v1alpha1.ConnectorSpec{Mode: v1alpha1.ModeInbound, Cron: &v1alpha1.CronConnector{
		Schedule: "@daily", Payload: &runtime.RawExtension{Raw: []byte(`{"a":"\u003cb\u003e"}`)},
	}}}
	row, err := projection.Row(store.ObjectRef{}, c, projection.Identity{}, "", "")
	require.NoError(t, err)
	require.Contains(t, string(row.Config), `{"a":"<b>"}`)
}
