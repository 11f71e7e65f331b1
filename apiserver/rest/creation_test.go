// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/internal/testenv/kube"
)

// The objects of a failed call are deleted even if the client has disconnected. Another object with the same name stays.
func TestUndo_DeletesExactObjects(t *testing.T) {
	t.Parallel()
	control := kube.Start(t)
	c, err := client.New(control.Config, client.Options{Scheme: control.Scheme})
	require.NoError(t, err)
	s := &Service{Options: Options{Client: c, Logger: slog.New(slog.DiscardHandler)}}
	conn := &v1alpha1.Connector{ObjectMeta: metav1.ObjectMeta{Namespace: control.Namespace(t), Name: "late"}, Spec: v1alpha1.ConnectorSpec{
		Environment: "production", Mode: v1alpha1.ModeInbound, Webhook: &v1alpha1.WebhookConnector{},
	}}
	key := client.ObjectKeyFromObject(conn)
	require.NoError(t, c.Create(t.Context(), conn))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s.undo(ctx, []v1alpha1.ConditionedObject{conn})
	require.True(t, IsNotFound(c.Get(t.Context(), key, &v1alpha1.Connector{})))

	again := &v1alpha1.Connector{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}, Spec: conn.Spec}
	require.NoError(t, c.Create(t.Context(), again))
	s.undo(t.Context(), []v1alpha1.ConditionedObject{conn})
	require.NoError(t, c.Get(t.Context(), key, again))
}

// Wait gives up if the client has left or the timeout has passed. Without both, it polls until the condition holds.
func TestWait_EndsWithClientOrTimeout(t *testing.T) {
	t.Parallel()
	const enough = 12 // polls
	for name, c := range map[string]struct {
		hasLeft bool
		timeout time.Duration
		ends    bool
	}{
		"client has left":    {true, time.Hour, true},
		"timeout has passed": {false, 0, true},
		"neither":            {false, time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.hasLeft {
				cancel()
			}
			polls := 0
			(&Service{Options: Options{ReadyTimeout: c.timeout}}).Wait(ctx, func() bool {
				polls++
				return polls == enough
			})
			require.Equal(t, c.ends, polls < enough)
		})
	}
}
