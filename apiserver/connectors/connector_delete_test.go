// SPDX-License-Identifier: Apache-2.0

package connectors_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/connectors"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/httpserver"
)

// The call respects If-Match.
func TestDeleteConnector_DeletesLinks(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, ids := w.CreateKey(t, nil), w.NewObjects(t)
	path := "/connectors/" + ids["connector"]
	connectors, links := w.CountObjects(t)
	tag := w.Request(t, key, http.MethodGet, path, "").Header().Get("ETag")
	require.Equal(t, http.StatusOK, w.Request(t, key, http.MethodGet, path+"/links/"+ids["link"], "").Code)
	require.Equal(t, http.StatusPreconditionFailed, w.Request(t, key, http.MethodDelete, path, "", "If-Match", "W/"+tag).Code, "a weak tag never matches")
	answer := w.Request(t, key, http.MethodDelete, path, "", "If-Match", `"other", `+tag)
	require.Equal(t, http.StatusOK, answer.Code, "%s", answer.Body)
	require.JSONEq(t, `{"ok":true}`, answer.Body.String())
	nowConnectors, nowLinks := w.CountObjects(t)
	require.Equal(t, []int{1, 1}, []int{connectors - nowConnectors, links - nowLinks})
	for _, gone := range []string{path, path + "/links", path + "/links/" + ids["link"]} {
		require.Equal(t, http.StatusNotFound, w.Request(t, key, http.MethodGet, gone, "").Code, gone)
	}
	require.Equal(t, http.StatusNotFound, w.Request(t, key, http.MethodDelete, path, "").Code, "again, without a key")
	require.Equal(t, http.StatusNotFound, w.Request(t, key, http.MethodDelete, path, "", "Idempotency-Key", "k").Code, "again, under a key of its own")
	require.Equal(t, http.StatusNotFound, w.Request(t, w.CreateKey(t, nil), http.MethodDelete, path, "", "Idempotency-Key", "k").Code, "by another API key")
	require.Equal(t, http.StatusNotFound, w.Request(t, key, http.MethodDelete, "/connectors/"+uuid.NewString(), "", "Idempotency-Key", "k").Code, "what never was")
}

func TestDeleteLink_KeepsConnector(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, ids, others := w.CreateKey(t, nil), w.NewObjects(t), w.NewObjects(t)
	path := "/connectors/" + ids["connector"] + "/links/"
	require.Equal(t, http.StatusNotFound, w.Request(t, key, http.MethodDelete, path+others["link"], "").Code, "the link of another connector")
	require.Equal(t, http.StatusNotFound, w.Request(t, key, http.MethodDelete, path+ids["connector"], "").Code, "an id of another kind")
	tag := w.Request(t, key, http.MethodGet, path+ids["link"], "").Header().Get("ETag")
	require.Equal(t, http.StatusOK, w.Request(t, key, http.MethodDelete, path+ids["link"], "", "If-Match", tag).Code)
	require.Equal(t, http.StatusNotFound, w.Request(t, key, http.MethodGet, path+ids["link"], "").Code)
	_, body := w.Call(t, key, http.MethodGet, "/connectors/"+ids["connector"], "")
	require.Empty(t, apiservertest.Decode[connectors.Connector](t, body).Agents)
	_, body = w.Call(t, key, http.MethodGet, "/connectors/"+others["connector"], "")
	require.Equal(t, []string{"hello"}, apiservertest.Decode[connectors.Connector](t, body).Agents)
}

// A change between the read and the deletion is a conflict. A controller that writes the status is not.
func TestDelete_DetectsConcurrentChanges(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	for name, c := range map[string]struct {
		change func(*v1alpha1.Connector)
		status bool
		want   int
	}{
		"changed spec":          {func(c *v1alpha1.Connector) { c.Spec.SecretVersion++ }, false, http.StatusPreconditionFailed},
		"changed status":        {func(c *v1alpha1.Connector) { c.Status.SecretVersion++ }, true, http.StatusOK},
		"defined in code since": {func(c *v1alpha1.Connector) { c.Labels = map[string]string{v1alpha1.LabelDefinedInCode: "true"} }, false, http.StatusConflict},
	} {
		t.Run(name, func(t *testing.T) {
			ids := w.NewObjects(t)
			path := "/connectors/" + ids["connector"]
			tag := w.Request(t, key, http.MethodGet, path, "").Header().Get("ETag")
			changed := false
			heal := w.FailWrites(func(verb string, o client.Object) error {
				conn, ok := o.(*v1alpha1.Connector)
				if !ok || changed {
					return nil
				}
				changed = true
				now := conn.DeepCopy()
				c.change(now)
				if c.status {
					return w.Client.Status().Update(t.Context(), now)
				}
				return w.Client.Update(t.Context(), now)
			})
			answer := w.Request(t, key, http.MethodDelete, path, "", "If-Match", tag)
			heal()
			require.Equal(t, c.want, answer.Code, "%s", answer.Body)
			require.True(t, changed)
			left := w.Request(t, key, http.MethodGet, path+"/links/"+ids["link"], "").Code
			require.Equal(t, c.want == http.StatusOK, left == http.StatusNotFound, "a connector that is not deleted keeps its links")
		})
	}
}

// A policy of the cluster rejects the deletion.
func TestDeleteConnector_RejectsBeforeAnyDeletion(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, ids := w.CreateKey(t, nil), w.NewObjects(t)
	connectors, links := w.CountObjects(t)
	heal := w.FailWrites(func(_ string, o client.Object) error {
		if _, ok := o.(*v1alpha1.Connector); ok {
			return apierrors.NewForbidden(apiservertest.ConnectorResource, o.GetName(), errors.New("a policy keeps it"))
		}
		return nil
	})
	require.Equal(t, http.StatusForbidden, w.Request(t, key, http.MethodDelete, "/connectors/"+ids["connector"], "").Code)
	heal()
	nowConnectors, nowLinks := w.CountObjects(t)
	require.Equal(t, []int{connectors, links}, []int{nowConnectors, nowLinks})
}

// The connector is deleted, and a repeated call returns that. The audit log shows the connector.
func TestDeleteConnector_ReportsRemainingLinks(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	for name, refusal := range map[string]error{
		"an outage": apierrors.NewServiceUnavailable("restarting"),
		"a policy":  apierrors.NewForbidden(apiservertest.ConnectorResource, "x", errors.New("a policy keeps it")),
	} {
		t.Run(name, func(t *testing.T) {
			key, ids := w.CreateKey(t, nil), w.NewObjects(t)
			path := "/connectors/" + ids["connector"]
			heal := w.FailWrites(func(_ string, o client.Object) error {
				if _, ok := o.(*v1alpha1.ConnectorLink); ok {
					return refusal
				}
				return nil
			})
			answer := w.Request(t, key, http.MethodDelete, path, "", "Idempotency-Key", "k")
			heal()
			require.Equal(t, http.StatusInternalServerError, answer.Code)
			require.Contains(t, apiservertest.Decode[rest.Problem](t, answer.Body.Bytes()).Detail, "the connector is deleted, but its links")
			require.Equal(t, http.StatusNotFound, w.Request(t, key, http.MethodGet, path, "").Code)
			require.Equal(t, http.StatusOK, w.Request(t, key, http.MethodDelete, path, "", "Idempotency-Key", "k").Code)
		})
	}
}

func TestDeleteConnector_RejectsConnectorOfCode(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key, ids := w.CreateKey(t, nil), w.NewObjects(t)
	var list v1alpha1.ConnectorList
	require.NoError(t, w.Client.List(t.Context(), &list, client.InNamespace(w.Namespace)))
	for i := range list.Items {
		if conn := &list.Items[i]; conn.Status.ID == ids["connector"] {
			conn.Labels = map[string]string{v1alpha1.LabelDefinedInCode: "true"}
			require.NoError(t, w.Client.Update(t.Context(), conn))
		}
	}
	connectors, links := w.CountObjects(t)
	path := "/connectors/" + ids["connector"]
	for _, c := range []struct{ method, path, body, says string }{
		{http.MethodDelete, path, "", "remove connectors/"},
		{http.MethodDelete, path + "/links/" + ids["link"], "", "and deploy"},
		{http.MethodPatch, path + "/links/" + ids["link"], `{}`, "and deploy"},
		{http.MethodPost, path + "/links", `{"agent_name":"other"}`, "and deploy"},
	} {
		t.Run(c.method+" "+c.path+" "+c.body, func(t *testing.T) {
			answer := w.Request(t, key, c.method, c.path, c.body)
			require.Equal(t, http.StatusConflict, answer.Code, "%s", answer.Body)
			require.Equal(t, httpserver.CodeDefinedInCode, apiservertest.Decode[rest.Problem](t, answer.Body.Bytes()).Code)
			require.Contains(t, answer.Body.String(), c.says)
		})
	}
	nowConnectors, nowLinks := w.CountObjects(t)
	require.Equal(t, []int{connectors, links}, []int{nowConnectors, nowLinks})
}
