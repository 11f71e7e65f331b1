// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
)

// TestSecretsAreLookedAtAgain: no Secret is watched, neither a child, which
// somebody may delete, nor one that a user brings.
func TestSecretsAreLookedAtAgain(t *testing.T) {
	t.Parallel()
	require.Equal(t, 10*time.Minute, recheck(&v1alpha1.Connector{}))
	require.Equal(t, time.Minute, recheck(&v1alpha1.Connector{Spec: v1alpha1.ConnectorSpec{
		SecretRef: &v1alpha1.SecretReference{Name: "mine"},
	}}))
}
