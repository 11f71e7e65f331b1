// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"log/slog"
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
	limited, err := client.NewWithWatch(control.User(t, user), client.Options{Scheme: control.Scheme})
	require.NoError(t, err)
	own, foreign := w.key(t, nil), other.key(t, nil)

	index := func(within namespaces.Set) *KeyIndex {
		return unlimited(NewKeyIndex(limited, within, slog.New(slog.DiscardHandler)))
	}
	w.server.client, w.server.index = limited, index(nil)
	status, _ := w.call(t, own, http.MethodGet, "/environments", "")
	require.NotEqual(t, http.StatusOK, status, "it may not ask the whole cluster")

	within := namespaces.Set{other.namespace, w.namespace} // one of which it may not read
	w.server.client, w.server.index = within.Client(limited), index(within)
	status, body := w.call(t, own, http.MethodGet, "/environments", "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	status, body = w.call(t, foreign, http.MethodGet, "/environments", "")
	require.Equal(t, http.StatusUnauthorized, status, "%s", body)
}
