// SPDX-License-Identifier: Apache-2.0

package base_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
)

// Error texts of the database driver contain hosts and users. No condition shows them, whether or not
// the error is marked as an error of the store.
func TestExplain_HidesStoreErrors(t *testing.T) {
	t.Parallel()
	driver := errors.New("failed to connect to `user=agentplatform database=runs`: 10.7.7.7:5432 (db.internal): FATAL: password")
	for name, err := range map[string]error{
		"marked":         base.FromStore(fmt.Errorf("starting the build: %w", driver)),
		"marked, joined": errors.Join(errors.New("other"), base.FromStore(driver)),
		"not marked":     fmt.Errorf("starting the build: %w", driver),
	} {
		t.Run(name, func(t *testing.T) {
			for _, o := range []v1alpha1.ConditionedObject{
				&v1alpha1.Project{}, &v1alpha1.Environment{}, &v1alpha1.Deployment{}, &v1alpha1.Connector{}, &v1alpha1.ConnectorLink{}, &v1alpha1.APIKey{},
			} {
				_, again := (&base.Base{}).Explain(o, err)
				require.ErrorIs(t, again, driver, "the log tells: %s", name)
				require.NotEmpty(t, o.CommonStatus().Conditions)
				for _, c := range o.CommonStatus().Conditions {
					for _, secret := range []string{"agentplatform database", "10.7.7.7", "db.internal", "FATAL"} {
						require.NotContains(t, c.Message, secret, "%s %s %s", name, o.ObjectKind(), c.Type)
					}
					require.Contains(t, c.Message, "the manager's log")
				}
			}
		})
	}
}

func TestExplain_ShowsKubernetesRefusal(t *testing.T) {
	t.Parallel()
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "a", errors.New("exceeded quota: few"))
	environment := &v1alpha1.Environment{}
	after, err := (&base.Base{}).Explain(environment, fmt.Errorf("applying Secret %q: %w", "a", refused))
	require.NoError(t, err)
	require.Equal(t, base.MaxRetryInterval, after, "the quota may be raised")
	require.True(t, v1alpha1.IsStalled(environment))
	require.Contains(t, environment.Status.Condition(v1alpha1.ConditionReady).Message, "exceeded quota: few")
}
