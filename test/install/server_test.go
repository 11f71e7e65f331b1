// SPDX-License-Identifier: Apache-2.0

package install_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/agentplatform/agentplatform/internal/testenv/kube"
)

// A Kubernetes API server accepts every field of every object in the manifests.
func TestManifests_ApplyToKubernetes(t *testing.T) {
	t.Parallel()
	c := client.WithFieldValidation(kube.Start(t).Client, "Strict")
	for _, installation := range installations {
		taken := 0
		for _, o := range build(t, installation, "") {
			switch o.GetKind() {
			case "CustomResourceDefinition": // they are there
				continue
			case "Namespace":
				if err := c.Create(t.Context(), o); !apierrors.IsAlreadyExists(err) {
					require.NoError(t, err)
				}
				continue
			}
			require.NoError(t, c.Create(t.Context(), o, client.DryRunAll), "%s: %s %s", installation, o.GetKind(), o.GetName())
			taken++
		}
		require.Greater(t, taken, 10)
	}
}
