// SPDX-License-Identifier: Apache-2.0

package apiserver

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/internal/namespaces"
	"github.com/agentplatform/agentplatform/internal/testenv/kube"
)

// A facade that RoleBindings limit to a namespace serves that one, and does not
// know keys of others.
func TestAFacadeThatHasRightsInOneNamespace(t *testing.T) {
	t.Parallel()
	w, other := newWorld(t), newWorld(t)
	control, user := kube.Start(t), "facade-of-"+w.namespace
	control.Grant(t, user, "agentplatform-apiserver", w.namespace)
	limited, err := client.NewWithWatch(control.User(t, user), client.Options{Scheme: control.Scheme})
	require.NoError(t, err)
	own, foreign := w.key(t, nil), other.key(t, nil)

	index := func(within namespaces.Set) *Index {
		return unlimited(NewIndex(limited, within, quiet()))
	}
	w.server.client, w.server.index = limited, index(nil)
	status, _ := w.call(t, own, http.MethodGet, "/environments", "")
	require.Equal(t, http.StatusServiceUnavailable, status, "it may not ask the whole cluster, and the caller is not at fault")

	within := namespaces.Set{other.namespace, w.namespace} // one of which it may not read
	w.server.client, w.server.index = within.Client(limited), index(within)
	status, body := w.call(t, own, http.MethodGet, "/environments", "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	status, body = w.call(t, foreign, http.MethodGet, "/environments", "")
	require.Equal(t, http.StatusUnauthorized, status, "%s", body)

	watching := index(within)
	require.Error(t, watching.Ready(t.Context()), "nothing was read yet")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- watching.Run(ctx) }()
	require.Eventually(t, func() bool { return watching.Ready(ctx) == nil }, 30*time.Second, time.Millisecond,
		"a namespace that may not be read holds up nothing")
	stop()
	require.NoError(t, <-ended)
}
