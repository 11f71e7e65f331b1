// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"encoding/json"
	"fmt"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/object"
	"github.com/agentplatform/agentplatform/internal/seal"
	"github.com/agentplatform/agentplatform/store"
)

// maxLabel is the most characters of a label's value.
const maxLabel = 63

// identity are the ids of a connector and of what it belongs to.
type identity struct{ project, environment, connector uuid.UUID }

// row is the Connector as the store keeps it.
func (r *Reconciler) row(c *v1alpha1.Connector, ids identity, secret, keyID string) (store.Connector, error) {
	config, err := json.Marshal(restConfig(c))
	if err != nil {
		return store.Connector{}, fmt.Errorf("writing the configuration: %w", err)
	}
	row := store.Connector{
		Ref: r.Ref(c), ID: ids.connector, ProjectID: ids.project, EnvironmentID: ids.environment,
		Name: c.Title(), Type: string(c.Type()), Mode: c.Spec.Mode.Word(), Enabled: c.IsEnabled(),
		DefinedInCode: c.DefinedInCode(), Config: config, SecretKey: keyID,
		RequireAuthentication: c.RequiresAuthentication(), TimeoutSeconds: int(c.Timeout().Seconds()), FilesRequired: c.RequiresFiles(),
		Signature: c.Signature(), ContextHeaders: c.ContextHeaders(),
		SecretVersion: int64(c.SecretVersion()), SecretGracePeriod: c.SecretGracePeriod(),
	}
	if c.HasSecret() {
		row.SecretDigest = seal.Digest(secret)
	}
	return row, nil
}

// restConfig is the configuration in its REST shape, without credentials.
func restConfig(c *v1alpha1.Connector) any {
	if c.Type() == v1alpha1.ConnectorCron {
		return cronConfig(c)
	}
	if c.Sends() {
		return outboundConfig(c)
	}
	out := map[string]any{"require_authentication": c.RequiresAuthentication()}
	if signature := c.Signature(); signature != "" {
		out["authentication"] = signature
	}
	if headers := c.ContextHeaders(); len(headers) > 0 {
		out["context_headers"] = headers
	}
	if c.RequiresFiles() {
		out["files_required"] = true
	}
	if c.Spec.Mode == v1alpha1.ModeSync {
		out["timeout_seconds"] = int(c.Timeout().Seconds())
	}
	return out
}

// childSecret shows the generated secret, for pods to mount.
func childSecret(c *v1alpha1.Connector, secret string) *corev1.Secret {
	labels := object.Labels("connector", "")
	delete(labels, object.LabelInstance)
	if len(c.Name) <= maxLabel {
		labels[v1alpha1.LabelConnector] = c.Name
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: c.Name + "-connector", Namespace: c.Namespace, Labels: labels},
		Data:       map[string][]byte{purpose(c): []byte(secret)},
	}
}
