// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// KeyHolderAge is how long a process counts as live after it has reported its keys.
const KeyHolderAge = time.Minute

// ErrNoCurrentKey means that the ring has no current key yet, because not all live processes have
// reported one.
var ErrNoCurrentKey = errors.New("the key ring has no current key yet")

// Derivation identifies a version of a connector's secret.
type Derivation struct {
	ConnectorID uuid.UUID
	Version     int64
}

// PlatformKey is the record of a platform key. It never contains the key.
type PlatformKey struct {
	// ID is "<ring>-<8 hexadecimal digits>".
	ID string
	// Ring is "derivation" or "sealing".
	Ring string
	// Fingerprint is a digest of the key.
	Fingerprint string
	// Rank orders the keys of a ring by age; newer keys have higher ranks. The store sets it.
	Rank int64
	// Current means that the key serves new secrets. At most one key of a ring is current.
	Current bool
	// Used means that the key is or was current, so it must not be missing.
	Used bool
	// RevokedAt is nil unless the key was revoked. EndsAt is when secrets that are derived from it
	// expire.
	RevokedAt, EndsAt *time.Time
	// RetiredAt is when the last use of a revoked key ended.
	RetiredAt *time.Time
}

// KeyHolder is a live process with the IDs of its keys.
type KeyHolder struct {
	Process string
	Keys    []string
}

// KeyStatus is a key with the processes that lack it and the connectors that need it.
type KeyStatus struct {
	PlatformKey
	// Lacking are the live processes that have not reported the key.
	Lacking []string
	// Needed is the number of connectors in effect whose current secret is derived from the key,
	// plus the number of connectors whose credentials it has sealed.
	Needed int64
	// Dispensable means that RetireKey would succeed.
	Dispensable bool
}

// NextKey chooses the current key of a ring: the newest key that is not revoked, once all live
// processes have it. There must be at least one process. It returns false if the current key stays.
func NextKey(keys []PlatformKey, live []KeyHolder) (PlatformKey, bool) {
	var newest PlatformKey
	for _, key := range keys {
		if key.RevokedAt == nil && key.RetiredAt == nil && (newest.ID == "" || key.Rank > newest.Rank) {
			newest = key
		}
	}
	if newest.ID == "" || newest.Current || len(live) == 0 {
		return PlatformKey{}, false
	}
	for _, holder := range live {
		if !slices.Contains(holder.Keys, newest.ID) {
			return PlatformKey{}, false
		}
	}
	return newest, true
}

// KeyRegister records which keys each process has.
type KeyRegister interface {
	// ReportKeys records the keys of a live process, as fingerprints by ID, and returns the IDs of
	// the current keys. It returns *MissingKeysError if a key that is or was current is missing or
	// different. Revoked keys may be missing.
	ReportKeys(ctx context.Context, process string, held map[string]string) ([]string, error)
	// ForgetProcess records that a process has ended.
	ForgetProcess(ctx context.Context, process string) error
}

// KeyLedger manages the platform's keys for the manager.
type KeyLedger interface {
	KeyRegister
	// AdmitKeys records the keys in the Secret, oldest first, and the revoked keys with the
	// remaining validity of secrets derived from them. Keys that were never current and are missing
	// are deleted. It returns *MissingKeysError if a key has another fingerprint.
	AdmitKeys(ctx context.Context, keys []PlatformKey, revoked map[string]time.Duration) error
	// PromoteKeys makes the keys that NextKey chooses current, and returns their IDs. A process is
	// live if it has reported within liveFor (KeyHolderAge in production), by the database's clock.
	PromoteKeys(ctx context.Context, liveFor time.Duration) ([]string, error)
	// Keys returns all keys that the store has ever recorded, oldest first.
	Keys(ctx context.Context, liveFor time.Duration) ([]KeyStatus, error)
	// DerivationKey returns the ID of the key from which this version of a connector's secret is
	// derived, also after the connector was deleted and re-created. If none is recorded or the
	// recorded key is revoked, it records and returns the current key. It returns ErrNoCurrentKey
	// if there is none.
	DerivationKey(ctx context.Context, connector Key, version int64) (string, error)
	// DerivationKeys returns the recorded derivation keys of all secret versions of connectors of a
	// project. It records nothing. Missing entries are not recorded yet, or their key is revoked.
	DerivationKeys(ctx context.Context, projectID uuid.UUID, connectors []uuid.UUID) (map[Derivation]string, error)
	// DerivedFrom returns up to limit connectors in effect whose current secret is derived from the
	// key, after the given one (the zero Key at first), by project and ID.
	DerivedFrom(ctx context.Context, keyID string, after Key, limit int) ([]ProjectedObject, error)
	// SealedBefore returns up to limit sealed fields that another key has sealed, after the given
	// connector, by project and ID.
	SealedBefore(ctx context.Context, keyID string, after Key, limit int) ([]SealedField, error)
	// Reseal replaces the sealed bytes of a field, unless the field has changed.
	Reseal(ctx context.Context, field SealedField, sealed []byte, keyID string) error
	// RetireKey retires a revoked key. It returns ErrConflict while the key is needed: by fields
	// that it has sealed, and until its end by derived secrets in effect.
	RetireKey(ctx context.Context, keyID string) error
}

// SealedField is a sealed column of the projection: the credentials of a connector.
type SealedField struct {
	Connector Key
	Sealed    []byte
}

// MissingKeysError means that keys which stored rows need are missing.
type MissingKeysError struct {
	// Missing are the IDs of missing keys. Changed are the IDs of keys that differ from the
	// recorded ones.
	Missing, Changed []string
}

// Error names the keys and the remedy.
func (e *MissingKeysError) Error() string {
	var problems []string
	if len(e.Missing) > 0 {
		problems = append(problems, "lacks "+strings.Join(e.Missing, ", "))
	}
	if len(e.Changed) > 0 {
		problems = append(problems, "has another key under the ID "+strings.Join(e.Changed, ", "))
	}
	return fmt.Sprintf("the Secret of the platform's keys %s, but stored rows need the original keys: restore the Secret from its "+
		"backup; for a key that is lost for good, run: agentctl keys revoke <key id> --lost", strings.Join(problems, " and "))
}
