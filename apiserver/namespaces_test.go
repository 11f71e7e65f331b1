// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/internal/namespaces"
	"github.com/agentplatform/agentplatform/internal/testenv/kube"
)

// A facade that RoleBindings limit to a namespace serves that one, and does not
// know keys of others.
func TestAFacadeThatHasRightsInOneNamespace(t *testing.T) {
	t.Parallel()
	w, other := newWorld(t, emptyStore{}), newWorld(t, emptyStore{})
	control, user := kube.Start(t), "facade-of-"+w.namespace
	control.Grant(t, user, "agentplatform-apiserver", w.namespace)
	limited, err := client.New(control.User(t, user), client.Options{Scheme: control.Scheme})
	require.NoError(t, err)
	own, foreign := w.key(t, nil), other.key(t, nil)

	w.server.client = limited
	status, _ := w.call(t, own, http.MethodGet, "/environments", "")
	require.NotEqual(t, http.StatusOK, status, "it may not ask the whole cluster")

	w.server.client = namespaces.Set{w.namespace}.Client(limited)
	status, body := w.call(t, own, http.MethodGet, "/environments", "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	status, body = w.call(t, foreign, http.MethodGet, "/environments", "")
	require.Equal(t, http.StatusUnauthorized, status, "%s", body)
}
