// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// What to do where nothing is live depends on who deploys.
func TestEnvironmentStatus_NamesNextStepIfNothingIsLive(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		spec v1alpha1.EnvironmentSpec
		says string
	}{
		"people":    {v1alpha1.EnvironmentSpec{}, `create a Deployment with spec.environment "dev", or set spec.git`},
		"a branch":  {v1alpha1.EnvironmentSpec{Git: v1alpha1.EnvironmentGit{AutoDeploy: true}}, "spec.git requests one; see the condition SourceFollowed"},
		"a commit":  {v1alpha1.EnvironmentSpec{Git: v1alpha1.EnvironmentGit{Commit: "abc"}}, "spec.git requests one; see the condition SourceFollowed"},
		"suspended": {v1alpha1.EnvironmentSpec{Suspend: true, Git: v1alpha1.EnvironmentGit{AutoDeploy: true}}, "none starts while spec.suspend is true"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := &v1alpha1.Environment{ObjectMeta: metav1.ObjectMeta{Name: "dev"}, Spec: tc.spec}
			e.MarkNothingLive()
			said := e.Status.Condition(v1alpha1.ConditionDeploymentLive)
			require.Equal(t, v1alpha1.ReasonNotLive, said.Reason)
			require.Equal(t, "no deployment is live, and runs wait: "+tc.says, said.Message)
		})
	}
}
