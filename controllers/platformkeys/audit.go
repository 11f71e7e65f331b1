// SPDX-License-Identifier: Apache-2.0

package platformkeys

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

// recordAudit writes to the audit log which keys were added and revoked: at least once, and before the store
// has them.
func (k *Keeper) recordAudit(ctx context.Context, secret *corev1.Secret, ring secrets.Ring) error {
	keys, err := k.Store.Keys(ctx, store.KeyHolderAge)
	if err != nil {
		return err
	}
	added, revoked := auditedChanges(keys, ring)
	for _, act := range []struct {
		operation string
		ids       []string
	}{{"addPlatformKey", added}, {"revokePlatformKey", revoked}} {
		for _, id := range act.ids {
			_, err := k.Store.RecordAudit(ctx, store.AuditEntry{
				Operation: act.operation, Actor: store.AuditActor{Kind: store.AuditWriter, Name: lastWriter(secret)},
				Object: store.AuditObject{Kind: "platform_key", ID: id}, Outcome: &store.AuditOutcome{},
			})
			if err != nil {
				return fmt.Errorf("recording that key %s was added or revoked: %w", id, err)
			}
		}
	}
	return nil
}

// auditedChanges returns the keys that are new to the store, and the keys with a new revocation or a new grace
// period.
func auditedChanges(known []store.KeyStatus, ring secrets.Ring) (added, revoked []string) {
	stored := map[string]store.KeyStatus{}
	for _, key := range known {
		stored[key.ID] = key
	}
	for _, id := range slices.Sorted(maps.Keys(ring.Fingerprints())) {
		if _, ok := stored[id]; !ok {
			added = append(added, id)
		}
	}
	periods := ring.Revoked()
	for _, id := range slices.Sorted(maps.Keys(periods)) {
		key, known := stored[id]
		if _, held := ring.Fingerprints()[id]; !known && !held {
			continue // a mark of an unknown key
		}
		if key.RevokedAt == nil || key.EndsAt.Sub(*key.RevokedAt) != periods[id] {
			revoked = append(revoked, id)
		}
	}
	return added, revoked
}

// lastWriter returns the field manager that last wrote the Secret. Times are in seconds, and the time of a
// new object's manager may be before the object's own.
func lastWriter(secret *corev1.Secret) (name string) {
	var last metav1.Time
	for _, f := range secret.ManagedFields {
		if f.Time != nil && !f.Time.Before(&last) {
			name, last = f.Manager, *f.Time
		}
	}
	return name
}
