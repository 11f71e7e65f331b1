// SPDX-License-Identifier: Apache-2.0

package apikey

import (
	"context"

	"github.com/google/uuid"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/internal/redact"
	"github.com/agentplatform/agentplatform/store"
)

// Auditor writes the audit log.
type Auditor interface {
	// RecordAudit is from store.Audit.
	RecordAudit(ctx context.Context, e store.AuditEntry) (uuid.UUID, error)
}

// recordAudit writes to the audit log that a key was created or revoked: at least once, and before the
// status shows it.
func (r *Reconciler) recordAudit(ctx context.Context, project, id uuid.UUID, key *v1alpha1.APIKey) error {
	for _, operation := range auditedOperations(key) {
		_, err := r.Audit.RecordAudit(ctx, store.AuditEntry{
			ProjectID: project, Operation: operation,
			Actor:   store.AuditActor{Kind: store.AuditWriter, Name: lastWriter(key)},
			Object:  store.AuditObject{Kind: "api_key", ID: id.String(), Name: key.Name},
			Outcome: &store.AuditOutcome{After: redact.JSON(key.Spec, store.MaxAuditDocument)},
		})
		if err != nil {
			return base.FromStore(err)
		}
	}
	return nil
}

// auditedOperations returns the audited operations on a key since its status was written.
func auditedOperations(key *v1alpha1.APIKey) (operations []string) {
	if key.Status.ObservedGeneration < 1 { // no reconcile has completed yet
		operations = append(operations, "createAPIKey")
	}
	ready := key.Status.Condition(v1alpha1.ConditionReady)
	if key.Spec.Revoked && (ready == nil || ready.Reason != v1alpha1.ReasonRevoked) {
		operations = append(operations, "revokeAPIKey")
	}
	return operations
}

// lastWriter returns the field manager that last wrote the spec.
func lastWriter(key *v1alpha1.APIKey) string {
	name, last := "", key.CreationTimestamp
	for _, f := range key.ManagedFields {
		if f.Subresource == "" && f.Time != nil && !f.Time.Before(&last) {
			name, last = f.Manager, *f.Time
		}
	}
	return name
}
