// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/apiserver/apiservertest"
	"github.com/agentplatform/agentplatform/apiserver/rest"
	"github.com/agentplatform/agentplatform/internal/namespaces"
	"github.com/agentplatform/agentplatform/internal/testenv/kube"
)

// RoleBindings limit this facade to a namespace. It does not know the keys of other namespaces.
func TestServer_ServesSingleNamespace(t *testing.T) {
	t.Parallel()
	w, other := apiservertest.NewProject(t), apiservertest.NewProject(t)
	control, user := kube.Start(t), "facade-of-"+w.Namespace
	control.Grant(t, user, "agentplatform-apiserver", w.Namespace)
	limited, err := client.NewWithWatch(control.User(t, user), client.Options{Scheme: control.Scheme})
	require.NoError(t, err)
	own, foreign := w.CreateKey(t, nil), other.CreateKey(t, nil)

	index := func(within namespaces.Set) *rest.Index {
		return apiservertest.WithoutLookupLimit(rest.NewIndex(limited, within, apiservertest.DiscardLogger()))
	}
	w.Server.Service.Client, w.Server.Service.Index = limited, index(nil)
	status, _ := w.Call(t, own, http.MethodGet, "/environments", "")
	require.Equal(t, http.StatusServiceUnavailable, status, "it may not ask the whole cluster, and the caller is not at fault")

	within := namespaces.Set{other.Namespace, w.Namespace} // one of which it may not read
	w.Server.Service.Client, w.Server.Service.Index = within.Client(limited), index(within)
	status, body := w.Call(t, own, http.MethodGet, "/environments", "")
	require.Equal(t, http.StatusOK, status, "%s", body)
	status, body = w.Call(t, foreign, http.MethodGet, "/environments", "")
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
