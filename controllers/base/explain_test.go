// SPDX-License-Identifier: Apache-2.0

package base_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
)

// No watch reports the conflicting object, so the error has a retry interval.
func TestExplain_RetriesNameCollision(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err       error
		condition string
		reason    string
	}{
		{&base.NameCollisionError{Kind: "Secret", Name: "a"}, v1alpha1.ConditionStalled, v1alpha1.ReasonNameCollision},
		{&base.LeftoverError{Kind: "Secret", Name: "a"}, v1alpha1.ConditionReconciling, v1alpha1.ReasonProgressing},
	} {
		t.Run(c.condition, func(t *testing.T) {
			o := &v1alpha1.Environment{}
			after, err := (&base.Base{}).Explain(o, c.err)
			require.NoError(t, err)
			require.Positive(t, after)
			condition := o.Status.Condition(c.condition)
			require.NotNil(t, condition)
			require.Equal(t, c.reason, condition.Reason)
			require.Contains(t, condition.Message, `Secret "a"`)
		})
	}
}
