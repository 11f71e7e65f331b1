// SPDX-License-Identifier: Apache-2.0

package platformkeys

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/google/uuid"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/agentplatform/agentplatform/api/v1alpha1"
	"github.com/agentplatform/agentplatform/controllers/base"
	"github.com/agentplatform/agentplatform/internal/namespaces"
	"github.com/agentplatform/agentplatform/internal/secrets"
	"github.com/agentplatform/agentplatform/store"
)

// page is the number of rows per query.
const page = 200

// Store has the store methods that the keeper needs.
type Store interface {
	store.KeyLedger
	// RecordAudit is from store.Audit.
	RecordAudit(ctx context.Context, e store.AuditEntry) (uuid.UUID, error)
	// Holder is from store.Catalog.
	Holder(ctx context.Context, key store.Key) (store.ObjectRef, error)
}

// Keeper puts new keys into use, seals values again that an old key has sealed, and removes revoked
// keys. It runs in the leading manager.
type Keeper struct {
	Secret   Secret
	Store    Store
	Follower *secrets.Follower
	// Changed receives the connectors whose secrets must be derived or sealed again, in the namespaces of
	// the manager.
	Changed    chan<- event.GenericEvent
	Namespaces namespaces.Set
	Logger     *slog.Logger
}

// Begin records the keys, reports them and puts the first ones into use. It fails if the store needs
// keys that are missing.
func (k *Keeper) Begin(ctx context.Context) error {
	secret, ring, err := k.Secret.getSecret(ctx)
	if err != nil {
		return err
	}
	return k.adoptRing(ctx, secret, ring)
}

func (k *Keeper) adoptRing(ctx context.Context, secret *corev1.Secret, ring secrets.Ring) error {
	if err := k.recordAudit(ctx, secret, ring); err != nil {
		return err
	}
	if err := k.Store.AdmitKeys(ctx, platformKeys(ring), ring.Revoked()); err != nil {
		return err
	}
	if err := k.Follower.Refresh(ctx); err != nil {
		return err
	}
	promoted, err := k.Store.PromoteKeys(ctx, store.KeyHolderAge)
	if err != nil || len(promoted) == 0 {
		return err
	}
	k.Logger.InfoContext(ctx, "keys are now in use", "keys", promoted)
	return k.Follower.Refresh(ctx)
}

// platformKeys returns the keys of a ring in the format of the store.
func platformKeys(ring secrets.Ring) (out []store.PlatformKey) {
	fingerprints := ring.Fingerprints()
	for _, name := range []string{secrets.Derivation, secrets.Sealing} {
		for _, id := range ring.IDs(name) {
			out = append(out, store.PlatformKey{ID: id, Ring: name, Fingerprint: fingerprints[id]})
		}
	}
	return out
}

// NeedLeaderElection reports true: only the leader manages the keys.
func (k *Keeper) NeedLeaderElection() bool { return true }

// Start manages the keys until ctx ends.
func (k *Keeper) Start(ctx context.Context) error {
	for {
		if err := k.UpdateKeys(ctx); err != nil && ctx.Err() == nil {
			k.Logger.ErrorContext(ctx, "updating the platform's keys; the previous keys stay in use", "error", err)
		}
		if k.Follower.Wait(ctx) != nil {
			return nil // the manager stops
		}
	}
}

// Reporter reports the keys of a manager, leading or not.
type Reporter struct{ *secrets.Follower }

// NeedLeaderElection reports false: every manager reports.
func (Reporter) NeedLeaderElection() bool { return false }

// Start reports until ctx ends.
func (r Reporter) Start(ctx context.Context) error { return r.Run(ctx) }

// UpdateKeys does one round of the pending work.
func (k *Keeper) UpdateKeys(ctx context.Context) error {
	secret, ring, err := k.Secret.getSecret(ctx)
	if err != nil {
		return err
	}
	if err := k.adoptRing(ctx, secret, ring); err != nil {
		return err
	}
	keys, err := k.Store.Keys(ctx, store.KeyHolderAge)
	if err != nil {
		return err
	}
	if err := errors.Join(k.queueRevoked(ctx, keys), k.resealAll(ctx)); err != nil {
		return err
	}
	ring, err = k.retireKeys(ctx, keys, ring)
	if err != nil {
		return err
	}
	return k.writeStatus(ctx, secret, ring)
}

// queueRevoked queues the connectors of revoked keys.
func (k *Keeper) queueRevoked(ctx context.Context, keys []store.KeyStatus) error {
	for _, key := range keys {
		if key.Ring != secrets.Derivation || key.RevokedAt == nil || key.Current || key.Needed == 0 {
			continue
		}
		var after store.Key
		for {
			objects, err := k.Store.DerivedFrom(ctx, key.ID, after, page)
			if err != nil {
				return err
			}
			for _, o := range objects {
				if err := k.queueConnector(ctx, o.Ref); err != nil {
					return err
				}
				after = o.Key
			}
			if len(objects) < page {
				break
			}
		}
	}
	return nil
}

func (k *Keeper) queueConnector(ctx context.Context, ref store.ObjectRef) error {
	if !k.Namespaces.Has(ref.Namespace) {
		return nil // a connector of another manager
	}
	connector := &v1alpha1.Connector{}
	connector.Namespace, connector.Name = ref.Namespace, ref.Name
	return base.Queue(ctx, k.Changed, connector)
}

// resealAll seals values with the current key that another key has sealed. If the other key is lost, the
// controller creates the value again.
func (k *Keeper) resealAll(ctx context.Context) error {
	current := k.Follower.Keys.SealingKey()
	var after store.Key
	for current != "" {
		fields, err := k.Store.SealedBefore(ctx, current, after, page)
		if err != nil {
			return err
		}
		for _, field := range fields {
			if err := k.resealField(ctx, field); err != nil {
				return err
			}
			after = field.Connector
		}
		if len(fields) < page {
			break
		}
	}
	return nil
}

func (k *Keeper) resealField(ctx context.Context, field store.SealedField) error {
	of := secrets.CredentialsField(field.Connector.ProjectID, field.Connector.ID)
	plain, err := k.Follower.Keys.Open(of, field.Sealed)
	if err != nil {
		ref, err := k.Store.Holder(ctx, field.Connector)
		if err != nil {
			return fmt.Errorf("finding connector %s: %w", field.Connector, err)
		}
		return k.queueConnector(ctx, ref)
	}
	sealed, by, err := k.Follower.Keys.Seal(of, plain)
	if err != nil {
		return err
	}
	return k.Store.Reseal(ctx, field, sealed, by)
}

// retireKeys removes revoked keys that are no longer needed: first in the store, because the store rejects
// a ring without them.
func (k *Keeper) retireKeys(ctx context.Context, keys []store.KeyStatus, ring secrets.Ring) (secrets.Ring, error) {
	for _, key := range keys {
		if !key.Dispensable || !hasKey(ring, key.ID) {
			continue
		}
		if key.RetiredAt == nil {
			switch err := k.Store.RetireKey(ctx, key.ID); {
			case errors.Is(err, store.ErrConflict):
				continue // it is needed again
			case err != nil:
				return ring, err
			}
			k.Logger.InfoContext(ctx, "removed a revoked key that is no longer needed", "key", key.ID)
		}
		less, err := ring.Without(key.ID)
		if err != nil {
			return ring, err
		}
		ring = less
	}
	return k.forgetKeys(ctx, keys, ring)
}

// forgetKeys removes the marks of keys that neither the ring nor the store ever had.
func (k *Keeper) forgetKeys(ctx context.Context, keys []store.KeyStatus, ring secrets.Ring) (secrets.Ring, error) {
	for _, id := range slices.Sorted(maps.Keys(ring.Revoked())) {
		if slices.ContainsFunc(keys, func(key store.KeyStatus) bool { return key.ID == id }) {
			continue
		}
		k.Logger.WarnContext(ctx, "removed the mark of a revoked key that never existed", "key", id)
		less, err := ring.Without(id)
		if err != nil {
			return ring, err
		}
		ring = less
	}
	return ring, nil
}

// hasKey reports whether the Secret has the key or its mark.
func hasKey(ring secrets.Ring, id string) bool {
	_, held := ring.Fingerprints()[id]
	_, revoked := ring.Revoked()[id]
	return held || revoked
}

// writeStatus writes ring and status to the Secret if they changed.
func (k *Keeper) writeStatus(ctx context.Context, secret *corev1.Secret, ring secrets.Ring) error {
	keys, err := k.Store.Keys(ctx, store.KeyHolderAge)
	if err != nil {
		return err
	}
	var states []secrets.KeyStatus
	for _, key := range keys {
		if key.RetiredAt == nil {
			states = append(states, stateOf(key))
		}
	}
	status, err := json.Marshal(states)
	if err != nil {
		return fmt.Errorf("writing the status of the keys: %w", err)
	}
	read, err := secrets.ParseRing(secret.Data)
	if err != nil {
		return err
	}
	same := len(read.Fingerprints()) == len(ring.Fingerprints()) && len(read.Revoked()) == len(ring.Revoked())
	if same && secret.Annotations[secrets.KeyStatusAnnotation] == string(status) {
		return nil
	}
	return k.Secret.writeSecret(ctx, secret, ring, string(status))
}

func stateOf(key store.KeyStatus) secrets.KeyStatus {
	out := secrets.KeyStatus{ID: key.ID}
	switch {
	case key.RevokedAt != nil:
		out.State, out.EndsAt, out.Needed = secrets.KeyRevoked, key.EndsAt, key.Needed
	case key.Current:
		out.State = secrets.KeyCurrent
	case key.Used:
		out.State = secrets.KeyFormer
	default:
		out.State, out.Lacking = secrets.KeyNew, key.Lacking
	}
	return out
}
