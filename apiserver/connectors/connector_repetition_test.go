// SPDX-License-Identifier: Apache-2.0

package connectors_test

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
)

// The first call ends between both creates, once by an outage and once without cleanup.
func TestCreateConnector_RepetitionCompletesInterruptedCall(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	post := func(name string, headers ...string) int {
		return w.Request(t, key, http.MethodPost, "/connectors?agent_name=hello&environment_id="+w.IDs["environment"],
			`{"name":"`+name+`","type":"webhook"}`, headers...).Code
	}
	connectors, links := w.CountObjects(t)
	requireMade := func(moreConnectors, moreLinks int, what string) {
		nowConnectors, nowLinks := w.CountObjects(t)
		require.Equal(t, []int{moreConnectors, moreLinks}, []int{nowConnectors - connectors, nowLinks - links}, what)
	}
	noLinks := func(verb string, o client.Object) error {
		if _, link := o.(*v1alpha1.ConnectorLink); link && verb == "create" {
			return apierrors.NewServiceUnavailable("restarting")
		}
		return nil
	}
	heal := w.FailWrites(noLinks)
	require.Equal(t, http.StatusServiceUnavailable, post("One"))
	requireMade(0, 0, "without a key it is taken back")
	require.Equal(t, http.StatusServiceUnavailable, post("One", "Idempotency-Key", "one"))
	requireMade(1, 0, "under a key it is left to the repetition")
	heal()
	require.Equal(t, http.StatusCreated, post("One", "Idempotency-Key", "one"))
	requireMade(1, 1, "which completes it")

	heal = w.FailWrites(func(verb string, o client.Object) error {
		if _, link := o.(*v1alpha1.ConnectorLink); link && verb == "create" {
			return apierrors.NewForbidden(apiservertest.ConnectorResource, "x", errors.New("exceeded quota: links"))
		}
		return nil
	})
	require.Equal(t, http.StatusForbidden, post("Two", "Idempotency-Key", "two"))
	requireMade(1, 1, "a connector that is rejected for good is deleted again")
	heal()

	heal = w.FailWrites(func(verb string, o client.Object) error {
		if verb == "delete" {
			return errors.New("crashed")
		}
		return noLinks(verb, o)
	})
	require.Equal(t, http.StatusServiceUnavailable, post("Three", "Idempotency-Key", "three"))
	heal()
	require.Equal(t, http.StatusCreated, post("Three", "Idempotency-Key", "three"))
	requireMade(2, 2, "")
}

// A quota or a policy can reject the second attempt before Kubernetes checks the name.
func TestCreateConnector_RepetitionKeepsObjectsOfFirstCall(t *testing.T) {
	t.Parallel()
	w := apiservertest.NewProjectWithHistory(t)
	key := w.CreateKey(t, nil)
	post := func(t *testing.T, name string) (int, string) {
		answer := w.Request(t, key, http.MethodPost, "/connectors?agent_name=hello&environment_id="+w.IDs["environment"],
			`{"name":"`+name+`","type":"webhook"}`, "Idempotency-Key", "once")
		return answer.Code, answer.Body.String()
	}
	status, first := post(t, "One")
	require.Equal(t, http.StatusCreated, status, first)
	connectors, links := w.CountObjects(t)
	for name, refusal := range map[string]error{
		"a quota":   apierrors.NewForbidden(apiservertest.ConnectorResource, "x", errors.New("exceeded quota: connectors")),
		"an outage": apierrors.NewServiceUnavailable("restarting"),
	} {
		t.Run(name, func(t *testing.T) {
			heal := w.FailWrites(func(verb string, _ client.Object) error {
				if verb == "create" {
					return refusal
				}
				return nil
			})
			status, again := post(t, "One")
			other, _ := post(t, "Two")
			heal()
			require.Equal(t, http.StatusCreated, status, "%s", again)
			require.JSONEq(t, first, again)
			require.Equal(t, http.StatusUnprocessableEntity, other)
			nowConnectors, nowLinks := w.CountObjects(t)
			require.Equal(t, []int{connectors, links}, []int{nowConnectors, nowLinks})
		})
	}
}
