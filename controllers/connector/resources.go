// SPDX-License-Identifier: Apache-2.0

package connector

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/controllers/projection"
	"github.com/agentplatform/agentplatform/store"
)

// maxLabel is the maximum length of a label value.
const maxLabel = 63

// connectorRow returns the Connector's row.
func (r *Reconciler) connectorRow(c *v1alpha1.Connector, ids projection.Identity, secret, keyID string) (store.Connector, error) {
	return projection.Row(r.Ref(c), c, ids, secret, keyID)
}

// childSecret returns the Secret with the generated secret, which pods can mount.
func childSecret(c *v1alpha1.Connector, secret string) *corev1.Secret {
	labels := base.Labels("connector", "")
	delete(labels, base.LabelInstance)
	if len(c.Name) <= maxLabel {
		labels[v1alpha1.LabelConnector] = c.Name
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: c.Name + "-connector", Namespace: c.Namespace, Labels: labels},
		Data:       map[string][]byte{secretPurpose(c): []byte(secret)},
	}
}
