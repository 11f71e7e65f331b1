// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/agentplatform/agentplatform/cmd/internal/flagenv"
	"github.com/agentplatform/agentplatform/internal/testenv/kube"
)

// TestManifestsNameFlagsThatThereAre: as arguments, and as variables.
func TestManifestsNameFlagsThatThereAre(t *testing.T) {
	t.Parallel()
	started := map[string]bool{}
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
			started[cmd.Name()] = true
			for _, variable := range c.Env {
				found := variable.Name == "GOMEMLIMIT"
				for _, flag := range []string{"pod-name"} {
					require.NotNil(t, cmd.Flags().Lookup(flag))
					found = found || variable.Name == flagenv.Name(flag)
				}
				require.True(t, found, "%s: nobody reads %s", o.GetName(), variable.Name)
			}
		}
	}
	require.Equal(t, map[string]bool{"manager": true, "apiserver": true, "all": true}, started)
}
