// SPDX-License-Identifier: Apache-2.0

package base_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	. "github.com/agentplatform/agentplatform/controllers/controllertest"
	"github.com/agentplatform/agentplatform/store"
)

// A new status or reason of Ready sends an event, which is a warning if the object is not ready. The
// status is written once if it changed, otherwise not at all.
func TestAnnounce_SendsEventsForChanges(t *testing.T) {
	t.Parallel()
	environment, events, written := dev("u", 1), &Events{}, 0
	c := interceptor.NewClient(cached(t, environment).(client.WithWatch), interceptor.Funcs{SubResourcePatch: func(
		ctx context.Context, next client.Client, subresource string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption,
	) error {
		written++
		return next.SubResource(subresource).Patch(ctx, o, patch, opts...)
	}})
	clock := clocktesting.NewFakeClock(time.Now())
	keeper := &base.Base{Client: c, Reader: c, Store: claimsAll{}, Events: events, Clock: clock}
	for _, step := range []struct {
		name  string
		mark  func(*v1alpha1.Environment)
		event string // its prefix
		write bool
	}{
		{"in progress", func(e *v1alpha1.Environment) { v1alpha1.MarkReconciling(e, v1alpha1.ReasonProgressing, "m") }, "", true},
		{"first Ready status", func(e *v1alpha1.Environment) { v1alpha1.MarkReady(e, "") }, "", true},
		{"first warning", func(e *v1alpha1.Environment) { v1alpha1.MarkSecretMissing(e, "a") }, "Warning SecretMissing: ", true},
		{"unchanged condition", func(e *v1alpha1.Environment) { v1alpha1.MarkSecretMissing(e, "a") }, "", false},
		{"another message for the same reason", func(e *v1alpha1.Environment) { v1alpha1.MarkSecretMissing(e, "b") }, "", true},
		{"recovery", func(e *v1alpha1.Environment) { v1alpha1.MarkReady(e, "") }, "Normal Succeeded: in effect", true},
		{"unchanged condition", func(e *v1alpha1.Environment) { v1alpha1.MarkReady(e, "") }, "", false},
		{"suspended", (*v1alpha1.Environment).MarkSuspended, "Normal Suspended: ", true},
		{"a second recovery at the same time", func(e *v1alpha1.Environment) { v1alpha1.MarkReady(e, "") }, "", true},
	} {
		before := written
		found := &v1alpha1.Environment{}
		_, err := keeper.Reconcile(t.Context(), request(environment), found, func(context.Context, store.Key) (time.Duration, error) {
			step.mark(found)
			return 0, nil
		})
		require.NoError(t, err, step.name)
		require.Equal(t, step.write, written > before, step.name)
		require.LessOrEqual(t, written, before+1, step.name)
		sent := events.Sent()
		if step.event == "" {
			require.Empty(t, sent, step.name)
			continue
		}
		require.Len(t, sent, 1, step.name)
		require.Contains(t, sent[0], step.event, step.name)
	}
}

// After a warning, the first Ready status sends an event. Progress sends one event per reason.
func TestAnnounce_ReportsRecovery(t *testing.T) {
	t.Parallel()
	environment, events, clock := dev("u", 1), &Events{}, clocktesting.NewFakeClock(time.Now())
	c := cached(t, environment)
	keeper := &base.Base{Client: c, Reader: c, Store: claimsAll{}, Events: events, Clock: clock}
	underWay := func(reason, message string) func(*v1alpha1.Environment) {
		return func(e *v1alpha1.Environment) { v1alpha1.MarkReconciling(e, reason, message) }
	}
	ready := func(e *v1alpha1.Environment) { v1alpha1.MarkReady(e, "") }
	for _, step := range []struct {
		name  string
		mark  func(*v1alpha1.Environment)
		event string // its prefix
	}{
		{"in progress", underWay(v1alpha1.ReasonProgressing, "m"), ""},
		{"a Secret is missing", func(e *v1alpha1.Environment) { v1alpha1.MarkSecretMissing(e, "a") }, "Warning SecretMissing: "},
		{"progress after the warning", underWay(v1alpha1.ReasonProgressing, "m"), ""},
		{"first Ready status", ready, "Normal Succeeded: in effect"},
		{"progress after Ready", underWay(v1alpha1.ReasonProgressing, "m"), ""},
		{"Ready without a warning before", ready, ""},
		{"progress with a reason", underWay(v1alpha1.ReasonBuildBlocked, "no node"), "Warning BuildBlocked: no node"},
		{"another message of that reason", underWay(v1alpha1.ReasonBuildBlocked, "no image"), ""},
		{"Ready after progress with a reason", ready, "Normal Succeeded: in effect"},
	} {
		clock.Step(time.Hour)
		found := &v1alpha1.Environment{}
		_, err := keeper.Reconcile(t.Context(), request(environment), found, func(context.Context, store.Key) (time.Duration, error) {
			step.mark(found)
			return 0, nil
		})
		require.NoError(t, err, step.name)
		sent := strings.Join(events.Sent(), "; ")
		require.True(t, strings.HasPrefix(sent, step.event) && (step.event != "" || sent == ""), "%s: %s", step.name, sent)
	}
}

// A build that cannot run sends a warning, because users do not watch the status of deployments from
// CI.
func TestAnnounce_WarnsOfBlockedBuild(t *testing.T) {
	t.Parallel()
	d, events := &v1alpha1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "v1", UID: "u", Generation: 1}}, &Events{}
	c := cached(t, d)
	keeper := &base.Base{Client: c, Reader: c, Store: claimsAll{}, Events: events}
	for _, step := range []struct {
		mark  func(*v1alpha1.Deployment)
		event string
	}{
		{func(d *v1alpha1.Deployment) { d.MarkBuildBlocked("no node") }, "Warning BuildBlocked: the build does not run: no node"},
		{(*v1alpha1.Deployment).MarkDeployed, "Normal Succeeded: deployed"},
	} {
		found := &v1alpha1.Deployment{}
		_, err := keeper.Reconcile(t.Context(), request(d), found, func(context.Context, store.Key) (time.Duration, error) {
			step.mark(found)
			return 0, nil
		})
		require.NoError(t, err)
		require.Equal(t, []string{step.event}, events.Sent())
	}
}
