// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"context"
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
func (r *Reconciler) row(ctx context.Context, c *v1alpha1.Connector, ids identity, s secrets) (store.Connector, error) {
	config, err := json.Marshal(restConfig(c))
	if err != nil {
		return store.Connector{}, fmt.Errorf("writing the configuration: %w", err)
	}
	sealed, err := r.sealed(ctx, ids, s)
	if err != nil {
		return store.Connector{}, err
	}
	row := store.Connector{
		Ref: r.Ref(c), ID: ids.connector, ProjectID: ids.project, EnvironmentID: ids.environment,
		Name: c.Title(), Type: string(c.Type()), Mode: string(c.Spec.Mode), Enabled: c.IsEnabled(), Retired: c.Status.Retired,
		DefinedInCode: c.Labels[v1alpha1.LabelDefinedInCode] == "true",
		Config:        config, Sealed: sealed,
		RequireAuthentication: c.RequiresAuthentication(), TimeoutSeconds: int(c.Timeout().Seconds()), FilesRequired: c.RequiresFiles(),
		SecretGracePeriod: c.SecretGracePeriod(),
	}
	if c.RequiresAuthentication() {
		row.SecretDigest = seal.Digest(s.secret)
	}
	return row, nil
}

// restConfig is the configuration in its REST shape, without credentials.
func restConfig(c *v1alpha1.Connector) map[string]any {
	if cron := c.Spec.Cron; cron != nil {
		out := map[string]any{"schedule": cron.Schedule, "timezone": cron.Timezone, "prompt": cron.Prompt, "payload": nil}
		if cron.Payload != nil {
			out["payload"] = json.RawMessage(cron.Payload.Raw)
		}
		return out
	}
	switch c.Spec.Mode {
	case v1alpha1.ModeOutbound:
		return outboundConfig(c)
	case v1alpha1.ModeSync:
		return map[string]any{
			"require_authentication": c.RequiresAuthentication(), "files_required": c.RequiresFiles(),
			"timeout_seconds": int(c.Timeout().Seconds()),
		}
	default:
		return map[string]any{"require_authentication": c.RequiresAuthentication(), "files_required": c.RequiresFiles()}
	}
}

func outboundConfig(c *v1alpha1.Connector) map[string]any {
	w := c.Spec.Webhook
	out := map[string]any{"url": w.URL, "timeout_seconds": int(c.Timeout().Seconds())}
	if w.Bridge != "" {
		out["bridge"] = w.Bridge
	}
	if w.Retry != nil {
		retry := map[string]any{}
		if w.Retry.MaxAttempts != nil {
			retry["max_attempts"] = *w.Retry.MaxAttempts
		}
		if len(w.Retry.ScheduleSeconds) > 0 {
			retry["schedule_seconds"] = w.Retry.ScheduleSeconds
		}
		out["retry"] = retry
	}
	return out
}

// childSecret shows the generated secret, for pods to mount.
func childSecret(c *v1alpha1.Connector, s secrets) *corev1.Secret {
	key, value := s.entry()
	labels := object.Labels("connector", "")
	delete(labels, object.LabelInstance)
	if len(c.Name) <= maxLabel {
		labels[v1alpha1.LabelConnector] = c.Name
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: c.Name + "-connector", Namespace: c.Namespace, Labels: labels},
		Data:       map[string][]byte{key: []byte(value)},
	}
}
