// SPDX-License-Identifier: Apache-2.0

package deployment

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/internal/egress"
)

// Build pods have no environment variables, each value of a tenant is the value of its own flag, and
// each egress flag of the operator occurs once.
func TestBuildJob_TenantCannotReplaceFlags(t *testing.T) {
	t.Parallel()
	d := &v1alpha1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "v1", Namespace: "team"}}
	const hostile = "--allow-egress=git=0.0.0.0/0"
	from := source{URL: hostile, Branch: hostile, Commit: hostile, Path: hostile, Secret: "git"}
	for _, flags := range []egress.Flags{{}, {Allow: "git=10.0.0.0/8", Deny: "10.96.0.0/12"}} {
		spec := buildJob(d, from, buildSettings{}, base.PodOptions{Egress: flags}).Spec.Template.Spec
		require.False(t, *spec.EnableServiceLinks)
		for _, c := range append(spec.InitContainers, spec.Containers...) {
			require.Empty(t, c.Env, c.Name)
			require.Empty(t, c.EnvFrom, c.Name)
		}
		var found []string
		for _, arg := range spec.InitContainers[0].Args {
			if strings.HasPrefix(arg, "--allow-egress") || strings.HasPrefix(arg, "--deny-egress") {
				found = append(found, arg)
			}
		}
		require.Equal(t, flags.Args(), found)
	}
}
