// SPDX-License-Identifier: Apache-2.0

package apiserver_test

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
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// applyConnector is a connector that a field manager applies, as kubectl, Argo CD and Flux do.
func applyConnector(t testing.TB, w *apiservertest.Project, manager string) *v1alpha1.Connector {
	t.Helper()
	name := "applied-" + uuid.NewString()[:8]
	applyManifest(t, w, manager, `{"apiVersion":"agentplatform.dev/v1alpha1","kind":"Connector","metadata":{"name":"`+name+`"},
		"spec":{"environment":"production","mode":"Sync","displayName":"`+name+`","secretVersion":3,"webhook":{"timeoutSeconds":60}}}`)
	conn := &v1alpha1.Connector{}
	require.NoError(t, w.Client.Get(t.Context(), client.ObjectKey{Namespace: w.Namespace, Name: name}, conn))
	w.SetReady(t, conn)
	return conn
}

// applyLink links an agent to a connector in the same way.
func applyLink(t testing.TB, w *apiservertest.Project, manager string, conn *v1alpha1.Connector) *v1alpha1.ConnectorLink {
	t.Helper()
	applyManifest(t, w, manager, `{"apiVersion":"agentplatform.dev/v1alpha1","kind":"ConnectorLink","metadata":{"name":"`+conn.Name+`"},
		"spec":{"connector":"`+conn.Name+`","agent":"hello"}}`)
	link := &v1alpha1.ConnectorLink{}
	require.NoError(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(conn), link))
	w.SetReady(t, link)
	return link
}

func applyManifest(t testing.TB, w *apiservertest.Project, manager, manifest string) {
	t.Helper()
	o := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(manifest), &o.Object))
	o.SetNamespace(w.Namespace)
	require.NoError(t, w.Client.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(manager), client.ForceOwnership))
}

// The facade takes over the fields of all other managers.
func TestGitOps_ProtectsFieldsOfGitOpsManagers(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
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
			for _, manager := range append([]string{"kubectl"}, rest.DefaultGitOpsManagers...) {
				conn := applyConnector(t, w, manager)
				answer := w.Request(t, key, http.MethodPatch, "/connectors/"+conn.Status.ID, strings.ReplaceAll(c.body, "Other", "Other "+conn.Name))
				if c.field == "" || manager == "kubectl" {
					require.Equal(t, http.StatusOK, answer.Code, "%s over %s: %s", c.body, manager, answer.Body)
					continue
				}
				require.Equal(t, http.StatusConflict, answer.Code, "%s over %s: %s", c.body, manager, answer.Body)
				p := apiservertest.Decode[rest.Problem](t, answer.Body.Bytes())
				require.Equal(t, httpserver.CodeGitOps, p.Code)
				require.Contains(t, p.Detail, manager+" owns "+c.field)
				require.Equal(t, httpserver.Fields{{Location: c.location, Message: "is owned by " + manager}}, p.Errors)
				now := w.GetConnector(t, key, conn)
				require.Equal(t, conn.Name, now.Name, "nothing is done")
				require.True(t, now.Enabled)
			}
		})
	}
}

// After a client-side apply, only fields of the manifest are owned.
func TestGitOps_IgnoresDefaultsOutsideManifest(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	for manifest, free := range map[string]bool{
		`{"spec":{"displayName":"x","environment":"production","mode":"Sync","webhook":{}}}`:                true,
		`{"spec":{"displayName":"x","environment":"production","mode":"Sync","webhook":{},"enabled":true}}`: false,
		`nonsense`: false,
		``:         false,
	} {
		t.Run(manifest, func(t *testing.T) {
			conn := &v1alpha1.Connector{ObjectMeta: w.Meta("made-" + uuid.NewString()[:8]), Spec: v1alpha1.ConnectorSpec{
				Environment: "production", DisplayName: v1alpha1.DisplayName(uuid.NewString()), Mode: v1alpha1.ModeSync, Webhook: &v1alpha1.WebhookConnector{},
			}}
			if manifest != "" {
				conn.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: manifest}
			}
			require.NoError(t, w.Client.Create(t.Context(), conn, client.FieldOwner("argocd-controller")))
			w.SetReady(t, conn)
			answer := w.Request(t, key, http.MethodPatch, "/connectors/"+conn.Status.ID, `{"enabled":false}`)
			require.Equal(t, free, answer.Code == http.StatusOK, "%s", answer.Body)
			if !free {
				require.Contains(t, apiservertest.Decode[rest.Problem](t, answer.Body.Bytes()).Detail, "argocd-controller owns spec.enabled")
			}
			answer = w.Request(t, key, http.MethodPatch, "/connectors/"+conn.Status.ID, `{"name":"`+conn.Name+`"}`)
			require.Equal(t, http.StatusConflict, answer.Code, "%s", answer.Body)
		})
	}
}

// The earlier manager gets a conflict at its next apply.
func TestGitOps_TakesOwnershipOfChangedFields(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	conn := applyConnector(t, w, "kubectl")
	status, body := w.Call(t, w.CreateKey(t, nil), http.MethodPatch, "/connectors/"+conn.Status.ID, `{"name":"Other"}`)
	require.Equal(t, http.StatusOK, status, "%s", body)
	require.NoError(t, w.Client.Get(t.Context(), client.ObjectKeyFromObject(conn), conn))
	owners := map[string][]string{}
	for _, entry := range conn.ManagedFields {
		if entry.Subresource != "" {
			continue
		}
		for _, field := range []string{"displayName", "secretVersion"} {
			if strings.Contains(string(entry.FieldsV1.GetRawBytes()), `"f:`+field+`"`) {
				owners[field] = append(owners[field], entry.Manager)
			}
		}
	}
	require.Equal(t, map[string][]string{"displayName": {rest.FieldManager}, "secretVersion": {"kubectl"}}, owners)
}

// The rule also holds if the object is deleted with another object.
func TestGitOps_RejectsDeletion(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProject(t)
	key := w.CreateKey(t, nil)
	theirs, ours := applyConnector(t, w, "argocd-controller"), applyConnector(t, w, "kubectl")
	theirsLink, link := applyLink(t, w, "kubectl", theirs), applyLink(t, w, "helm-controller", ours)
	connectors, links := w.CountObjects(t)
	for path, manager := range map[string]string{
		"/connectors/" + theirs.Status.ID:                            "argocd-controller",
		"/connectors/" + ours.Status.ID:                              "helm-controller",
		"/connectors/" + ours.Status.ID + "/links/" + link.Status.ID: "helm-controller",
	} {
		t.Run(path, func(t *testing.T) {
			answer := w.Request(t, key, http.MethodDelete, path, "")
			require.Equal(t, http.StatusConflict, answer.Code, "%s", answer.Body)
			p := apiservertest.Decode[rest.Problem](t, answer.Body.Bytes())
			require.Equal(t, httpserver.CodeGitOps, p.Code)
			require.Contains(t, p.Detail, manager+" owns spec")
		})
	}
	nowConnectors, nowLinks := w.CountObjects(t)
	require.Equal(t, []int{connectors, links}, []int{nowConnectors, nowLinks}, "nothing is done")
	status, body := w.Call(t, key, http.MethodDelete, "/connectors/"+theirs.Status.ID+"/links/"+theirsLink.Status.ID, "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	status, body = w.Call(t, key, http.MethodPatch, "/connectors/"+ours.Status.ID+"/links/"+link.Status.ID, `{}`)
	require.Equal(t, http.StatusOK, status, "it is what they say already: %s", body)
	status, body = w.Call(t, key, http.MethodPost, "/connectors/"+theirs.Status.ID+"/rotate-secret", "")
	require.Equal(t, http.StatusConflict, status, "%s", body)
	require.Contains(t, apiservertest.Decode[rest.Problem](t, body).Detail, "argocd-controller owns spec.secretVersion")

	w.Server.Service.GitOpsManagers = []string{"somebody-else"}
	status, body = w.Call(t, key, http.MethodDelete, "/connectors/"+ours.Status.ID, "")
	require.Equal(t, http.StatusOK, status, "who counts is configured: %s", body)
}
