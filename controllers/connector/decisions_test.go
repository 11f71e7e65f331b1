// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/controllers/projection"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

func ask(change func(*v1alpha1.Connector)) *v1alpha1.Connector {
	c := &v1alpha1.Connector{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "ask", UID: "u", Generation: 3}, Spec: v1alpha1.ConnectorSpec{
		Environment: "dev", Mode: v1alpha1.ModeInbound, Webhook: &v1alpha1.WebhookConnector{},
	}}
	change(c)
	return c
}

// Each field of a Connector is in its row.
func TestRow_HasEveryField(t *testing.T) {
	t.Parallel()
	ids := projection.Identity{Project: uuid.New(), Environment: uuid.New(), Connector: uuid.New()}
	row := func(t *testing.T, change func(*v1alpha1.Connector)) store.Connector {
		t.Helper()
		row, err := (&Reconciler{Base: &base.Base{}}).connectorRow(ask(change), ids, "the secret", "key-1")
		require.NoError(t, err)
		return row
	}
	want := store.Connector{
		Ref: store.ObjectRef{Namespace: "team", Kind: "Connector", Name: "ask", ObjectUID: "u", Generation: 3},
		ID:  ids.Connector, ProjectID: ids.Project, EnvironmentID: ids.Environment, Name: "ask", Type: "webhook", Mode: "inbound", Enabled: true,
		Config: []byte(`{"require_authentication":true,"authentication":"secret"}`), SecretVersion: 1, SecretKey: "key-1",
		SecretDigest: secrets.Digest("the secret"), SecretGracePeriod: 24 * time.Hour,
	}
	for name, c := range map[string]struct {
		ask  func(*v1alpha1.Connector)
		want func(*store.Connector)
	}{
		"defaults":     {func(*v1alpha1.Connector) {}, func(*store.Connector) {}},
		"a name":       {func(c *v1alpha1.Connector) { c.Spec.DisplayName = "Ask" }, func(r *store.Connector) { r.Name = "Ask" }},
		"disabled":     {func(c *v1alpha1.Connector) { c.Spec.Enabled = ptr.To(false) }, func(r *store.Connector) { r.Enabled = false }},
		"version":      {func(c *v1alpha1.Connector) { c.Spec.SecretVersion = 4 }, func(r *store.Connector) { r.SecretVersion = 4 }},
		"grace period": {func(c *v1alpha1.Connector) { c.Spec.SecretGracePeriodSeconds = ptr.To(int32(60)) }, func(r *store.Connector) { r.SecretGracePeriod = time.Minute }},
		"grace of a rotation": {func(c *v1alpha1.Connector) {
			c.Spec.SecretGracePeriodSeconds, c.Annotations = ptr.To(int32(5)), map[string]string{v1alpha1.AnnotationRotationGrace: "1/5=60"}
		}, func(r *store.Connector) { r.SecretGracePeriod = time.Minute }},
		"no grace": {func(c *v1alpha1.Connector) { c.Spec.SecretGracePeriodSeconds = ptr.To(int32(0)) }, func(r *store.Connector) { r.SecretGracePeriod = 0 }},
		"defined in code": {
			func(c *v1alpha1.Connector) { c.Labels = map[string]string{v1alpha1.LabelDefinedInCode: "true"} },
			func(r *store.Connector) { r.DefinedInCode = true },
		},
		"sync": {func(c *v1alpha1.Connector) { c.Spec.Mode = v1alpha1.ModeSync }, func(r *store.Connector) {
			r.Mode = "sync"
		}},
		"sync, for a minute": {func(c *v1alpha1.Connector) {
			c.Spec.Mode, c.Spec.Webhook.TimeoutSeconds, c.Spec.Webhook.FilesRequired = v1alpha1.ModeSync, ptr.To(int32(60)), true
		}, func(r *store.Connector) {
			r.Mode, r.Config = "sync", []byte(`{"require_authentication":true,"authentication":"secret","files_required":true,"timeout_seconds":60}`)
		}},
		"GitHub": {func(c *v1alpha1.Connector) { c.Spec.Webhook.Authentication = v1alpha1.AuthenticationGitHub }, func(r *store.Connector) {
			r.Config = []byte(`{"require_authentication":true,"authentication":"github"}`)
		}},
		"headers": {func(c *v1alpha1.Connector) {
			c.Spec.Webhook.ContextHeaders = []v1alpha1.HeaderName{"X-GitHub-Event", "x-github-event", "X-A"}
		}, func(r *store.Connector) {
			r.Config = []byte(`{"require_authentication":true,"authentication":"secret","context_headers":["x-github-event","x-a"]}`)
		}},
		"no authentication": {func(c *v1alpha1.Connector) { c.Spec.Webhook.Authentication = v1alpha1.AuthenticationNone }, func(r *store.Connector) {
			r.SecretDigest, r.Config = nil, []byte(`{"require_authentication":false,"authentication":"none"}`)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			expected := want
			c.want(&expected)
			require.Equal(t, expected, row(t, c.ask))
		})
	}
}

// The child Secret has a predictable name, and a label if the name is short enough.
func TestChildSecret_HasNameAndLabels(t *testing.T) {
	t.Parallel()
	for name, labelled := range map[string]bool{"ask": true, strings.Repeat("a", 63): true, strings.Repeat("a", 64): false} {
		t.Run(fmt.Sprintf("%.60s", name), func(t *testing.T) {
			s := childSecret(&v1alpha1.Connector{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name}}, "the secret")
			require.Equal(t, name+"-connector", s.Name)
			require.Equal(t, map[string][]byte{"secret": []byte("the secret")}, s.Data)
			require.Equal(t, base.ManagedBy, s.Labels[base.LabelManagedBy])
			require.Equal(t, labelled, s.Labels[v1alpha1.LabelConnector] == name)
			require.NotContains(t, s.Labels, base.LabelInstance)
		})
	}
}

// waitingForName returns connectors of the same environment that are stalled because of the name.
func TestWaitingForName_FindsStalledConnectors(t *testing.T) {
	t.Parallel()
	waiting := func(namespace, name, environment string, mark func(*v1alpha1.Connector)) *v1alpha1.Connector {
		return ask(func(c *v1alpha1.Connector) {
			c.Namespace, c.Name, c.Spec.Environment = namespace, name, v1alpha1.EnvironmentName(environment)
			mark(c)
		})
	}
	taken := func(c *v1alpha1.Connector) { c.MarkNameTaken("x") }
	r := &Reconciler{Base: &base.Base{Client: controllertest.Cached(t,
		waiting("team", "ask", "dev", taken), waiting("team", "b", "dev", taken), waiting("team", "elsewhere", "prod", taken),
		waiting("other", "b", "dev", taken), waiting("team", "ready", "dev", func(c *v1alpha1.Connector) { v1alpha1.MarkReady(c, "") }),
		waiting("team", "back", "dev", func(c *v1alpha1.Connector) { c.MarkSecretVersionWentBack(2) }),
		waiting("team", "new", "dev", func(*v1alpha1.Connector) {}),
	)}}
	require.Equal(t, []string{"b"}, controllertest.Names(r.waitingForName(t.Context(), ask(func(*v1alpha1.Connector) {}))))
}

// title changes only with the name.
func TestTitle_ChangesWithTheName(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change   func(*v1alpha1.Connector)
		enqueued bool
	}{
		"another name": {func(c *v1alpha1.Connector) { c.Spec.DisplayName = "Other" }, true},
		"disabled":     {func(c *v1alpha1.Connector) { c.Spec.Enabled = ptr.To(false) }, false},
		"its status":   {func(c *v1alpha1.Connector) { v1alpha1.MarkReady(c, "") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			update := event.UpdateEvent{ObjectOld: ask(func(*v1alpha1.Connector) {}), ObjectNew: ask(c.change)}
			require.Equal(t, c.enqueued, base.Changed(displayName).Update(update))
		})
	}
}

func TestReadyMessage_ForEachMode(t *testing.T) {
	t.Parallel()
	require.Empty(t, readyMessage(ask(func(*v1alpha1.Connector) {})))
	require.Contains(t, readyMessage(ask(func(c *v1alpha1.Connector) { c.Spec.Enabled = ptr.To(false) })), "spec.enabled")
}

// A later release may have more modes. This one must not treat them as a mode that it has.
func TestReconcileByType_StallsUnknownModes(t *testing.T) {
	t.Parallel()
	c := ask(func(c *v1alpha1.Connector) { c.Spec.Mode = "Stream" })
	_, err := (&Reconciler{}).reconcileByType(t.Context(), c, projection.Identity{}, secrets.Credentials{})
	require.NoError(t, err)
	stalled := c.Status.Condition(v1alpha1.ConditionStalled)
	require.Equal(t, metav1.ConditionTrue, stalled.Status)
	require.Equal(t, v1alpha1.ReasonInvalidSpec, stalled.Reason)
	require.Contains(t, stalled.Message, "spec.mode is not a mode of this type")
}
