// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// applied is a connector that a field manager applies, as kubectl, Argo CD and Flux do.
func (w *world) applied(t testing.TB, manager string) *v1alpha1.Connector {
	t.Helper()
	name := "applied-" + uuid.NewString()[:8]
	w.apply(t, manager, `{"apiVersion":"agentplatform.dev/v1alpha1","kind":"Connector","metadata":{"name":"`+name+`"},
		"spec":{"environment":"production","mode":"Sync","displayName":"`+name+`","secretVersion":3,"webhook":{"timeoutSeconds":60}}}`)
	conn := &v1alpha1.Connector{}
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, conn))
	w.settle(t, conn)
	return conn
}

// appliedLink links an agent to a connector in the same way.
func (w *world) appliedLink(t testing.TB, manager string, conn *v1alpha1.Connector) *v1alpha1.ConnectorLink {
	t.Helper()
	w.apply(t, manager, `{"apiVersion":"agentplatform.dev/v1alpha1","kind":"ConnectorLink","metadata":{"name":"`+conn.Name+`"},
		"spec":{"connector":"`+conn.Name+`","agent":"hello"}}`)
	link := &v1alpha1.ConnectorLink{}
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKeyFromObject(conn), link))
	w.settle(t, link)
	return link
}

func (w *world) apply(t testing.TB, manager, manifest string) {
	t.Helper()
	o := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(manifest), &o.Object))
	o.SetNamespace(w.namespace)
	require.NoError(t, w.client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(manager), client.ForceOwnership))
}

// TestFieldsOfAGitOpsManagerAreItsOwn: and those of everybody else are taken over.
func TestFieldsOfAGitOpsManagerAreItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key(t, nil)
	for _, c := range []struct {
		body, field, location string
	}{
		{`{"name":"Other"}`, "spec.displayName", "body.name"},
		{`{"enabled":false,"name":"Other"}`, "spec.displayName", "body.name"},
		{`{"config":{"timeout_seconds":70}}`, "spec.webhook.timeoutSeconds", "body.config.timeout_seconds"},
		{`{"config":{}}`, "spec.webhook.timeoutSeconds", "body.config.timeout_seconds"},
		{`{"enabled":false}`, "", ""},
		{`{"mode":"sync","config":{"timeout_seconds":60}}`, "", ""},
	} {
		t.Run(c.body, func(t *testing.T) {
			for _, manager := range append([]string{"kubectl"}, DefaultGitOpsManagers...) {
				conn := w.applied(t, manager)
				answer := w.ask(t, key, http.MethodPatch, "/connectors/"+conn.Status.ID, strings.ReplaceAll(c.body, "Other", "Other "+conn.Name))
				if c.field == "" || manager == "kubectl" {
					require.Equal(t, http.StatusOK, answer.Code, "%s over %s: %s", c.body, manager, answer.Body)
					continue
				}
				require.Equal(t, http.StatusConflict, answer.Code, "%s over %s: %s", c.body, manager, answer.Body)
				p := decode[Problem](t, answer.Body.Bytes())
				require.Equal(t, httpserver.CodeGitOps, p.Code)
				require.Contains(t, p.Detail, manager+" owns "+c.field)
				require.Equal(t, httpserver.Fields{at(c.location, "is owned by "+manager)}, p.Errors)
				now := w.shown(t, key, conn)
				require.Equal(t, conn.Name, now.Name, "nothing is done")
				require.True(t, now.Enabled)
			}
		})
	}
}

// TestDefaultsAreNobodysWhoseManifestSaysNothingOfThem: after a client-side apply, as far
// as its manifest is known.
func TestDefaultsAreNobodysWhoseManifestSaysNothingOfThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key(t, nil)
	for manifest, free := range map[string]bool{
		`{"spec":{"displayName":"x","environment":"production","mode":"Sync","webhook":{}}}`:                true,
		`{"spec":{"displayName":"x","environment":"production","mode":"Sync","webhook":{},"enabled":true}}`: false,
		`nonsense`: false,
		``:         false,
	} {
		t.Run(manifest, func(t *testing.T) {
			conn := &v1alpha1.Connector{ObjectMeta: w.meta("made-" + uuid.NewString()[:8]), Spec: v1alpha1.ConnectorSpec{
				Environment: "production", DisplayName: v1alpha1.DisplayName(uuid.NewString()), Mode: v1alpha1.ModeSync, Webhook: &v1alpha1.WebhookConnector{},
			}}
			if manifest != "" {
				conn.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: manifest}
			}
			require.NoError(t, w.client.Create(t.Context(), conn, client.FieldOwner("argocd-controller")))
			w.settle(t, conn)
			answer := w.ask(t, key, http.MethodPatch, "/connectors/"+conn.Status.ID, `{"enabled":false}`)
			require.Equal(t, free, answer.Code == http.StatusOK, "%s", answer.Body)
			if !free {
				require.Contains(t, decode[Problem](t, answer.Body.Bytes()).Detail, "argocd-controller owns spec.enabled")
			}
			answer = w.ask(t, key, http.MethodPatch, "/connectors/"+conn.Status.ID, `{"name":"`+conn.Name+`"}`)
			require.Equal(t, http.StatusConflict, answer.Code, "%s", answer.Body)
		})
	}
}

// TestWhatIsTakenOverIsTheFacades: so that who applies it again is told of the conflict.
func TestWhatIsTakenOverIsTheFacades(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	conn := w.applied(t, "kubectl")
	status, body := w.call(t, w.key(t, nil), http.MethodPatch, "/connectors/"+conn.Status.ID, `{"name":"Other"}`)
	require.Equal(t, http.StatusOK, status, "%s", body)
	require.NoError(t, w.client.Get(t.Context(), client.ObjectKeyFromObject(conn), conn))
	owners := map[string][]string{}
	for _, entry := range conn.ManagedFields {
		if entry.Subresource != "" {
			continue
		}
		fields, err := ownedFields(entry)
		require.NoError(t, err)
		for _, field := range fields {
			if begins(field, []string{"spec", "displayName"}) || begins(field, []string{"spec", "secretVersion"}) {
				owners[field[1]] = append(owners[field[1]], entry.Manager)
			}
		}
	}
	require.Equal(t, map[string][]string{"displayName": {fieldManager}, "secretVersion": {"kubectl"}}, owners)
}

// TestWhatGitOpsMadeIsDeletedThere: also where it is deleted with something else.
func TestWhatGitOpsMadeIsDeletedThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	key := w.key(t, nil)
	theirs, ours := w.applied(t, "argocd-controller"), w.applied(t, "kubectl")
	theirsLink, link := w.appliedLink(t, "kubectl", theirs), w.appliedLink(t, "helm-controller", ours)
	connectors, links := w.objects(t)
	for path, manager := range map[string]string{
		"/connectors/" + theirs.Status.ID:                            "argocd-controller",
		"/connectors/" + ours.Status.ID:                              "helm-controller",
		"/connectors/" + ours.Status.ID + "/links/" + link.Status.ID: "helm-controller",
	} {
		t.Run(path, func(t *testing.T) {
			answer := w.ask(t, key, http.MethodDelete, path, "")
			require.Equal(t, http.StatusConflict, answer.Code, "%s", answer.Body)
			p := decode[Problem](t, answer.Body.Bytes())
			require.Equal(t, httpserver.CodeGitOps, p.Code)
			require.Contains(t, p.Detail, manager+" owns spec")
		})
	}
	nowConnectors, nowLinks := w.objects(t)
	require.Equal(t, []int{connectors, links}, []int{nowConnectors, nowLinks}, "nothing is done")
	status, body := w.call(t, key, http.MethodDelete, "/connectors/"+theirs.Status.ID+"/links/"+theirsLink.Status.ID, "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	status, body = w.call(t, key, http.MethodPatch, "/connectors/"+ours.Status.ID+"/links/"+link.Status.ID, `{}`)
	require.Equal(t, http.StatusOK, status, "it is what they say already: %s", body)
	status, body = w.call(t, key, http.MethodPost, "/connectors/"+theirs.Status.ID+"/rotate-secret", "")
	require.Equal(t, http.StatusConflict, status, "%s", body)
	require.Contains(t, decode[Problem](t, body).Detail, "argocd-controller owns spec.secretVersion")

	w.server.gitOpsManagers = []string{"somebody-else"}
	status, body = w.call(t, key, http.MethodDelete, "/connectors/"+ours.Status.ID, "")
	require.Equal(t, http.StatusOK, status, "who counts is configured: %s", body)
}

// TestDifferencesAreAsDeepAsBothAre: and of a list it is the whole that differs.
func TestDifferencesAreAsDeepAsBothAre(t *testing.T) {
	t.Parallel()
	was := map[string]any{"a": int64(1), "b": map[string]any{"c": "x", "d": "y"}, "l": []any{"x"}, "gone": map[string]any{"e": "z"}}
	is := map[string]any{"a": int64(1), "b": map[string]any{"c": "X", "d": "y", "new": true}, "l": []any{"x", "y"}}
	require.Equal(t, [][]string{{"s", "b", "c"}, {"s", "b", "new"}, {"s", "gone"}, {"s", "l"}}, differences([]string{"s"}, was, is))
	require.Empty(t, differences(nil, was, was))
	require.True(t, begins([]string{"s", "gone", "e"}, []string{"s", "gone"}), "what is below it is changed with it")
	require.False(t, begins([]string{"s"}, []string{"s", "gone"}), "what is above it is not")
}
