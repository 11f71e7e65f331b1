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
	"github.com/agentplatform/agentplatform/internal/keyring"
	"github.com/agentplatform/agentplatform/internal/namespaces"
	"github.com/agentplatform/agentplatform/internal/seal"
	"github.com/agentplatform/agentplatform/store"
)

// page is how many rows are read at once.
const page = 200

// Store is what the keeper needs of the store.
type Store interface {
	store.KeyLedger
	// RecordAudit is store.Audit's.
	RecordAudit(ctx context.Context, e store.AuditEntry) (uuid.UUID, error)
	// Holder is store.Catalog's.
	Holder(ctx context.Context, key store.Key) (store.ObjectRef, error)
}

// Keeper brings new keys into use, seals anew what an old key has sealed, and
// lets revoked keys go. One of it runs, in the leading manager.
type Keeper struct {
	Secret   Secret
	Store    Store
	Follower *keyring.Follower
	// Anew takes the connectors whose secrets are to be derived or sealed anew,
	// of the namespaces that the manager works in.
	Anew       chan<- event.GenericEvent
	Namespaces namespaces.Set
	Logger     *slog.Logger
}

// Begin takes note of the keys, reports them and brings the first ones into use.
// It is refused where the store needs keys that are not there.
func (k *Keeper) Begin(ctx context.Context) error {
	secret, ring, err := k.Secret.get(ctx)
	if err != nil {
		return err
	}
	return k.adopt(ctx, secret, ring)
}

func (k *Keeper) adopt(ctx context.Context, secret *corev1.Secret, ring keyring.Ring) error {
	if err := k.record(ctx, secret, ring); err != nil {
		return err
	}
	if err := k.Store.AdmitKeys(ctx, admitted(ring), ring.Revoked()); err != nil {
		return err
	}
	if err := k.Follower.Refresh(ctx); err != nil {
		return err
	}
	promoted, err := k.Store.PromoteKeys(ctx, store.KeyHolderAge)
	if err != nil || len(promoted) == 0 {
		return err
	}
	k.Logger.InfoContext(ctx, "keys have become current", "keys", promoted)
	return k.Follower.Refresh(ctx)
}

// admitted are the keys of a ring as the store knows them.
func admitted(ring keyring.Ring) (out []store.PlatformKey) {
	fingerprints := ring.Fingerprints()
	for _, name := range []string{keyring.Derivation, keyring.Sealing} {
		for _, id := range ring.IDs(name) {
			out = append(out, store.PlatformKey{ID: id, Ring: name, Fingerprint: fingerprints[id]})
		}
	}
	return out
}

// NeedLeaderElection says that only the leader keeps the keys.
func (k *Keeper) NeedLeaderElection() bool { return true }

// Start keeps the keys until ctx ends.
func (k *Keeper) Start(ctx context.Context) error {
	for {
		if err := k.Keep(ctx); err != nil && ctx.Err() == nil {
			k.Logger.ErrorContext(ctx, "keeping the platform's keys; those read before stay in use", "error", err)
		}
		if k.Follower.Wait(ctx) != nil {
			return nil // the manager stops
		}
	}
}

// Reporter reports the keys of a manager, leading or not.
type Reporter struct{ *keyring.Follower }

// NeedLeaderElection says that every manager reports.
func (Reporter) NeedLeaderElection() bool { return false }

// Start reports until ctx ends.
func (r Reporter) Start(ctx context.Context) error { return r.Run(ctx) }

// Keep does once what there is to do.
func (k *Keeper) Keep(ctx context.Context) error {
	secret, ring, err := k.Secret.get(ctx)
	if err != nil {
		return err
	}
	if err := k.adopt(ctx, secret, ring); err != nil {
		return err
	}
	keys, err := k.Store.Keys(ctx, store.KeyHolderAge)
	if err != nil {
		return err
	}
	if err := errors.Join(k.deriveAnew(ctx, keys), k.sealAnew(ctx)); err != nil {
		return err
	}
	ring, err = k.retire(ctx, keys, ring)
	if err != nil {
		return err
	}
	return k.show(ctx, secret, ring)
}

// deriveAnew hands the connectors of revoked keys to their controller.
func (k *Keeper) deriveAnew(ctx context.Context, keys []store.KeyStatus) error {
	for _, key := range keys {
		if key.Ring != keyring.Derivation || key.RevokedAt == nil || key.Current || key.Needed == 0 {
			continue
		}
		var after store.Key
		for {
			objects, err := k.Store.DerivedFrom(ctx, key.ID, after, page)
			if err != nil {
				return err
			}
			for _, o := range objects {
				if err := k.anew(ctx, o.Ref); err != nil {
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

func (k *Keeper) anew(ctx context.Context, ref store.ObjectRef) error {
	if !k.Namespaces.Has(ref.Namespace) {
		return nil // another manager's
	}
	connector := &v1alpha1.Connector{}
	connector.Namespace, connector.Name = ref.Namespace, ref.Name
	select {
	case k.Anew <- event.GenericEvent{Object: connector}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// sealAnew seals with the current key what another one has sealed. What cannot
// be opened, because its key is lost, is made again by its controller.
func (k *Keeper) sealAnew(ctx context.Context) error {
	current := k.Follower.Keys.SealingKey()
	var after store.Key
	for current != "" {
		fields, err := k.Store.SealedBefore(ctx, current, after, page)
		if err != nil {
			return err
		}
		for _, field := range fields {
			if err := k.seal(ctx, field); err != nil {
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

func (k *Keeper) seal(ctx context.Context, field store.SealedField) error {
	of := seal.CredentialsField(field.Connector.ProjectID, field.Connector.ID)
	plain, err := k.Follower.Keys.Open(of, field.Sealed)
	if err != nil {
		ref, err := k.Store.Holder(ctx, field.Connector)
		if err != nil {
			return fmt.Errorf("looking for connector %s: %w", field.Connector, err)
		}
		return k.anew(ctx, ref)
	}
	sealed, by, err := k.Follower.Keys.Seal(of, plain)
	if err != nil {
		return err
	}
	return k.Store.Reseal(ctx, field, sealed, by)
}

// retire gives up the revoked keys that nothing needs any more: in the store
// first, for it is what refuses a ring without them.
func (k *Keeper) retire(ctx context.Context, keys []store.KeyStatus, ring keyring.Ring) (keyring.Ring, error) {
	for _, key := range keys {
		if !key.Dispensable || !mentions(ring, key.ID) {
			continue
		}
		if key.RetiredAt == nil {
			switch err := k.Store.RetireKey(ctx, key.ID); {
			case errors.Is(err, store.ErrConflict):
				continue // something needs it since
			case err != nil:
				return ring, err
			}
			k.Logger.InfoContext(ctx, "nothing needs a revoked key any more; it leaves the ring", "key", key.ID)
		}
		less, err := ring.Without(key.ID)
		if err != nil {
			return ring, err
		}
		ring = less
	}
	return k.forget(ctx, keys, ring)
}

// forget drops the marks of keys that neither ring nor store ever knew: they end
// nothing.
func (k *Keeper) forget(ctx context.Context, keys []store.KeyStatus, ring keyring.Ring) (keyring.Ring, error) {
	for _, id := range slices.Sorted(maps.Keys(ring.Revoked())) {
		if slices.ContainsFunc(keys, func(key store.KeyStatus) bool { return key.ID == id }) {
			continue
		}
		k.Logger.WarnContext(ctx, "a key was revoked that nobody knows; the mark is dropped", "key", id)
		less, err := ring.Without(id)
		if err != nil {
			return ring, err
		}
		ring = less
	}
	return ring, nil
}

// mentions says whether the Secret holds the key or its mark.
func mentions(ring keyring.Ring, id string) bool {
	_, held := ring.Fingerprints()[id]
	_, revoked := ring.Revoked()[id]
	return held || revoked
}

// show writes ring and status into the Secret where they changed.
func (k *Keeper) show(ctx context.Context, secret *corev1.Secret, ring keyring.Ring) error {
	keys, err := k.Store.Keys(ctx, store.KeyHolderAge)
	if err != nil {
		return err
	}
	var states []keyring.KeyStatus
	for _, key := range keys {
		if key.RetiredAt == nil {
			states = append(states, stateOf(key))
		}
	}
	status, err := json.Marshal(states)
	if err != nil {
		return fmt.Errorf("writing the status of the keys: %w", err)
	}
	read, err := keyring.Parse(secret.Data)
	if err != nil {
		return err
	}
	same := len(read.Fingerprints()) == len(ring.Fingerprints()) && len(read.Revoked()) == len(ring.Revoked())
	if same && secret.Annotations[keyring.StatusAnnotation] == string(status) {
		return nil
	}
	return k.Secret.write(ctx, secret, ring, string(status))
}

func stateOf(key store.KeyStatus) keyring.KeyStatus {
	out := keyring.KeyStatus{ID: key.ID}
	switch {
	case key.RevokedAt != nil:
		out.State, out.EndsAt, out.Needed = keyring.StateRevoked, key.EndsAt, key.Needed
	case key.Current:
		out.State = keyring.StateCurrent
	case key.Used:
		out.State = keyring.StateFormer
	default:
		out.State, out.Lacking = keyring.StateNew, key.Lacking
	}
	return out
}
