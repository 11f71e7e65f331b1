// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/agentplatform/agentplatform/cmd/internal/flagenv"
	"github.com/agentplatform/agentplatform/cmd/internal/gateway"
	"github.com/agentplatform/agentplatform/internal/metrics"
	"github.com/agentplatform/agentplatform/internal/testenv/kube"
)

// started calls f with the subcommand and the parsed flags of each pod in the manifests, and returns the names of the
// subcommands.
func started(t *testing.T, f func(*cobra.Command, corev1.PodSpec)) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, installation := range []string{"config/default", "config/embedded"} {
		for _, o := range kube.Manifests(t, installation) {
			if o.GetKind() != "Deployment" && o.GetKind() != "StatefulSet" {
				continue
			}
			var workload appsv1.Deployment // a StatefulSet's template is at the same place
			require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &workload))
			c := workload.Spec.Template.Spec.Containers[0]
			if len(c.Command) > 0 { // another program
				continue
			}
			cmd, flags, err := newRootCommand().Find(c.Args)
			require.NoError(t, err, o.GetName())
			require.NoError(t, cmd.ParseFlags(flags), o.GetName())
			require.Empty(t, cmd.Flags().Args(), o.GetName())
			names[cmd.Name()] = true
			f(cmd, workload.Spec.Template.Spec)
		}
	}
	return names
}

// The manifests use only existing flags with valid values, as arguments and as variables.
func TestManifests_UseExistingFlags(t *testing.T) {
	t.Parallel()
	names := started(t, func(cmd *cobra.Command, pod corev1.PodSpec) {
		for _, variable := range pod.Containers[0].Env {
			found := variable.Name == "GOMEMLIMIT"
			cmd.Flags().VisitAll(func(flag *pflag.Flag) { found = found || variable.Name == flagenv.Name(flag.Name) })
			require.True(t, found, "%s: no flag has the variable %s", cmd.Name(), variable.Name)
		}
	})
	require.Equal(t, map[string]bool{"manager": true, "apiserver": true, "all": true}, names)
}

// The manifests give each pod more time to stop than open requests may take.
func TestManifests_LeaveTimeToStop(t *testing.T) {
	t.Parallel()
	started(t, func(cmd *cobra.Command, pod corev1.PodSpec) {
		if cmd.Name() == "manager" { // it serves no requests
			return
		}
		c := pod.Containers[0]
		for _, variable := range c.Env {
			if variable.Name == flagenv.Name("drain") {
				require.NoError(t, cmd.Flags().Set("drain", variable.Value))
			}
		}
		drain, err := cmd.Flags().GetDuration("drain")
		require.NoError(t, err)
		before := time.Duration(0)
		if c.Lifecycle != nil {
			before = time.Duration(c.Lifecycle.PreStop.Sleep.Seconds) * time.Second
		}
		require.GreaterOrEqual(t, time.Duration(*pod.TerminationGracePeriodSeconds)*time.Second, before+drain+20*time.Second, cmd.Name())
	})
}

// The flags limit the connections and the shutdown grace of both public servers.
func TestServers_UseTheLimitsOfTheFlags(t *testing.T) {
	t.Parallel()
	for drain, grace := range map[time.Duration]time.Duration{time.Minute: time.Minute, time.Nanosecond: 1, 0: 1, -time.Second: 1} {
		t.Run(drain.String(), func(t *testing.T) {
			p := &process{options: &options{Flags: gateway.Flags{Drain: drain, MaxConnections: 7}}, facade: metrics.NewFacade(prometheus.NewRegistry())}
			webhooks, facade := p.gatewayOptions(), p.facadeOptions(http.NotFoundHandler())
			require.Equal(t, grace, webhooks.Grace, "0 would mean the default")
			require.Equal(t, grace, facade.Grace)
			require.Equal(t, 7, webhooks.MaxConnections)
			require.Equal(t, 7, facade.MaxConnections)
		})
	}
}
